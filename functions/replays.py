"""Replay: a terminal job is run again for the seats without a success.

    look -> the last run has ended, nothing that is needed is gone -> one commit -> dispatch

The commit creates the run's record and the records of the successes that are carried over, and
opens the head again under the `update_time` that was read: of two replays at once one begins a run.
Identities, inputs and policy are those that the job was accepted with; attempts, deadline and
budget are the new run's own. Earlier runs keep their records, and nothing of theirs counts here.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.acceptance import first_check
from functions.core.documents import (
    changes,
    from_snapshot,
    job_path,
    run_path,
    seat_path,
    to_document,
)
from functions.core.errors import EmpanelError, LedgerUnavailable, WriteConflict
from functions.core.identities import window_of
from functions.core.jobs import Job, JobState, SeatRecord, SeatState
from functions.core.ports import DELETE, SERVER_TIME, Create, Snapshot, Update
from functions.core.versions import RUN
from functions.dispatch import start
from functions.operator_log import log_entry
from functions.outputs import output_exists, was_purged
from functions.services import Services
from functions.settlement import read_seats
from functions.stopped_runs import commit_end, end_seats
from functions.tenant_days import commit_reserved, wanted_day

PATIENCE_SECONDS = 4.0  # a stopped run's calls are cut within two
LOOK_SECONDS = 0.25
TRIES = 20


class NotReplayable(EmpanelError):
    """The job is in no state to be replayed; the text says why."""


class ReplayGone(EmpanelError):
    """An input or an output that the new run needs is gone, or soon will be; says which."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a replay would begin: the job's next run, its open seats, and what it carries over."""

    before: Job
    after: Job
    open_seats: tuple[int, ...]
    carried: tuple[SeatRecord, ...]
    head_read: Snapshot


async def replay(services: Services, job: Job, *, by: str) -> Job:
    """Begin the next run of a job, and publish its open seats; return the job as it is then.

    `job` is as the caller found it; `by` is the name of who asked for it.

    Raises:
        NotReplayable: the job is open, or in a later run by now, or every seat has a success.
        ReplayGone: something that is needed has been deleted.
        DaySpent, TooManyOpen: the tenant has no room for the run; nothing is recorded.
        LedgerUnavailable, ObjectsUnavailable: it is not certain that the run was begun; ask again.
    """
    patient_until = services.clock.monotonic() + PATIENCE_SECONDS
    for _ in range(TRIES):
        [found] = await services.ledger.get(job_path(job.id))
        services.clock.observe(found.read_time)
        current = from_snapshot(Job, found)
        if current is None:
            raise LedgerUnavailable(f"{found.path}: the job cannot be read back")
        _check_state(current, job.run)
        if current.check_at is not None:
            await _finish_stopped(services, current, found, patient_until)
            continue
        plan = await _plan(services, current, found)
        await _check_nothing_gone(services, plan)
        async with services.open_seats.room(job.tenant, len(plan.open_seats)):
            begun = await _begin(services, plan, by)
        if begun is not None:
            await start(services, plan.after, plan.open_seats, begun)
            return plan.after
    raise LedgerUnavailable(f"{job_path(job.id)}: too much contention")


def _check_state(job: Job, seen_run: int) -> None:
    """Refuse what cannot be replayed, and a request so late that it is about the past."""
    if job.purged_at is not None:
        raise ReplayGone("the job's inputs and outputs have been purged")
    if not job.state.is_terminal:
        raise NotReplayable(f"the job is {job.state.value}: its run {job.run} has not ended")
    if job.run != seen_run:
        raise NotReplayable(f"run {job.run} was begun meanwhile, and has ended {job.state.value}")


async def _finish_stopped(
    services: Services, job: Job, found: Snapshot, patient_until: float
) -> None:
    """Do what is left of a stopped run; its last calls, being cut just now, are waited for.

    Raises:
        NotReplayable: a call has not ended yet; its process may have died, then its lease will.
    """
    ending = await end_seats(services, job)
    if ending.busy:
        if services.clock.monotonic() >= patient_until:
            raise NotReplayable(f"{ending.busy} calls of the stopped run have not ended yet")
        await services.clock.sleep(LOOK_SECONDS)
        return
    head = Update(path=found.path, fields={"check_at": DELETE}, if_updated_at=found.update_time)
    try:
        await commit_end(services, job, head)
    except WriteConflict:
        telemetry.event("stopped run finished meanwhile", job=job.id, run=job.run)


async def _plan(services: Services, job: Job, found: Snapshot) -> Plan:
    """Return what the next run would be.

    Raises:
        NotReplayable: there is nothing to be done again.
    """
    records, read_at = await read_seats(services, job)
    successes = {r.index: r for r in records if r and r.state is SeatState.SUCCEEDED}
    open_seats = tuple(index for index in range(len(job.seats)) if index not in successes)
    if not open_seats:
        raise NotReplayable("every seat has a success: there is nothing to replay")
    carried = [_carried(record, job.run + 1) for record in successes.values()]
    after = _next_run(services, job, open_seats, max(read_at, services.clock.now()))
    return Plan(
        before=job, after=after, open_seats=open_seats, carried=tuple(carried), head_read=found
    )


