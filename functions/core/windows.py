"""Windows: the hour in which runs were asked for, and what an audit knows of it. Pure.

    open --an audit after the hour--> scanned --all ended, verified, notified--> sealed

An open window is scanned as a whole by each audit. A closed one is scanned once; later audits look
only at what was not in order. A sealed one is sampled: it must not change any more.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from functions.core import versions
from functions.core.jobs import JobState

HOUR = timedelta(hours=1)
CLOSED_AFTER = timedelta(minutes=10)  # past the end of the hour; commits are long over by then
KEPT_LONGER = timedelta(days=1)  # than the records of its runs
OFF_WINDOW = timedelta(minutes=5)  # further off, a run counts in the wrong window


class Phase(StrEnum):
    """How far the audit of a window is."""

    OPEN = "open"  # runs may still be added; the first audit ten minutes past the hour moves it on
    SCANNED = "scanned"  # looked at as a whole; moved on once nothing is open any more
    SEALED = "sealed"  # final


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRef:
    """Where a full report lies in the bucket."""

    name: str
    generation: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """What the ledger holds about a window of one tenant: the last report's head.

    `view` is the report as the interface shows it, its lists cut to their first hundred.
    """

    tenant: str
    window: str
    created_at: datetime
    expire_at: datetime
    phase: Phase = Phase.OPEN
    sealed: bool = False
    audited_at: datetime | None = None
    complete: bool = False
    population: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    report: ReportRef | None = None
    digest: str | None = None
    sealed_at: datetime | None = None
    view: dict[str, Any] = field(default_factory=dict)
    v: int = versions.WINDOW.written

    @property
    def runs_expire_at(self) -> datetime:
        """When the first of its runs' records may be deleted by their age."""
        return self.expire_at - KEPT_LONGER

    @property
    def name(self) -> str:
        """What the window is called among those of all tenants: `tenant.window`."""
        return f"{self.tenant}.{self.window}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One ended run as the seal remembers it; `outputs` are the digests of its seats' outputs."""

    job: str
    run: int
    state: str
    decision: str
    outputs: tuple[str, ...]

    def text(self) -> str:
        """Return the line's one form, which the seal's digest is made of."""
        return "\t".join((self.job, str(self.run), self.state, self.decision, *self.outputs))


def read_line(text: str) -> Line:
    """Return the line that a text is.

    Raises:
        ValueError: it is none.
    """
    job, run, state, decision, *outputs = text.split("\t")
    return Line(job=job, run=int(run), state=state, decision=decision, outputs=tuple(outputs))


def chunk_data(lines: Iterable[Line]) -> bytes:
    """Return the bytes of a chunk of lines."""
    return "".join(f"{line.text()}\n" for line in lines).encode()


def seal_digest(chunk_digests: Iterable[str]) -> str:
    """Return the digest of a window: SHA-256 over the digests of its chunks, in their order."""
    return hashlib.sha256("\n".join(chunk_digests).encode()).hexdigest()


def window_start(window: str) -> datetime:
    """Return the beginning of a window."""
    return datetime.strptime(window, "%Y-%m-%dT%H").replace(tzinfo=UTC)


def is_closed(window: str, now: datetime) -> bool:
    """Whether no run can be added to the window any more."""
    return now >= window_start(window) + HOUR + CLOSED_AFTER


def is_off(window: str, run_at: datetime) -> bool:
    """Whether a run was committed too far from the window it is counted in."""
    start = window_start(window)
    return not start - OFF_WINDOW <= run_at < start + HOUR + OFF_WINDOW


def no_counts() -> dict[str, int]:
    """Return a count of 0 for every state a job can be in."""
    return {state.value: 0 for state in JobState}
