"""What the interface answers about jobs, field by field; tests hold every real answer to it.

The models describe what `functions.statuses`, `functions.reports` and `functions.listing` show; the
published document is made from them. A reader has to expect further fields: they may be added.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from functions.core.jobs import JobState, Outcome, SeatState

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, lower-case hex.")]
Window = Annotated[str, Field(description="An hour, UTC.", examples=["2026-11-29T12"])]
Count = Annotated[int, Field(ge=0)]
Usd = Annotated[float | None, Field(description="US dollars; null when any part is unknown.")]
Moment = Annotated[AwareDatetime, Field(examples=[datetime.fromisoformat("2026-11-29T12:00:00Z")])]


class Shown(BaseModel):
    """Base of all answers: every field is there, and in a test no other one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class OutputRef(Shown):
    """Where a validated answer is stored."""

    uri: str = Field(examples=["gs://empanel/outputs/tenant/2026-11-29T12/key/0.json"])
    generation: int
    sha256: Sha256


class TokenUsage(Shown):
    """Tokens of one provider answer; cached ones are part of the input, reasoning of the output."""

    input_tokens: Count
    output_tokens: Count
    cached_tokens: Count
    reasoning_tokens: Count
    cache_write_tokens: Count


class SeatProblem(Shown):
    """Why a seat ended without an answer."""

    code: str = Field(examples=["rate_limited"])
    message: str
    retryable: bool = Field(description="Whether a replay may get an answer.")


class SeatShown(Shown):
    """One seat in the current run."""

    seat: str
    provider: str
    model: str
    model_returned: str | None = Field(description="The name that the provider answered under.")
    state: SeatState
    work_key: str = Field(description="Identity of the question; seats that share it are paid once")
    attempts: Count
    max_attempts: Count
    due_at: Moment | None = Field(description="When the next request may be sent, if one waits.")
    reused: bool = Field(description="Whether an earlier answer to the same question was used.")
    carried: bool = Field(description="Whether the success is one of an earlier run of this job.")
    output: OutputRef | None
    cost_usd: Usd
    error: SeatProblem | None
    started_at: Moment | None
    ended_at: Moment | None


class JobDigests(Shown):
    """Digests over the canonical JSON of each part of the request."""

    request: Sha256
    facts: Sha256
    rubric: Sha256
    policy: Sha256
    prompt: Sha256


class PolicyShown(Shown):
    """The limits of the job, defaults filled in."""

    required_seats: Count
    deadline_seconds: Count
    max_attempts: Count
    max_requests: int | None
    max_cost_usd: float | None
    reuse: bool


class TerminalDigests(Shown):
    """What went in, and which models answered."""

    input: Sha256
    models: Sha256


class SeatModels(Shown):
    """The model that a seat asked for, and the one that answered."""

    seat: str
    model_requested: str | None
    model_returned: str | None


class TerminalShown(Shown):
    """How the run ended; made once, never changed."""

    state: JobState
    run: int
    completed_at: Moment
    decision_id: str
    reason: str
    digests: TerminalDigests
    policy_revision: str
    models: list[SeatModels]


class JobUsage(Shown):
    """What the job's own attempts used, in all its runs."""

    requests: Count
    input_tokens: Count
    output_tokens: Count
    cost_usd: Usd


class _JobHead(Shown):
    id: str = Field(examples=["job_mfrggzdfmztwq2lknnwg23tpobyxe43u"])
    state: JobState
    run: int = Field(ge=1, description="Number of the run, 1 at first; each replay begins another.")
    submitted_at: Moment
    deadline_at: Moment
    window: Window
    owner: str
    labels: dict[str, str]
    decision_id: str = Field(description="Name of the decision, the same in every run.")
    purged_at: Moment | None = Field(description="When inputs and answers were given up.")


class JobShown(_JobHead):
    """A job as it is now."""

    digests: JobDigests
    policy: PolicyShown
    seats: list[SeatShown]
    terminal: TerminalShown | None = Field(description="How the run ended, null until it has.")
    usage: JobUsage


