"""What the API answers about the books: audits and incidents (OpenAPI: /openapi.json)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from functions.cli.answers import Body


class AuditSummary(Body):
    """One window in a list of audits."""

    window: str
    population: int
    complete: bool
    sealed: bool
    counts: dict[str, int]


class AuditList(Body):
    """The windows that were asked for, newest first."""

    audits: tuple[AuditSummary, ...] = ()


class Audit(Body):
    """The last audit of one window; lists are cut to their first hundred."""

    window: str
    audited_at: datetime | None = None
    complete: bool
    sealed: bool
    population: int
    counts: dict[str, int]
    missing_terminal: tuple[str, ...] = ()
    missing_output: tuple[dict[str, Any], ...] = ()
    missing_failure: tuple[dict[str, Any], ...] = ()
    digest_mismatch: tuple[dict[str, Any], ...] = ()
    orphan_outputs: tuple[str, ...] = ()
    undelivered_notifications: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    off_window: tuple[str, ...] = ()
    purged: int = 0
    aged: tuple[dict[str, Any], ...] = ()
    repairs: tuple[dict[str, Any], ...] = ()
    truncated: Mapping[str, int] = Field(default_factory=dict)
    attempts: int = 0
    cost_usd: float | None = None
    errors: tuple[str, ...] = ()

    @property
    def in_order(self) -> bool:
        """Whether everything was looked at and nothing is missing."""
        return self.complete and not any(items for _, items in self.gaps())

    def gaps(self) -> list[tuple[str, Sequence[Any]]]:
        """Return each kind of gap with its list."""
        names = (
            "missing_terminal",
            "missing_output",
            "missing_failure",
            "digest_mismatch",
            "orphan_outputs",
            "undelivered_notifications",
            "malformed",
            "off_window",
        )
        return [(name, getattr(self, name)) for name in names]


class AuditedWindow(Body):
    """One window in the answer of an audit that was run now."""

    tenant: str
    window: str
    population: int
    complete: bool
    sealed: bool
    gaps: int
    errors: tuple[str, ...] = ()


class AuditPass(Body):
    """What an audit came to that was run now, over all windows it looked at."""

    complete: bool
    windows: tuple[AuditedWindow, ...] = ()
    sealed: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


class Incident(Body):
    """Something an operator must know."""

    id: str
    kind: str
    job_id: str | None = None
    seat: str | None = None
    opened_at: datetime | None = None
    owner: str | None = None
    escalate_at: datetime | None = None
    status: str
    detail: str | None = None
    note: str | None = None


class IncidentPage(Body):
    """A page of incidents, newest first."""

    incidents: tuple[Incident, ...] = ()
    next_cursor: str | None = None
