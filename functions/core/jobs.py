"""Jobs, runs, seats, evaluations and attempts: the records of the ledger as frozen values.

Job states, and who moves a job out of each:

    accepted --first claim--> running --last seat ends--> succeeded | failed
        \\______________________/  \\--deadline_at--> expired
                                   \\--cancel-------> canceled

A terminal state is left only by a replay, which starts the next run. Seat states are read off the
records, never stored while they can still change: a seat has a document once it has ended.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from functions.core import versions


class JobState(StrEnum):
    """How far a job is; the last four are terminal."""

    ACCEPTED = "accepted"  # recorded, no request claimed yet; the first claim moves it on
    RUNNING = "running"  # at least one request was claimed; the close moves it on
    SUCCEEDED = "succeeded"  # all seats ended, at least `required_seats` succeeded
    FAILED = "failed"  # all seats ended, too few succeeded
    EXPIRED = "expired"  # `deadline_at` passed before all seats ended
    CANCELED = "canceled"  # the caller stopped it

    @property
    def is_terminal(self) -> bool:
        """Whether a run in this state has its terminal record."""
        return self not in (JobState.ACCEPTED, JobState.RUNNING)


class SeatState(StrEnum):
    """How far a seat is; the last four are final for its run."""

    QUEUED = "queued"  # nobody works on it
    RUNNING = "running"  # a live lease holds its evaluation
    WAITING = "waiting"  # a request may be sent at a known time: a retry, or the end of a pause
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"


class Outcome(StrEnum):
    """How an attempt ended."""

    RUNNING = "running"  # written before the request is sent
    SUCCEEDED = "succeeded"
    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    INVALID_OUTPUT = "invalid_output"
    CANCELED = "canceled"  # cut by a stop or a shutdown
    UNKNOWN = "unknown"  # sent, no answer: it may have been paid for


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one provider answer.

    `input_tokens` are all input, those read from a cache (`cached_tokens`) and written to one
    (`cache_write_tokens`) included; `output_tokens` are all that is billed as output, reasoning
    included. A dialect adds up what its vendor counts apart.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """A validated answer in the bucket: what a successful seat points to."""

    uri: str
    generation: int
    sha256: str
    stored_at: datetime
    model_returned: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SeatError:
    """Why a seat or an evaluation ended without an output; codes as in the interface document."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One provider request, written down before it is sent.

    `number` counts the attempts of one seat in one run from 1. `token` is the fencing token of the
    claim that made it. `sent` is false only when the request certainly never left the process. A
    request cut by a shutdown ends `canceled` with the code `interrupted`: spent, but not counted
    towards `max_attempts`. `until` is when a quota that is used up is free again, where known.
    `traceparent` is the delivery that claimed it, where traces are kept.
    """

    job: str
    run: int
    seat: int
    number: int
    holder: str
    token: int
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome = Outcome.RUNNING
    http_status: int | None = None
    sent: bool = True
    code: str | None = None
    message: str | None = None
    provider_request_id: str | None = None
    model_returned: str | None = None
    hint_seconds: float | None = None
    until: datetime | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    traceparent: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wake:
    """The seat whose message repair publishes when an evaluation's `wake_at` has come."""

    job: str
    run: int
    seat: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """The unit that is paid for, shared by all jobs of a tenant that ask the same question.

    `token` counts claims. `lease_until` is there while a holder works, `due_at` while a retry
    or the end of a pause is waited for, `wake_at` while either is so. `object_name` is where the
    holder of the current epoch stores. How it ended for a run is read off `output` and `attempts`
    (`functions.core.leases`). `purged` names the last objects that were deleted on purpose; none of
    these names is ever used again.
    """

    tenant: str
    work_key: str
    holder: str | None = None
    token: int = 0
    lease_until: datetime | None = None
    due_at: datetime | None = None
    wake_at: datetime | None = None
    wake: Wake | None = None
    shard: int = 0
    attempts: tuple[Attempt, ...] = ()
    epoch: int = 0
    object_name: str | None = None
    output: Output | None = None
    purged: tuple[str, ...] = ()
    v: int = versions.EVALUATION.written


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """One place on the panel, as accepted; `endpoint` is the digest of dialect and base URL.

    `worst_nano_usd` is what one attempt costs at worst, in billionths of a US dollar, by the prices
    at acceptance; it is there only where a cap counts money.
    """

    seat: str
    provider: str
    model: str
    sample: int
    work_key: str
    endpoint: str
    parameters: dict[str, Any] = field(default_factory=dict)
    worst_nano_usd: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What the caller allows; `required_seats` is already a number."""

    required_seats: int
    deadline_seconds: int = 3600
    max_attempts: int = 4
    max_requests: int | None = None
    max_cost_usd: float | None = None
    reuse: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """SHA-256, lower-case hex, over the canonical JSON of each part of the request."""

    request: str
    facts: str
    rubric: str
    policy: str
    prompt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Facts and rubric as canonical JSON text: inline when small, else as objects by digest."""

    facts: str | None = None
    rubric: str | None = None
    facts_object: str | None = None
    rubric_object: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgedInput:
    """An input object of a purged job: one generation of a name that others may use again."""

    name: str
    generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DayReservation:
    """What a run holds of its tenant's day; None for what the day does not cap.

    The worst case until `final`, then what the run really took.
    """

    day: str
    requests: int | None = None
    nano_usd: int | None = None
    final: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantDay:
    """The sum of what a tenant's runs hold of one day, in the day they were asked for (UTC)."""

    tenant: str
    day: str
    expire_at: datetime
    requests: int = 0
    nano_usd: int = 0
    v: int = versions.TENANT_DAY.written


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One accepted panel request. The fields from `run` on are its head and change by precondition.

    `run_at` is the server's commit time of the acceptance or replay. `check_at` is when repair
    looks at the job next; it is absent once nothing is left to do. `open_seats` counts the run's
    seats until it closes. `day` is there only where the
    tenant's day is capped; it changes once, when the run's last seat has its record. `stopped` is
    there only when a stopped run counts as succeeded: how it was stopped (`stop`). `purged_at` is
    when inputs and outputs were given up for deletion, `purged_inputs` what is to be deleted of the
    inputs; the digests stay. `input_digests` names the inputs once more, for queries, until then.
    """

    id: str
    tenant: str
    decision_id: str
    digests: Digests
    seats: tuple[Seat, ...]
    policy: Policy
    policy_revision: str
    owner: str
    window: str
    submitted_at: datetime
    expire_at: datetime
    inputs: Inputs
    labels: dict[str, str] = field(default_factory=dict)
    label_pairs: tuple[str, ...] = ()
    input_digests: tuple[str, ...] = ()
    traceparent: str | None = None
    notify_url: str | None = None
    run: int = 1
    run_window: str
    run_at: datetime
    deadline_at: datetime
    state: JobState = JobState.ACCEPTED
    started_at: datetime | None = None
    check_at: datetime | None = None
    check_seconds: int = 60
    shard: int = 0
    open_seats: int | None = None
    day: DayReservation | None = None
    stopped: JobState | None = None
    purged_at: datetime | None = None
    purged_inputs: tuple[PurgedInput, ...] = ()
    v: int = versions.JOB.written

    @property
    def stop(self) -> JobState | None:
        """How the run was stopped before its seats had ended: expired, canceled, or not at all."""
        return self.stopped or _stop(self.state)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeatRecord:
    """How one seat of one run ended; created once, never changed.

    `attempts` are the seat's own requests in this run: none when its output was reused. `carried`
    says that the success is an earlier run's, taken over by a replay. The output carries what it
    once cost. `models_returned` are the names that the question has been answered under so far, in
    this run and before: more than one means that the model has changed. It expires with its job.
    """

    run: int
    index: int
    seat: str
    state: SeatState
    work_key: str
    ended_at: datetime
    started_at: datetime | None = None
    reused: bool = False
    carried: bool = False
    output: Output | None = None
    error: SeatError | None = None
    due_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()
    models_returned: tuple[str, ...] = ()
    expire_at: datetime | None = None
    v: int = versions.SEAT.written


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """The first time that a tenant's question to a model was answered under a name. Create-only.

    `alias` is the digest of tenant, endpoint and the model asked for.
    """

    alias: str
    model_returned: str
    seen_at: datetime
    v: int = versions.SIGHTING.written


@dataclass(frozen=True, kw_only=True, slots=True)
class SeatOutcome:
    """One seat's line in a terminal record."""

    seat: str
    state: SeatState
    sha256: str | None = None
    code: str | None = None
    uri: str | None = None
    generation: int | None = None
    model_requested: str | None = None
    model_returned: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """What a run's own attempts used; `cost_usd` is None when any of it is unknown."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminal:
    """How a run ended. Created once; no write path replaces it. `stopped` as in `Job`.

    It expires with its job: a later one of the same identity begins with nothing of it.
    """

    job: str
    tenant: str
    run: int
    window: str
    state: JobState
    reason: str
    completed_at: datetime
    decision_id: str
    input_digest: str
    models_digest: str
    policy_revision: str
    seats: tuple[SeatOutcome, ...] = ()
    totals: Totals = field(default_factory=Totals)
    stopped: JobState | None = None
    expire_at: datetime | None = None
    v: int = versions.TERMINAL.written

    @property
    def stop(self) -> JobState | None:
        """How the run was stopped before its seats had ended: expired, canceled, or not at all."""
        return self.stopped or _stop(self.state)


def _stop(state: JobState) -> JobState | None:
    return state if state in (JobState.EXPIRED, JobState.CANCELED) else None