def _carried(record: SeatRecord, run: int) -> SeatRecord:
    """Return a success as the next run takes it over: paid for before, none of its own attempts."""
    return replace(record, run=run, carried=True, reused=True, attempts=(), started_at=None)


def _next_run(services: Services, job: Job, open_seats: Sequence[int], now: datetime) -> Job:
    """Return the job with its head in the next run; the accepted part stays as it is."""
    seats = [job.seats[index] for index in open_seats]
    return replace(
        job,
        run=job.run + 1,
        run_window=window_of(now),
        run_at=now,
        deadline_at=now + timedelta(seconds=job.policy.deadline_seconds),
        state=JobState.ACCEPTED,
        started_at=None,
        stopped=None,
        check_at=first_check(services, now, job.policy.deadline_seconds),
        check_seconds=int(services.settings.repair_seconds),
        open_seats=len(open_seats),
        day=wanted_day(services, job.tenant, job.policy, seats, now),
    )


async def _check_nothing_gone(services: Services, plan: Plan) -> None:
    """Look whether inputs and carried outputs are there, and will be while the run is of use.

    Raises:
        ReplayGone: says what is not.
        LedgerUnavailable, ObjectsUnavailable: no certain answer.
    """
    job = plan.before
    left = job.expire_at - plan.after.run_at
    if left < timedelta(days=services.settings.retention_days / 2):
        raise ReplayGone(f"the job's records expire at {job.expire_at.isoformat()}: submit it anew")
    inputs = (("facts", job.inputs.facts_object), ("rubric", job.inputs.rubric_object))
    looks = [_input_gone(services, *named) for named in inputs]
    looks += [_output_gone(services, record) for record in plan.carried]
    gone = [reason for reason in await asyncio.gather(*looks) if reason is not None]
    if gone:
        raise ReplayGone("; ".join(gone))


async def _input_gone(services: Services, what: str, name: str | None) -> str | None:
    if name is None or await services.objects.stat(name) is not None:
        return None
    return f"the {what} are gone: {services.objects.uri(name)} does not exist"


async def _output_gone(services: Services, record: SeatRecord) -> str | None:
    output = record.output
    if output is not None and await output_exists(services, output):
        return None
    how = "was purged" if output and await was_purged(services, output.uri) else "is gone"
    return f"the answer of seat {record.seat} {how}"


async def _begin(services: Services, plan: Plan, by: str) -> datetime | None:
    """Record the run; return when, None when the head has moved and must be looked at again.

    Raises:
        DaySpent, LedgerUnavailable: the run was not recorded, or not certainly.
    """
    before, after, nonce = plan.before, plan.after, services.new_id()
    await services.windows.ensure(services.clock.now(), after.tenant, after.run_window)
    head = Update(
        path=job_path(after.id),
        fields=changes(before, after) | {"run_at": SERVER_TIME},
        if_updated_at=plan.head_read.update_time,
    )
    run = Create(path=run_path(after.id, after.run), data=_run_document(services, plan, by, nonce))
    seats = [
        Create(path=seat_path(after.id, record.run, record.index), data=to_document(record))
        for record in plan.carried
    ]
    log = log_entry(
        services, tenant=after.tenant, who=by, what="replay", job=after.id, run=after.run
    )
    try:
        begun = await commit_reserved(services, after.tenant, after.day, head, run, *seats, log)
    except WriteConflict:
        return None
    except LedgerUnavailable:
        begun = await _own_run(services, after, nonce)
    services.metrics.run_accepted(replay=True)
    telemetry.event(
        "replay begun", job=after.id, run=after.run, owner=after.owner, seats=len(plan.open_seats)
    )
    return begun


async def _own_run(services: Services, after: Job, nonce: str) -> datetime:
    """Resolve an ambiguous commit by reading the run's record back.

    Raises:
        LedgerUnavailable: it is not there, or another replay's.
    """
    run, head = await services.ledger.get(run_path(after.id, after.run), job_path(after.id))
    if run.data is None or RUN.read(run.data, run.path).get("nonce") != nonce:
        raise LedgerUnavailable(f"{run.path}: the replay was not recorded")
    return head.update_time or head.read_time


def _run_document(services: Services, plan: Plan, by: str, nonce: str) -> dict[str, Any]:
    """Return the record of a run, which the audit counts in its window."""
    job = plan.after
    return {
        "v": RUN.written,
        "tenant": job.tenant,
        "window": job.run_window,
        "job": job.id,
        "run": job.run,
        "run_at": SERVER_TIME,
        "by": by,
        "nonce": nonce,
        "seats": list(plan.open_seats),
        "expire_at": job.run_at + timedelta(days=services.settings.retention_days),
    }
