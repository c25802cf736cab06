"""What the API answers, as far as the command line shows it (OpenAPI: /openapi.json).

Fields that are not named here are ignored, so a newer API can be read; a state that is not known
counts as open.
"""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, model_validator

ENDED_STATES = frozenset({"succeeded", "failed", "expired", "canceled"})


class Body(BaseModel):
    """Base of all answers: frozen, and open for fields added later."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SeatError(Body):
    """Why a seat failed or waits; `code` names the cause, such as `rate_limited`."""

    code: str
    message: str | None = None
    retryable: bool | None = None


class Seat(Body):
    """One place on the panel, as it stands now."""

    seat: str
    provider: str
    model: str
    state: str
    attempts: int = 0
    max_attempts: int | None = None
    due_at: datetime | None = None
    reused: bool = False
    error: SeatError | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to this seat in this run."""
        return self.state in ENDED_STATES


class Usage(Body):
    """What was spent; a cost of `None` is unknown, never zero."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class Terminal(Body):
    """How the run ended."""

    state: str
    completed_at: datetime | None = None
    reason: str | None = None


class Job(Body):
    """One accepted panel request."""

    id: str
    state: str
    run: int = 1
    submitted_at: datetime | None = None
    deadline_at: datetime | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    seats: tuple[Seat, ...] = ()
    terminal: Terminal | None = None
    usage: Usage = Usage()

    @property
    def ended(self) -> bool:
        """Whether the run has reached a terminal state."""
        return self.state in ENDED_STATES

    @property
    def seats_ended(self) -> int:
        """How many seats have ended."""
        return sum(seat.ended for seat in self.seats)


class ListedSeat(Body):
    """A seat as lists show it: whom it asks, not how it stands."""

    seat: str
    provider: str
    model: str


class ListedJob(Body):
    """A job as lists show it."""

    id: str
    state: str
    run: int = 1
    submitted_at: datetime | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    seats: tuple[ListedSeat, ...] = ()


class JobPage(Body):
    """One page of the list of jobs, newest first."""

    jobs: tuple[ListedJob, ...]
    unreadable: tuple[str, ...] = ()
    next_cursor: str | None = None


class MissingSeat(Body):
    """A seat without an answer, and why."""

    seat: str
    state: str | None = None
    code: str | None = None
    reason: str | None = None
    due_at: datetime | None = None


class ReportSeat(Body):
    """One seat's answer; without `score` or `criteria` when the rubric's own schema has none."""

    seat: str
    score: float | None = None
    criteria: dict[str, float] | None = None
    rationale: str | None = None
    cost_usd: float | None = None
    model_returned: str | None = None


class Summary(Body):
    """Statistics of the `n` scores there are, of `of` seats."""

    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    stdev: float | None = None
    n: int
    of: int


class PanelWarning(Body):
    """What makes answers less comparable than they look: a changed model, one model twice."""

    code: str
    seats: tuple[str, ...] = ()
    detail: str = ""


class Report(Body):
    """The panel's answers; `missing` names the seats without one."""

    job_id: str
    run: int = 1
    complete: bool
    seats: tuple[ReportSeat, ...]
    missing: tuple[MissingSeat, ...] = ()
    warnings: tuple[PanelWarning, ...] = ()
    summary: Summary


class AttemptUsage(Body):
    """Tokens of one request, as the provider counted them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class Attempt(Body):
    """One provider request, recorded before it was sent."""

    seat: str
    number: int
    run: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: str
    http_status: int | None = None
    code: str | None = None
    provider_request_id: str | None = None
    usage: AttemptUsage | None = None
    cost_usd: float | None = None


class AttemptList(Body):
    """All attempts of a job, in all its runs."""

    attempts: tuple[Attempt, ...]


class ProblemError(Body):
    """One broken rule, and where in the body (JSON pointer)."""

    pointer: str = ""
    detail: str = ""


class Problem(Body):
    """Why the API refused (RFC 9457); `missing` comes with an incomplete report."""

    type: str = "about:blank"
    title: str
    detail: str | None = None
    errors: tuple[ProblemError, ...] = ()
    missing: tuple[MissingSeat, ...] | None = None


class LineAnswer(Body):
    """What became of one line of a batch: its job, or why it was refused."""

    line: int
    status: int
    job: Job | None = None
    problem: Problem | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "LineAnswer":
        if (self.job is None) == (self.problem is None):
            raise ValueError("a line is answered with a job or with a problem")
        return self
