"""How seats and runs end: seat records and terminal records, each created once.

The guard of every write here is a create: the first one wins and the others are told. A terminal
record and the job's head change in one commit, so whoever creates the record moves the head.
"""

from collections.abc import Sequence
from datetime import datetime

from functions import telemetry
from functions.core.documents import (
    from_snapshot,
    job_path,
    seat_path,
    terminal_path,
    to_document,
)
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.identities import digest
from functions.core.jobs import (
    Attempt,
    Evaluation,
    Job,
    JobState,
    Output,
    Seat,
    SeatError,
    SeatOutcome,
    SeatRecord,
    SeatState,
    Terminal,
    Totals,
)
from functions.core.leases import bury, own_attempts
from functions.core.money import sum_usd
from functions.core.ports import DELETE, Create, Query, Update
from functions.leasing import Lease, commit_as_holder
from functions.outbox import announce, notification_of
from functions.services import Services
from functions.stops import stop_marker
from functions.tenant_days import commit_trued_up


def seat_record(
    job: Job,
    index: int,
    state: SeatState,
    *,
    ended_at: datetime,
    evaluation: Evaluation | None,
    output: Output | None = None,
    error: SeatError | None = None,
    reused: bool = False,
    due_at: datetime | None = None,
) -> SeatRecord:
    """Return the record of a seat's end in the job's current run."""
    attempts = own_attempts(evaluation, job.id, job.run, index)
    asked = evaluation.attempts if evaluation else ()
    names = [attempt.model_returned for attempt in asked]
    names.append(output.model_returned if output else None)
    return SeatRecord(
        run=job.run,
        index=index,
        seat=job.seats[index].seat,
        state=state,
        work_key=job.seats[index].work_key,
        started_at=attempts[0].started_at if attempts else None,
        ended_at=ended_at,
        reused=reused,
        output=output,
        error=error,
        due_at=due_at,
        attempts=attempts,
        models_returned=tuple(dict.fromkeys(name for name in names if name)),
    )


async def settle_as_holder(
    services: Services, job: Job, lease: Lease, after: Evaluation, record: SeatRecord
) -> bool:
    """End the evaluation and the seat in one commit while the lease is held; say whether it was."""
    create = Create(path=seat_path(job.id, job.run, record.index), data=to_document(record))
    return await commit_as_holder(services, lease, after, create) is not None


async def settle_seat(services: Services, job: Job, record: SeatRecord) -> bool:
    """Create a seat's record; False when the seat had ended already, which stays as it is."""
    path = seat_path(job.id, job.run, record.index)
    try:
        await services.ledger.commit(Create(path=path, data=to_document(record)))
    except WriteConflict:
        return False
    return True


