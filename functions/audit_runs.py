"""The runs of a window, one by one: how each ended, and what it should have left behind.

The scan goes over the jobs by their IDs, without an order over any field, so that no document is
left out because it lacks one. What cannot be read is counted and listed as malformed.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import compress
from typing import TypeVar

from functions.audit_outputs import WindowObjects, compare_outputs, readable
from functions.core.audits import Findings, OpenRun
from functions.core.documents import (
    from_snapshot,
    job_path,
    seat_path,
    terminal_path,
)
from functions.core.endings import run_attempts, seat_outcome, total
from functions.core.errors import UnreadableRecord
from functions.core.jobs import Job, JobState, SeatRecord, SeatState, Terminal
from functions.core.money import usd
from functions.core.ports import Query, Snapshot
from functions.core.times import rfc3339
from functions.core.versions import REPAIR, RUN
from functions.core.windows import Line, is_off
from functions.incidents import escalation_seconds
from functions.paging import pages
from functions.services import Services

R = TypeVar("R", Job, Terminal)
RunName = tuple[str, int]
PAGE = 300
LATE_AFTER = timedelta(minutes=5)  # past its deadline; repair expires a run within one


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSeen:
    """A run as read: its job, and its terminal record if it has one."""

    job: Job
    run: int
    terminal: Terminal | None

    @property
    def state(self) -> str:
        """The state it is counted in. A head that claims an end without its record counts open."""
        if self.terminal is not None:
            return self.terminal.state.value
        started = self.job.state is not JobState.ACCEPTED or self.run < self.job.run
        return (JobState.RUNNING if started else JobState.ACCEPTED).value


async def pages_of_runs(
    services: Services, findings: Findings, tenant: str, window: str
) -> AsyncIterator[list[RunSeen]]:
    """Yield the runs asked for in the window, page by page: first runs, then replays.

    Raises:
        LedgerUnavailable: a page failed.
    """
    where = (("tenant", "==", tenant), ("window", "==", window))
    first_runs = Query(collection="jobs", where=where)
    async for page in pages(services.ledger, first_runs, PAGE):
        yield await read_runs(services, findings, [(found, 1) for found in page])
    replays = Query(collection="runs", where=where)
    async for page in pages(services.ledger, replays, PAGE):
        named = [found.id.rpartition(".") for found in page]
        jobs = await services.ledger.get(*(job_path(job) for job, _, _ in named))
        runs = [int(run) if run.isdigit() else 0 for _, _, run in named]
        known = [_is_known_run(found, findings) for found in page]
        of_runs = zip(jobs, runs, strict=True)
        yield await read_runs(services, findings, list(compress(of_runs, known)))


def _is_known_run(found: Snapshot, findings: Findings) -> bool:
    """Whether a replay's record is of a version that is read here; if not, it counts as open."""
    try:
        RUN.read(found.data or {}, found.path)
    except UnreadableRecord:
        findings.malformed.append(found.path)
        findings.counts[JobState.RUNNING.value] += 1
        return False
    return True


async def read_runs(
    services: Services, findings: Findings, found: Sequence[tuple[Snapshot, int]]
) -> list[RunSeen]:
    """Return the runs whose records can be read; count and list the others as malformed.

    Raises:
        LedgerUnavailable: no answer.
    """
    jobs: list[tuple[Job, int]] = []
    for snapshot, run in found:
        job = _readable(Job, snapshot, findings)
        if job is not None:
            jobs.append((job, run))
    if not jobs:
        return []
    paths = [terminal_path(job.id, run) for job, run in jobs]
    runs = []
    for (job, run), snapshot in zip(jobs, await services.ledger.get(*paths), strict=True):
        terminal = _readable(Terminal, snapshot, findings) if snapshot.exists else None
        if terminal is not None or not snapshot.exists:
            runs.append(RunSeen(job=job, run=run, terminal=terminal))
    return runs


def _readable(kind: type[R], snapshot: Snapshot, findings: Findings) -> R | None:
    try:
        record = from_snapshot(kind, snapshot)
    except UnreadableRecord:
        record = None
    if record is None:
        findings.malformed.append(snapshot.path)
        state = (snapshot.data or {}).get("state")
        known = state if isinstance(state, str) and state in findings.counts else None
        findings.counts[known or JobState.RUNNING.value] += 1
    return record


async def examine(
    services: Services,
    findings: Findings,
    objects: WindowObjects,
    runs: Sequence[RunSeen],
    now: datetime,
    *,
    again: bool = False,
) -> list[Line]:
    """Count the runs and note their gaps; return the lines of those that have ended.

    What the seats of an open run have brought is compared once, not `again` before it has ended.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: not everything could be looked at.
    """
    lines = []
    unsettled = await _seat_records(services, findings, runs)
    for seen in runs:
        findings.counts[seen.state] += 1
        if seen.run == seen.job.run and is_off(seen.job.run_window, seen.job.run_at):
            findings.off_window.append(seen.job.id)
        if seen.terminal is None:
            note_open(findings, seen, now)
            if not again:
                await _open_outputs(services, findings, objects, seen)
            continue
        purged = await compare_outputs(objects, findings, seen.job, seen.run, seen.terminal.seats)
        if (seen.job.id, seen.run) in unsettled:
            findings.open.append(OpenRun(job=seen.job.id, run=seen.run, state=seen.state))
            continue
        findings.purged += purged + (seen.job.purged_at is not None)
        lines.append(line_of(seen.terminal))
    return lines


