"""Repair: lost work goes back through the normal door, found by timers that only open work has.

A pass reads what is due and nothing else, so its cost does not grow with history. Everything it
does is guarded as the handlers' own writes are, so two passes at once, or a pass beside live
traffic, do no harm: each gap is repaired once in effect.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.core.deliveries import next_look, was_lost
from functions.core.documents import (
    from_document,
    from_snapshot,
    job_path,
)
from functions.core.errors import LedgerUnavailable, PublishFailed, UnreadableRecord, WriteConflict
from functions.core.identities import SHARDS
from functions.core.jobs import Evaluation, Job, JobState
from functions.core.leases import is_live
from functions.core.notifications import Notification, NotificationState
from functions.core.ports import DELETE, Query, Snapshot, Update
from functions.dispatch import dispatch
from functions.incidents import open_unreadable
from functions.outbox import publish
from functions.purging import next_sweep, sweep
from functions.repairs import announced_record, repair_record
from functions.services import Services
from functions.settlement import close_if_ended, read_seats, stop_run
from functions.stopped_runs import commit_end, end_seats, evaluations_of

PAGE = 100
AT_ONCE = 16
LONGEST_CHECK_FACTOR = 15  # the check interval doubles up to this many times its first length
WAKE_AGAIN_SECONDS, LONGEST_WAKE_SECONDS = 60.0, 900.0
FAILED_AGAIN_SECONDS, UNREADABLE_AGAIN_SECONDS = 60.0, 3600.0
BUSY_AGAIN_SECONDS = 5.0  # a call of a stopped run ends within two seconds, or with its lease
LOOK_SECONDS = 2.0  # how often a pass looks while anything is open
PASS_SHARE = 0.8  # of the scheduler's period, where that is only seconds
TAIL_SECONDS = 2.0  # a pass ends so long before the next one: the scheduler never runs two at once


@dataclass(kw_only=True)
class RepairReport:
    """What one repair pass did, by kind, and each repair with its reason."""

    looks: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    repairs: list[dict[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, kind: str, job: str, reason: str) -> None:
        """Note one repair; the list keeps the first hundred, the counts all."""
        self.counts[kind] += 1
        if len(self.repairs) < PAGE:
            self.repairs.append({"kind": kind, "job_id": job, "reason": reason})
        telemetry.event("repaired", kind=kind, job=job, reason=reason)

    def view(self) -> dict[str, Any]:
        """Return the report as the scheduler's call is answered."""
        return {
            "looks": self.looks,
            "counts": dict(self.counts),
            "repairs": self.repairs,
            "errors": self.errors,
        }


async def repair(services: Services) -> RepairReport:
    """Look every few seconds for all but the end of the scheduler's period.

    A pass stays though nothing is open: a job accepted a moment later may have a retry due before
    the next pass. Until then each look is two small reads a shard.

    Raises:
        LedgerUnavailable: the ledger cannot be read; the next period tries again.
    """
    report = RepairReport()
    period = services.settings.repair_seconds
    end = services.clock.monotonic() + max(period * PASS_SHARE, period - TAIL_SECONDS)
    while True:
        if report.looks == 0 or await _anything_open(services):
            await repair_once(services, report)
        soonest = min(LOOK_SECONDS, period / 4)
        if services.inflight.closing or services.clock.monotonic() + soonest >= end:
            return report
        await services.clock.sleep(soonest)


async def repair_once(services: Services, report: RepairReport) -> None:
    """Look once at everything that is due.

    Raises:
        LedgerUnavailable: the ledger cannot be read.
    """
    report.looks += 1
    before = Counter(report.counts)
    outages = []
    for shard in range(SHARDS):
        for timer in TIMERS:
            due = await _due(services, timer, shard)
            outages += await _each(services, report, due, timer)
    services.metrics.repaired(report.counts - before)
    if outages:
        raise outages[0]


async def _anything_open(services: Services) -> bool:
    """Whether any job still has a timer, or a notification is due: two reads a shard at most."""
    for shard in range(SHARDS):
        jobs = Query(
            collection="jobs", where=(("shard", "==", shard),), order_by="check_at", limit=1
        )
        if await services.ledger.query(jobs) or await _due(services, NOTIFICATIONS, shard, limit=1):
            return True
    return False


async def _due(
    services: Services, timer: "Timer", shard: int, *, limit: int = PAGE
) -> list[Snapshot]:
    now = services.clock.now()
    query = Query(
        collection=timer.collection,
        where=(("shard", "==", shard), (timer.field, "<=", now)),
        order_by=timer.field,
        limit=limit,
    )
    return await services.ledger.query(query)