class JobEvent(Shown):
    """One event of a stream, as its fields."""

    event: Literal["job"]
    id: str = Field(description="The job's ETag.")
    data: str = Field(
        description="The job, as JSON in one line.",
        json_schema_extra={
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/JobShown"},
        },
    )


class SeatListed(Shown):
    """A seat as lists show it."""

    seat: str
    provider: str
    model: str


class JobListed(_JobHead):
    """A job as lists show it: what its own record says."""

    seats: list[SeatListed]


class JobPage(Shown):
    """A page of jobs, newest first."""

    jobs: list[JobListed]
    unreadable: list[str] = Field(
        description="IDs of jobs of this page whose record this release cannot read; an operator is"
        " told of each by an incident."
    )
    next_cursor: str | None = Field(description="The next page's `cursor`, null at the end.")


class AttemptShown(Shown):
    """One provider request."""

    seat: str
    number: int = Field(ge=1)
    run: int = Field(ge=1)
    holder: str = Field(description="Who sent it: a random name per claim.")
    started_at: Moment
    ended_at: Moment | None
    outcome: Outcome
    http_status: int | None
    code: str | None
    message: str | None
    provider_request_id: str | None
    model_requested: str
    model_returned: str | None
    hint_seconds: float | None = Field(description="How long the provider asked to wait.")
    until: Moment | None = Field(description="When a used-up quota is free again, where known.")
    usage: TokenUsage | None
    cost_usd: Usd


class AttemptList(Shown):
    """Every provider request of a job, oldest first."""

    attempts: list[AttemptShown]


class SeatAnswer(Shown):
    """A seat's answer as stored."""

    seat: str
    score: float | None
    criteria: dict[str, float] | None
    rationale: str | None
    answer: Any = Field(description="The whole answer, in the shape that the rubric asks for.")
    usage: TokenUsage | None
    cost_usd: Usd
    model_requested: str
    model_returned: str | None
    reused: bool
    output: OutputRef | None


class SeatMissing(Shown):
    """A seat without an answer, and why."""

    seat: str
    state: SeatState
    code: str | None
    reason: str
    due_at: Moment | None


class PanelWarningShown(Shown):
    """Something that makes the answers less comparable than they look."""

    code: str
    seats: list[str]
    detail: str


class Summary(Shown):
    """Statistics over the `n` seats of `of` that gave a score."""

    mean: float | None
    median: float | None
    min: float | None
    max: float | None
    stdev: float | None
    n: Count
    of: Count


class ReportShown(Shown):
    """The panel's answers; `complete` only when every seat has one."""

    job_id: str
    run: int
    state: JobState
    complete: bool
    decision_id: str
    seats: list[SeatAnswer]
    missing: list[SeatMissing]
    warnings: list[PanelWarningShown]
    summary: Summary


class EstimateShown(Shown):
    """What a job would need now; nothing is promised."""

    requests: Count = Field(description="One per seat without a reusable answer.")
    cost_usd: float | None = Field(description="Their worst case, null when a price is unknown.")
    reused_seats: Count


class HealthShown(Shown):
    """The process serves requests."""

    status: Literal["ok"]


class ReadyShown(Shown):
    """Ledger, store and topic have answered."""

    status: Literal["ready"]


class ProblemError(Shown):
    """One broken rule."""

    pointer: str = Field(
        description="JSON pointer (RFC 6901) into the body.", examples=["/seats/0"]
    )
    detail: str


class ProblemShown(BaseModel):
    """Problem details (RFC 9457); some problems have members besides these."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    type: str = Field(
        pattern=r"^urn:empanel:problem:[a-z-]+$", examples=["urn:empanel:problem:not-found"]
    )
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    errors: list[ProblemError] = Field(default=[], description="Each broken rule, if rules were.")
    retry_after_seconds: int | None = Field(
        default=None, description="When to ask again, as `Retry-After` says.", ge=1
    )


class ReportProblem(ProblemShown):
    """The seats that have no answer yet, or never will have."""

    missing: list[SeatMissing] = []


class ReadyProblem(ProblemShown):
    """Which of ledger, store and topic gave no answer."""

    failed: list[Literal["ledger", "store", "topic"]] = []