async def _open_outputs(
    services: Services, findings: Findings, objects: WindowObjects, seen: RunSeen
) -> None:
    """Compare what the seats of a run without a terminal record have brought so far."""
    job = seen.job
    paths = [seat_path(job.id, seen.run, index) for index in range(len(job.seats))]
    found = await services.ledger.get(*paths)
    read = [readable(SeatRecord, doc, findings) for doc in found]
    records = [record for record in read if record is not None]
    outcomes = [seat_outcome(job.seats[record.index], record, None) for record in records]
    await compare_outputs(objects, findings, job, seen.run, outcomes)


def line_of(terminal: Terminal) -> Line:
    """Return what the window's seal remembers of an ended run."""
    return Line(
        job=terminal.job,
        run=terminal.run,
        state=terminal.state.value,
        decision=terminal.decision_id,
        outputs=tuple(outcome.sha256 or "" for outcome in terminal.seats),
    )


def note_open(findings: Findings, seen: RunSeen, now: datetime) -> None:
    """Note a run without a terminal record; past its time, or claiming an end, it is a gap."""
    job = seen.job
    findings.open.append(OpenRun(job=job.id, run=seen.run, state=seen.state))
    claims_end = job.state.is_terminal or seen.run < job.run
    expected_at = job.deadline_at + LATE_AFTER
    if not claims_end and now < expected_at:
        return
    findings.missing_terminal.append(job.id)
    escalate_at = expected_at + timedelta(seconds=escalation_seconds("aged_gap"))
    findings.aged.append(
        {
            "job_id": job.id,
            "run": seen.run,
            "age_seconds": round((now - job.run_at).total_seconds()),
            "owner": job.owner,
            "escalate_at": rfc3339(escalate_at),
        }
    )


async def _seat_records(
    services: Services, findings: Findings, runs: Sequence[RunSeen]
) -> set[RunName]:
    """Read the records of failed seats, which must be there, and of runs that were stopped.

    A stopped run's terminal record is older than the ends of its last calls, so its attempts are
    counted from its seats. Return the runs whose calls have not all ended: they are not settled.
    """
    ended = [(seen, seen.terminal) for seen in runs if seen.terminal is not None]
    wanted = [
        seat_path(terminal.job, terminal.run, index)
        for _, terminal in ended
        for index, outcome in enumerate(terminal.seats)
        if terminal.stop is not None or outcome.state is SeatState.FAILED
    ]
    found: dict[str, Snapshot] = {}
    for start in range(0, len(wanted), PAGE):
        some = wanted[start : start + PAGE]
        found |= {doc.path: doc for doc in await services.ledger.get(*some)}
    unsettled = set()
    for seen, terminal in ended:
        _note_failures(findings, seen.job.owner, terminal, found)
        totals = terminal.totals
        if terminal.stop is not None:
            records = _records_of(findings, terminal, found)
            if len(records) < len(terminal.seats) and _goes_on(seen):
                unsettled.add((terminal.job, terminal.run))
                continue
            totals = total(run_attempts(records))
        _add(findings, totals.requests, totals.cost_usd)
    return unsettled


def _goes_on(seen: RunSeen) -> bool:
    """Whether repair is still at a stopped run: it leaves it once all seats have their records."""
    return seen.run == seen.job.run and seen.job.check_at is not None


def _records_of(
    findings: Findings, terminal: Terminal, found: Mapping[str, Snapshot]
) -> list[SeatRecord]:
    docs = [found[seat_path(terminal.job, terminal.run, i)] for i in range(len(terminal.seats))]
    records = (readable(SeatRecord, doc, findings) for doc in docs)
    return [record for record in records if record is not None]


def _note_failures(
    findings: Findings, owner: str, terminal: Terminal, found: Mapping[str, Snapshot]
) -> None:
    for index, outcome in enumerate(terminal.seats):
        if outcome.state is SeatState.FAILED:
            doc = found[seat_path(terminal.job, terminal.run, index)]
            if doc.exists:
                readable(SeatRecord, doc, findings)
                continue
            entry = {"job_id": terminal.job, "run": terminal.run, "index": index, "owner": owner}
            findings.missing_failure.append(entry | {"seat": outcome.seat})


def _add(findings: Findings, requests: int, cost_usd: float | None) -> None:
    findings.attempts += requests
    findings.unknown_costs += cost_usd is None
    findings.known_usd = usd(findings.known_usd + (cost_usd or 0.0))


async def read_repairs(
    services: Services, findings: Findings, tenant: str, window: str
) -> list[dict[str, object]]:
    """Return the repairs on record for runs of the window, oldest first.

    Raises:
        LedgerUnavailable: no answer.
    """
    query = Query(collection="repairs", where=(("tenant", "==", tenant), ("window", "==", window)))
    repairs = []
    async for page in pages(services.ledger, query, PAGE):
        for found in page:
            if _is_repair(found):
                repairs.append(found.data or {})
            elif found.path not in findings.malformed:
                findings.malformed.append(found.path)
    repairs.sort(key=lambda repair: (repair["at"], repair["job"]))
    return [
        {
            "kind": repair["kind"],
            "job_id": repair["job"],
            "at": rfc3339(repair["at"]),
            "reason": repair["reason"],
        }
        for repair in repairs
    ]


def _is_repair(found: Snapshot) -> bool:
    try:
        data = REPAIR.read(found.data or {}, found.path)
    except UnreadableRecord:
        return False
    texts = all(isinstance(data.get(name), str) for name in ("kind", "job", "reason"))
    return texts and isinstance(data.get("at"), datetime)