Step = Callable[[Services, RepairReport, Snapshot], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timer:
    """An indexed time that only open work has, and what is done when it has come."""

    collection: str
    field: str
    step: Step


async def _each(
    services: Services, report: RepairReport, due: Sequence[Snapshot], timer: Timer
) -> list[LedgerUnavailable]:
    """Run a repair on each record; return the outages met, which keep no other from repair."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(found: Snapshot) -> None:
        async with limit:
            await _guarded(services, report, found, timer)

    results = await asyncio.gather(*map(one, due), return_exceptions=True)
    for found, error in zip(due, results, strict=True):
        if isinstance(error, BaseException) and not isinstance(error, Exception):
            raise error
        if isinstance(error, Exception) and not isinstance(error, LedgerUnavailable):
            telemetry.error("repair failed, and not put off", exc=error, path=found.path)
            report.errors.append(f"{found.path}: {error!r}"[:300])
    return [error for error in results if isinstance(error, LedgerUnavailable)]


async def _guarded(services: Services, report: RepairReport, found: Snapshot, timer: Timer) -> None:
    """Run one repair; what goes wrong with one record keeps no other from being repaired."""
    services.clock.observe(found.read_time)
    try:
        await timer.step(services, report, found)
    except WriteConflict:
        report.counts["moved meanwhile"] += 1
    except PublishFailed as exc:
        report.errors.append(f"{found.path}: {exc}"[:300])
    except UnreadableRecord as exc:
        report.errors.append(f"{found.path}: {exc}"[:300])
        await open_unreadable(services, exc, found.path)
        await _put_off(services, found, timer, UNREADABLE_AGAIN_SECONDS)
    except LedgerUnavailable:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever it is, it must not come first for ever
        telemetry.error("repair failed", exc=exc, path=found.path)
        report.errors.append(f"{found.path}: {exc!r}"[:300])
        await _put_off(services, found, timer, FAILED_AGAIN_SECONDS)


async def _put_off(services: Services, found: Snapshot, timer: Timer, seconds: float) -> None:
    """Let a record that fails stand back for a while: a page full of them would hide others."""
    later = found.read_time + timedelta(seconds=seconds)
    try:
        await services.ledger.commit(
            Update(path=found.path, fields={timer.field: later}, if_updated_at=found.update_time)
        )
    except WriteConflict:
        telemetry.event("failing record changed", path=found.path)


async def _wake(services: Services, report: RepairReport, found: Snapshot) -> None:
    """Publish the seat whose retry is due or whose holder died.

    The timer moves on before the message is sent: when the process dies between the two, the timer
    comes again, while the other order could publish the same seat at every look.
    """
    evaluation = from_document(Evaluation, found.data or {}, found.path)
    wake = evaluation.wake
    job = await _job(services, wake.job) if wake else None
    open_run = (
        job is not None and wake is not None and job.run == wake.run and not job.state.is_terminal
    )
    again = found.read_time + timedelta(seconds=_wake_seconds(evaluation, found.read_time))
    fields: dict[str, object] = {"wake_at": again} if open_run else {"wake_at": DELETE}
    update = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    if job is None or wake is None or not open_run:
        await services.ledger.commit(update)
        return
    held = evaluation.holder is not None
    due = "its retry was due" if evaluation.attempts else "its place behind a pause had come"
    reason = "its holder's lease ran out" if held else due
    reason = f"seat {job.seats[wake.seat].seat}: {reason}"
    if held:  # a due retry is no loss
        record = repair_record(services, job, "woken", reason, found.read_time)
        await services.ledger.commit(update, record)
    else:
        await services.ledger.commit(update)
    await dispatch(services, job, [wake.seat])
    report.add("woken", job.id, reason)


def _wake_seconds(evaluation: Evaluation, now: datetime) -> float:
    """Return how long a seat is left to its message: twice the time it has waited, within limits.

    So a backlog is not published again and again.
    """
    since = evaluation.lease_until if evaluation.holder is not None else evaluation.due_at
    waited = (now - since).total_seconds() if since is not None else 0.0
    return min(max(waited, WAKE_AGAIN_SECONDS), LONGEST_WAKE_SECONDS)


async def _job(services: Services, job: str) -> Job | None:
    [found] = await services.ledger.get(job_path(job))
    return from_snapshot(Job, found)


async def _check(services: Services, report: RepairReport, found: Snapshot) -> None:
    """Do for one job what its handlers left undone."""
    job = from_document(Job, found.data or {}, found.path)
    if job.state.is_terminal:
        await _finish_stopped(services, report, job, found)
    elif found.read_time >= job.deadline_at:
        if await stop_run(services, job, JobState.EXPIRED, "the deadline passed"):
            report.add("expired", job.id, "its deadline passed")
        else:  # another was first, and has moved the head: then this is refused
            again = found.read_time + timedelta(seconds=FAILED_AGAIN_SECONDS)
            await services.ledger.commit(
                Update(path=found.path, fields={"check_at": again}, if_updated_at=found.update_time)
            )
    elif await close_if_ended(services, job):
        reason = "all its seats had ended"
        await services.ledger.commit(
            repair_record(services, job, "closed", reason, found.read_time)
        )
        report.add("closed", job.id, reason)
    else:
        await _dispatch_again(services, report, job, found)


async def _dispatch_again(
    services: Services, report: RepairReport, job: Job, found: Snapshot
) -> None:
    """Publish the open seats nobody works on, and look again after twice the time."""
    records, read_at = await read_seats(services, job)
    open_seats = [index for index, record in enumerate(records) if record is None]
    evaluations = await evaluations_of(services, job, open_seats)
    idle = [
        index for index in open_seats if not _is_waited_for(evaluations[index], job, index, read_at)
    ]
    if not idle:
        await services.ledger.commit(_next_check(services, job, found))
        return
    reason = f"nobody works on {', '.join(job.seats[index].seat for index in idle)}"
    record = repair_record(services, job, "dispatched", reason, read_at)
    await services.ledger.commit(_next_check(services, job, found), record)
    await dispatch(services, job, idle)
    report.add("dispatched", job.id, reason)


def _is_waited_for(evaluation: Evaluation | None, job: Job, index: int, now: datetime) -> bool:
    """Whether this very seat holds the lease, or has its own wake-up call ahead."""
    if evaluation is None or evaluation.wake is None:
        return False
    wake = evaluation.wake
    own = (wake.job, wake.run, wake.seat) == (job.id, job.run, index)
    ahead = evaluation.wake_at is not None and evaluation.wake_at > now
    return own and (ahead or is_live(evaluation, now))


def _next_check(services: Services, job: Job, found: Snapshot) -> Update:
    longest = int(services.settings.repair_seconds * LONGEST_CHECK_FACTOR)
    check_at = min(found.read_time + timedelta(seconds=job.check_seconds), job.deadline_at)
    fields = {"check_at": check_at, "check_seconds": min(job.check_seconds * 2, longest)}
    return Update(path=found.path, fields=fields, if_updated_at=found.update_time)


async def _finish_stopped(
    services: Services, report: RepairReport, job: Job, found: Snapshot
) -> None:
    """Give the seats of a stopped run their records, then take the job off the timer.

    A purged job stays on it until no call can bring an object any more.
    """
    ending = await end_seats(services, job)
    for index in ending.recorded:
        report.add("seat recorded", job.id, f"seat {job.seats[index].seat} of a stopped run")
    if ending.busy:
        again = found.read_time + timedelta(seconds=BUSY_AGAIN_SECONDS)
        await services.ledger.commit(
            Update(path=found.path, fields={"check_at": again}, if_updated_at=found.update_time)
        )
        return
    fields: dict[str, object] = {"check_at": DELETE}
    if job.purged_at is not None:
        if deleted := await sweep(services, job):
            report.add("purged", job.id, f"{deleted} objects of a purged job were still there")
        fields["check_at"] = next_sweep(job, found.read_time) or DELETE
    head = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    await commit_end(services, job, head)


async def _announce(services: Services, report: RepairReport, found: Snapshot) -> None:
    """Publish the notification whose next try is due, or whose sender died.

    The timer moves on before the message is sent, as for evaluations.
    """
    notification = from_document(Notification, found.data or {}, found.path)
    pending = notification.state is NotificationState.PENDING
    next_at = next_look(notification, found.read_time) if pending else DELETE
    update = Update(path=found.path, fields={"next_at": next_at}, if_updated_at=found.update_time)
    lost = was_lost(notification)
    cause = "its message or its sender was lost" if lost else "its next try was due"
    reason = f"notification {notification.id}: {cause}"
    if pending and lost:  # a due try is no loss
        record = announced_record(services, notification, reason, found.read_time)
        await services.ledger.commit(update, record)
    else:
        await services.ledger.commit(update)
    if pending:
        await publish(services, notification.id, notification.traceparent)
        report.add("announced", notification.job, reason)


NOTIFICATIONS = Timer(collection="notifications", field="next_at", step=_announce)
TIMERS = (
    Timer(collection="evaluations", field="wake_at", step=_wake),
    Timer(collection="jobs", field="check_at", step=_check),
    NOTIFICATIONS,
)