async def close_if_ended(services: Services, job: Job) -> bool:
    """Close the run when all its seats have ended; say whether this call closed it.

    Safe to repeat: it counts durable seat records and the terminal record is create-only. A call of
    the run that is still in flight in this process looks itself once its seat has ended.
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


async def stop_run(services: Services, job: Job, state: JobState, reason: str) -> bool:
    """Close the run as it stands, expired or canceled; say whether this call closed it.

    A run whose seats have all ended is not stopped but closed by what they came to. Seats that have
    not ended get their records afterwards, from their deliveries or from repair, so `check_at`
    stays until all have one. A replay whose carried successes are enough by themselves had
    succeeded before it was asked for, and closes so again.
    """
    records, read_at = await read_seats(services, job)
    ended = [record for record in records if record is not None]
    if len(ended) == len(records):
        return await _close_ended(services, job, ended, read_at)
    carried, required = sum(record.carried for record in ended), job.policy.required_seats
    if carried < required:
        return await close_run(services, job, state, reason, ended, read_at, stopped=state)
    reason = f"{reason}; {carried} successes of earlier runs stand, {required} required"
    succeeded = JobState.SUCCEEDED
    return await close_run(services, job, succeeded, reason, ended, read_at, stopped=state)


async def read_seats(services: Services, job: Job) -> tuple[list[SeatRecord | None], datetime]:
    """Return the record of each seat of the current run, None where it has not ended, and when."""
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
    *,
    stopped: JobState | None = None,
) -> bool:
    """Create the run's terminal record and close the head in one commit; say whether it won.

    `stopped` says how a run was stopped whose seats have not all ended. The create is the head's
    guard too: a replay, the only write that opens a head again, needs the terminal record of the
    run before. The notification is created with it. What the run took of its tenant's day is known,
    and written in the same commit, once all seats have their records.
    """
    terminal = _terminal(job, state, reason, ended, now, stopped)
    head = {"state": state.value, "check_at": now if stopped else DELETE}
    if terminal.stopped is not None:
        head["stopped"] = terminal.stopped.value
    create = Create(path=terminal_path(job.id, job.run), data=to_document(terminal))
    update = Update(path=job_path(job.id), fields=head)
    told = notification_of(services, job, terminal)
    try:
        if stopped is not None:
            await services.ledger.commit(create, update, told, stop_marker(job, stopped, now))
        else:
            await commit_trued_up(services, job, run_attempts(ended), update, create, told)
    except WriteConflict:
        return False
    except LedgerUnavailable:
        if not await _is_own_terminal(services, job, terminal):
            return False
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


def _terminal(
    job: Job,
    state: JobState,
    reason: str,
    ended: Sequence[SeatRecord],
    now: datetime,
    stopped: JobState | None = None,
) -> Terminal:
    by_index = {record.index: record for record in ended}
    outcomes = tuple(
        seat_outcome(seat, by_index.get(index), stopped) for index, seat in enumerate(job.seats)
    )
    models = [
        {
            "provider": seat.provider,
            "requested": seat.model,
            "returned": _model_returned(by_index.get(index)),
        }
        for index, seat in enumerate(job.seats)
    ]
    return Terminal(
        job=job.id,
        tenant=job.tenant,
        run=job.run,
        window=job.run_window,
        state=state,
        reason=reason,
        completed_at=now,
        decision_id=job.decision_id,
        input_digest=digest([job.digests.facts, job.digests.rubric, job.digests.prompt]),
        models_digest=digest(models),
        policy_revision=job.policy_revision,
        seats=outcomes,
        totals=total(run_attempts(ended)),
        stopped=stopped if stopped is not state else None,
    )


def seat_outcome(seat: Seat, record: SeatRecord | None, stop: JobState | None) -> SeatOutcome:
    """Return a seat's line in a terminal record; `stop` is how its run was stopped, if it was."""
    if record is None:
        state = stopped_seat_state(stop)
        return SeatOutcome(seat=seat.seat, state=state, model_requested=seat.model)
    return SeatOutcome(
        seat=seat.seat,
        state=record.state,
        sha256=record.output.sha256 if record.output else None,
        uri=record.output.uri if record.output else None,
        generation=record.output.generation if record.output else None,
        code=record.error.code if record.error else None,
        model_requested=seat.model,
        model_returned=_model_returned(record),
    )


def stopped_seat_state(stop: JobState | None) -> SeatState:
    """Return the state of a seat that had not ended when its run was stopped."""
    return SeatState.EXPIRED if stop is JobState.EXPIRED else SeatState.CANCELED


def stopped_seat(job: Job, index: int, evaluation: Evaluation | None, now: datetime) -> SeatRecord:
    """Return the record of a seat that had not ended when its run was stopped."""
    buried = bury(evaluation, now) if evaluation else None
    return seat_record(
        job,
        index,
        stopped_seat_state(job.stop),
        ended_at=now,
        evaluation=buried,
        error=stopped_seat_error(job.stop),
    )


def stopped_seat_error(stop: JobState | None) -> SeatError:
    """Return why a seat that had not ended when its run was stopped has no answer."""
    code = "deadline_exceeded" if stop is JobState.EXPIRED else "canceled"
    return SeatError(code=code, message="the run was stopped", retryable=True)


def _model_returned(record: SeatRecord | None) -> str | None:
    return record.output.model_returned if record and record.output else None


def run_attempts(records: Sequence[SeatRecord]) -> list[Attempt]:
    """Return the attempts on the records of a run's seats."""
    return [attempt for record in records for attempt in record.attempts]


def total(attempts: Sequence[Attempt]) -> Totals:
    """Add up requests, tokens and cost; the cost is None when that of any attempt is unknown."""
    usages = [attempt.usage for attempt in attempts if attempt.usage is not None]
    return Totals(
        requests=len(attempts),
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cost_usd=sum_usd(attempt.cost_usd for attempt in attempts),
    )


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
    except (WriteConflict, LedgerUnavailable) as exc:
        telemetry.event("start not marked", job=job.id, reason=type(exc).__name__)
