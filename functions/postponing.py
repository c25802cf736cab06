"""How a seat waits, without slot, reservation or lease: in the handler, or by a timer.

A short wait happens in the handler and leaves no trace. A longer one is left to a timer in the
ledger: the evaluation's own due time, or the next check of the seat's job.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions import telemetry
from functions.config import SETTLING_SECONDS
from functions.core.documents import evaluation_path, job_path, to_document
from functions.core.errors import WriteConflict
from functions.core.identities import shard_of
from functions.core.jobs import Evaluation, Wake
from functions.core.leases import bury
from functions.core.pauses import goes_at, place_of
from functions.core.ports import Create, Provider, Update
from functions.looking import Seen
from functions.outcome import SHORT_WAIT_SECONDS
from functions.reuse import write_unheld
from functions.services import Services

LOOK_SECONDS = 1.0  # how often a waiting delivery looks at another's lease
LEAST_WAIT_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """A seat may go at `goes_at`; `code` is why its model is paused."""

    goes_at: datetime
    code: str


async def hold_of(services: Services, seen: Seen, provider: Provider) -> Hold | None:
    """Return what holds a seat back just now, None when it may go."""
    await services.pauses.refresh()
    seat = seen.job.seats[seen.index]
    pause = services.pauses.find(provider.pause_scope, seat.model)
    if pause is None:
        return None
    moment = goes_at(
        pause,
        place=place_of(seat.work_key),
        before=seen.job.deadline_at,
        due_at=seen.evaluation.due_at if seen.evaluation else None,
    )
    return Hold(goes_at=moment, code=pause.code) if moment > services.clock.now() else None


async def waited(services: Services, wait_seconds: float, until: float) -> bool:
    """Wait in the handler; False, at once, when that is too long or no place is free.

    `until` is the end of the handler's time on the services' monotonic clock: what is left of it
    after the wait must do for a call.
    """
    left_seconds = until - services.clock.monotonic()
    enough = left_seconds > wait_seconds + call_seconds(services)
    if wait_seconds > SHORT_WAIT_SECONDS or not enough or services.inflight.closing:
        return False
    async with services.slots.waiting() as allowed:
        if allowed:
            await services.slots.wait(services.clock, max(LEAST_WAIT_SECONDS, wait_seconds))
        return allowed


def call_seconds(services: Services) -> float:
    """Return how much of a handler's time a call and its settlement may take."""
    return services.settings.provider_deadline_seconds + SETTLING_SECONDS


async def postpone(services: Services, seen: Seen, back_at: datetime) -> bool:
    """Let a timer bring the seat back at `back_at`; False when something moved: look again.

    `wake_at` of the evaluation serves one seat only; the others rely on the check of their own job.

    Raises:
        LedgerUnavailable: not certainly written; the delivery must come again.
    """
    job, evaluation = seen.job, seen.evaluation
    if evaluation is not None and evaluation.wake == own_wake(seen) and evaluation.holder is None:
        return await write_unheld(services, seen, replace(evaluation, wake_at=back_at))
    back_at = max(back_at, seen.now + timedelta(seconds=LOOK_SECONDS))
    if job.check_at is not None and job.check_at <= back_at:
        return True
    fields = {"check_at": min(back_at, job.deadline_at)}
    update = Update(path=job_path(job.id), fields=fields, if_updated_at=seen.job_update_time)
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        return False
    return True


def own_wake(seen: Seen) -> Wake:
    """Return the wake-up call of this very seat in this run."""
    return Wake(job=seen.job.id, run=seen.job.run, seat=seen.index)


async def write_due(services: Services, seen: Seen, moment: datetime) -> None:
    """Write `moment` down as the evaluation's due time, for the seat's next look and for repair.

    A seat without any attempt gets its evaluation's document now. Repair publishes exactly the
    seats whose time has come: a check of their job would bring all of them each time. A wake-up
    call that another job's seat has is moved, not taken over: the same pause holds that seat back.

    Raises:
        LedgerUnavailable: not certainly written; the delivery must come again.
    """
    job, own = seen.job, own_wake(seen)
    if seen.evaluation is None:
        await _create(services, job.tenant, job.seats[seen.index].work_key, moment, own)
        return
    state = bury(seen.evaluation, seen.now)
    wake = own if state.wake is None or state.wake_at is None else state.wake
    await write_unheld(services, seen, replace(state, due_at=moment, wake_at=moment, wake=wake))


async def _create(
    services: Services, tenant: str, work_key: str, moment: datetime, wake: Wake
) -> None:
    state = Evaluation(
        tenant=tenant,
        work_key=work_key,
        due_at=moment,
        wake_at=moment,
        wake=wake,
        shard=shard_of(work_key),
    )
    try:
        await services.ledger.commit(
            Create(path=evaluation_path(work_key), data=to_document(state))
        )
    except WriteConflict:
        telemetry.event("evaluation began meanwhile", job=wake.job, seat=wake.seat)
