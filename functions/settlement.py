"""How seats and runs end: seat records and terminal records, each created once.

The guard of every write here is a create: the first one wins and the others are told. A terminal
record and the job's head change in one commit, so whoever creates the record moves the head.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from functions import telemetry
from functions.core.documents import (
    from_snapshot,
    job_path,
    seat_path,
    terminal_path,
    to_document,
)
from functions.core.endings import run_attempts, terminal_record
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.jobs import Evaluation, Job, JobState, SeatRecord, SeatState, Terminal
from functions.core.ports import DELETE, Create, Query, Update, Write
from functions.leasing import Lease, commit_as_holder
from functions.outbox import announce, notification_of
from functions.services import Services
from functions.stops import stop_marker
from functions.tenant_days import commit_trued_up


async def settle_as_holder(
    services: Services, job: Job, lease: Lease, after: Evaluation, record: SeatRecord
) -> bool:
    """End the evaluation and the seat in one commit while the lease is held; say whether it was.

    Raises:
        LedgerUnavailable: still without a certain answer after several tries.
    """
    create = Create(path=seat_path(job.id, job.run, record.index), data=to_document(record))
    written = await commit_as_holder(services, lease, after, create)
    if written is not None and written.seat_recorded:
        services.metrics.seat_ended(record)
    return written is not None


async def settle_seat(services: Services, job: Job, record: SeatRecord) -> bool:
    """Create a seat's record; False when the seat had ended already, which stays as it is.

    Raises:
        LedgerUnavailable: it is not certain that the record is there; safe to repeat.
    """
    path = seat_path(job.id, job.run, record.index)
    try:
        await services.ledger.commit(Create(path=path, data=to_document(record)))
    except WriteConflict:
        return False
    services.metrics.seat_ended(record)
    return True


async def close_if_ended(services: Services, job: Job) -> bool:
    """Close the run when all its seats have ended; say whether this call closed it.

    Safe to repeat: it counts durable seat records and the terminal record is create-only. A call of
    the run that is still in flight in this process looks itself once its seat has ended.

    Raises:
        LedgerUnavailable: not certainly closed; repair closes a run whose seats have all ended.
        UnreadableRecord: a seat's record cannot be read.
    """
    if services.inflight.works_for(job.id, job.run):
        return False
    seats = Query(collection=f"{job_path(job.id)}/seats", where=(("run", "==", job.run),))
    if await services.ledger.count(seats) < len(job.seats):
        return False
    records, read_at = await read_seats(services, job)
    ended = [record for record in records if record is not None]
    return len(ended) == len(records) and await _close_ended(services, job, ended, read_at)


async def _close_ended(
    services: Services, job: Job, ended: Sequence[SeatRecord], now: datetime
) -> bool:
    succeeded = sum(record.state is SeatState.SUCCEEDED for record in ended)
    enough = succeeded >= job.policy.required_seats
    state = JobState.SUCCEEDED if enough else JobState.FAILED
    reason = f"{succeeded} of {len(ended)} seats succeeded, {job.policy.required_seats} required"
    return await close_run(services, job, state, reason, ended, now)


async def stop_run(
    services: Services, job: Job, state: JobState, reason: str, *others: Write
) -> bool:
    """Close the run as it stands, expired or canceled; say whether this call closed it.

    A run whose seats have all ended is not stopped but closed by what they came to. Seats that have
    not ended get their records afterwards, from their deliveries or from repair, so `check_at`
    stays until all have one. A replay whose carried successes are enough by themselves had
    succeeded before it was asked for, and closes so again. `others` go into the commit that stops.

    Raises:
        LedgerUnavailable: not certainly closed; ask again.
        UnreadableRecord: a seat's record cannot be read.
    """
    records, read_at = await read_seats(services, job)
    ended = [record for record in records if record is not None]
    if len(ended) == len(records):
        return await _close_ended(services, job, ended, read_at)
    carried, required = sum(record.carried for record in ended), job.policy.required_seats
    if carried < required:
        return await close_run(services, job, state, reason, ended, read_at, *others, stopped=state)
    reason = f"{reason}; {carried} successes of earlier runs stand, {required} required"
    succeeded = JobState.SUCCEEDED
    return await close_run(services, job, succeeded, reason, ended, read_at, *others, stopped=state)


async def read_seats(services: Services, job: Job) -> tuple[list[SeatRecord | None], datetime]:
    """Return the record of each seat of the current run, None where it has not ended, and when.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: a record cannot be read.
    """
    paths = [seat_path(job.id, job.run, index) for index in range(len(job.seats))]
    snapshots = await services.ledger.get(*paths)
    return [from_snapshot(SeatRecord, found) for found in snapshots], snapshots[0].read_time


async def close_run(
    services: Services,
    job: Job,
    state: JobState,
    reason: str,
    ended: Sequence[SeatRecord],
    now: datetime,
    *others: Write,
    stopped: JobState | None = None,
) -> bool:
    """Create the run's terminal record and close the head in one commit; say whether it won.

    `stopped` says how a run was stopped whose seats have not all ended. The create is the head's
    guard too: a replay, the only write that opens a head again, needs the terminal record of the
    run before. The notification is created with it. What the run took of its tenant's day is known,
    and written in the same commit, once all seats have their records.

    Raises:
        LedgerUnavailable: the commit was not applied; it may be tried again.
    """
    terminal = terminal_record(job, state, reason, ended, now, stopped)
    head: dict[str, Any] = {"state": state.value, "open_seats": DELETE}
    head["check_at"] = now if stopped else DELETE
    if terminal.stopped is not None:
        head["stopped"] = terminal.stopped.value
    create = Create(path=terminal_path(job.id, job.run), data=to_document(terminal))
    update = Update(path=job_path(job.id), fields=head)
    told = notification_of(services, job, terminal)
    try:
        if stopped is not None:
            marker = stop_marker(job, stopped, now)
            await services.ledger.commit(create, update, told, marker, *others)
        else:
            attempts = run_attempts(ended)
            await commit_trued_up(services, job, attempts, update, create, told, *others)
    except WriteConflict:
        return False
    except LedgerUnavailable:
        if not await _is_own_terminal(services, job, terminal):
            return False
    services.metrics.run_ended(state.value)
    await announce(services, job, terminal)
    telemetry.event(
        "run closed", job=job.id, run=job.run, state=state.value, owner=job.owner, reason=reason
    )
    return True


async def _is_own_terminal(services: Services, job: Job, mine: Terminal) -> bool:
    """Resolve an ambiguous close by reading back.

    Raises:
        LedgerUnavailable: the record is not there: the close may be tried again.
    """
    [found] = await services.ledger.get(terminal_path(job.id, job.run))
    if (terminal := from_snapshot(Terminal, found)) is None:
        raise LedgerUnavailable(f"{found.path}: the close was not applied")
    return terminal == mine


async def mark_running(services: Services, job: Job, update_time: datetime) -> None:
    """Move an accepted job to running; best effort, since a call must not wait for it.

    A conflict means that another seat was first or that a timer moved. The precondition keeps it
    from touching a closed head. What a reader sees of a job does not hang on it: a job with an
    attempt is running (`functions.statuses`).
    """
    if job.state is not JobState.ACCEPTED:
        return
    fields = {"state": JobState.RUNNING.value, "started_at": services.clock.now()}
    update = Update(path=job_path(job.id), fields=fields, if_updated_at=update_time)
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        return
    except LedgerUnavailable as exc:
        telemetry.warning("start not marked", job=job.id, owner=job.owner, error=str(exc)[:300])
