"""What the interface answers about a tenant's books: audits, incidents, notifications, actions."""

from typing import Literal

from pydantic import Field

from functions.core.notifications import NotificationState
from functions.web.response_models import Count, Moment, Sha256, Shown, Window


class StateCounts(Shown):
    """How many runs are in each state; they add up to the population."""

    accepted: Count
    running: Count
    succeeded: Count
    failed: Count
    expired: Count
    canceled: Count


class AuditListed(Shown):
    """A window as lists show it."""

    window: Window
    population: Count = Field(description="How many runs were accepted in the hour.")
    complete: bool = Field(description="Whether everything was looked at, gaps or not.")
    sealed: bool = Field(description="Whether it was closed and found in order; it stays so.")
    counts: StateCounts


class AuditList(Shown):
    """Windows, newest first."""

    audits: list[AuditListed]


class MissingFailure(Shown):
    """A failed seat without its record."""

    job_id: str
    run: int
    index: Count
    owner: str
    seat: str


class MissingOutput(Shown):
    """A success whose object is gone."""

    job_id: str
    owner: str
    run: int
    seat: str
    uri: str
    generation: int
    sha256: Sha256


class DigestMismatch(MissingOutput):
    """A success whose object is not what was stored."""

    found_sha256: str | None


class AgedRun(Shown):
    """A run that is past its time and has not ended."""

    job_id: str
    run: int
    age_seconds: Count
    owner: str
    escalate_at: Moment


class RepairShown(Shown):
    """What repair did for a run."""

    kind: str
    job_id: str
    at: Moment
    reason: str


class AuditShown(AuditListed):
    """The last audit of one hour; each list shows its first hundred."""

    audited_at: Moment | None
    digest: str | None = Field(description="What the seal says of the hour's ended runs.")
    missing_terminal: list[str]
    missing_output: list[MissingOutput]
    missing_failure: list[MissingFailure]
    digest_mismatch: list[DigestMismatch]
    orphan_outputs: list[str]
    undelivered_notifications: list[str]
    malformed: list[str]
    off_window: list[str]
    purged: Count
    aged: list[AgedRun]
    repairs: list[RepairShown]
    errors: list[str]
    truncated: dict[str, Count] = Field(description="How many entries each list leaves out.")
    attempts: Count
    cost_usd: float | None
    known_cost_usd: float
    unknown_costs: Count


class IncidentMessage(Shown):
    """The message that an incident is about."""

    digest: str | None
    message_id: str | None
    subscription: str | None
    deliveries: int | None
    preview: str | None = Field(description="Its first bytes, when nobody could read it.")


class IncidentShown(Shown):
    """Something an operator must know, once per cause."""

    id: str
    kind: str
    job_id: str | None
    seat: str | None
    opened_at: Moment
    owner: str
    escalate_at: Moment
    status: Literal["open", "resolved"]
    detail: str
    note: str | None
    resolved_at: Moment | None
    resolved_by: str | None
    message: IncidentMessage | None


class IncidentPage(Shown):
    """A page of incidents, newest first."""

    incidents: list[IncidentShown]
    next_cursor: str | None = Field(description="The next page's `cursor`, null at the end.")


class DeliveryShown(Shown):
    """One try to deliver."""

    number: int
    at: Moment
    outcome: str
    reason: str | None
    http_status: int | None
    latency_seconds: float | None
    event_published: bool


class NotificationShown(Shown):
    """A notification of a run's end, and its last tries."""

    id: str = Field(description="`decision.run`, which receivers see as `webhook-id`.")
    job_id: str
    run: int
    decision_id: str
    url: str | None
    state: NotificationState
    delivered: bool
    event_published: bool
    webhook: str | None
    tries: Count
    next_at: Moment | None
    created_at: Moment
    body: str
    body_sha256: Sha256
    deliveries: list[DeliveryShown]


class ActionShown(Shown):
    """Who may act on a decision: the first holder that asked."""

    first: bool = Field(description="Whether the caller's holder is the one.")
    holder: str
    at: Moment
