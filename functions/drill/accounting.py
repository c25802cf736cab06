"""Whether the books tell what happened: what was promised against what was seen. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

ENDED = frozenset({"succeeded", "failed", "expired", "canceled"})
DELIVERED = frozenset({"delivered", "gone"})
PROVIDER_TROUBLE = frozenset(
    {"retryable", "invalid_output"}
)  # no drill promises that there is none


@dataclass(frozen=True, order=True, kw_only=True, slots=True)
class Gap:
    """Something the audit lists as missing: its list, and what the entry names."""

    kind: str
    name: str


@dataclass(frozen=True, order=True, kw_only=True, slots=True)
class Incident:
    """An incident's kind and job; `id` and `status` are not part of what is promised."""

    kind: str
    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One promise, whether it was kept, and what was seen instead."""

    promise: str
    kept: bool
    seen: str = ""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What must be found after one fault.

    `attempts` are the outcomes of each job's attempts, exactly, a provider's own trouble aside.
    `found` must be in the first audit,
    unless a repair of the job was faster. `left` and `incidents` are what stays open, exactly.
    `repairs` are the kinds that must be on record for each job; a repair more is no fault.
    """

    states: Mapping[str, str]
    attempts: Mapping[str, Mapping[str, int]]
    found: Mapping[str, frozenset[Gap]] = field(default_factory=dict)
    left: frozenset[Gap] = frozenset()
    repairs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    incidents: frozenset[Incident] = frozenset()
    incomplete_reports: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Books:
    """What the interfaces say of a drill's jobs at one time; `windows` are whole audit reports."""

    windows: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[str, Mapping[str, Any]]
    attempts: Mapping[str, Sequence[str]]
    gaps: frozenset[Gap]
    repairs: Sequence[Mapping[str, Any]]
    incidents: Sequence[Mapping[str, Any]]
    reports: Mapping[str, bool]
    notifications: Mapping[str, str]

    @property
    def open_incidents(self) -> frozenset[Incident]:
        """The incidents that nobody has answered."""
        return frozenset(
            Incident(kind=incident["kind"], job=incident["job_id"] or "")
            for incident in self.incidents
            if incident["status"] == "open"
        )


def account(promise: Promise, first: Books, last: Books) -> list[Check]:
    """Compare what was promised with the books before and after repair."""
    return [
        *_windows(first, "before repair"),
        *_windows(last, "after repair"),
        *(_same(f"{job} ends {state}", state, last.jobs[job]["state"])
          for job, state in promise.states.items()),
        *(_same(f"the attempts of {job} are all on record, and no more",
                dict(outcomes), _outcomes(last.attempts[job]))
          for job, outcomes in promise.attempts.items()),
        *(_found(gap, job, first, last)
          for job, gaps in promise.found.items() for gap in sorted(gaps)),
        _same("the audit lists what is missing, and nothing else",
              sorted(promise.left), sorted(last.gaps)),
        *(_repaired(job, kind, last)
          for job, kinds in promise.repairs.items() for kind in sorted(kinds)),
        _same("the open incidents are those of the fault",
              sorted(promise.incidents), sorted(last.open_incidents)),
        *(_same(f"the report of {job} is complete only if no answer is missing",
                job not in promise.incomplete_reports, complete)
          for job, complete in last.reports.items()),
        *(Check(promise=f"notification {name} is delivered", kept=state in DELIVERED, seen=state)
          for name, state in last.notifications.items()),
    ]  # fmt: skip


def _outcomes(attempts: Iterable[str]) -> dict[str, int]:
    return dict(Counter(outcome for outcome in attempts if outcome not in PROVIDER_TROUBLE))


def _windows(books: Books, when: str) -> Iterable[Check]:
    """An audit that has not looked at everything, or whose counts do not add up, proves nothing."""
    for name, report in books.windows.items():
        errors = "; ".join(report["errors"])
        yield Check(
            promise=f"the audit of {name} {when} looked at everything",
            kept=bool(report["complete"]),
            seen=errors,
        )
        counted, population = sum(report["counts"].values()), report["population"]
        own = sum(job["window"] == name for job in books.jobs.values())
        yield Check(
            promise=f"the states in {name} {when} add up to the accepted runs",
            kept=counted == population >= own,
            seen=f"{counted} counted of {population}",
        )


def _found(gap: Gap, job: str, first: Books, last: Books) -> Check:
    """A gap is in the first audit, or its repair came before it."""
    promise = f"the audit finds {gap.kind} {gap.name}, unless repair was faster"
    repaired = [_time(repair["at"]) for repair in last.repairs if repair["job_id"] == job]
    audited = max(_time(report["audited_at"]) for report in first.windows.values())
    kept = gap in first.gaps or any(at <= audited for at in repaired)
    return Check(promise=promise, kept=kept, seen=f"first audit: {sorted(first.gaps)}")


def _repaired(job: str, kind: str, last: Books) -> Check:
    kinds = sorted({repair["kind"] for repair in last.repairs if repair["job_id"] == job})
    return Check(
        promise=f"repair '{kind}' of {job} is on record", kept=kind in kinds, seen=", ".join(kinds)
    )


def _same(promise: str, expected: Any, seen: Any) -> Check:
    return Check(promise=promise, kept=expected == seen, seen=f"{seen}, not {expected}")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
