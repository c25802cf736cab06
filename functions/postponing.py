"""What a paused model means for one seat: it waits, without attempt, slot, reservation or lease."""

from dataclasses import dataclass, replace
from datetime import datetime

from functions import telemetry
from functions.core.documents import evaluation_path, to_document
from functions.core.errors import WriteConflict
from functions.core.identities import shard_of
from functions.core.jobs import Evaluation, Wake
from functions.core.leases import bury
from functions.core.pauses import goes_at, place_of
from functions.core.ports import Create, Provider
from functions.looking import Seen
from functions.reuse import write_unheld
from functions.services import Services


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


async def put_off(services: Services, seen: Seen, moment: datetime) -> None:
    """Write `moment` down as the evaluation's due time, for the seat's next look and for repair.

    A seat without any attempt gets its evaluation's document now. Repair publishes exactly the
    seats whose time has come: a check of their job would bring all of them each time. A wake-up
    call that another job's seat has is moved, not taken over: the same pause holds that seat back.

    Raises:
        LedgerUnavailable: not certainly written; the delivery must come again.
    """
    job = seen.job
    own = Wake(job=job.id, run=job.run, seat=seen.index)
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
