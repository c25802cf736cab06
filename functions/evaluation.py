"""One delivery of one seat: look, reuse, or claim and buy; then close.

Each pass looks first and buys last. A pass ends the delivery, or the next one looks again. Nothing
here acknowledges: the outcome is mapped to a status in one table (`functions.web.push`).
"""

from dataclasses import replace
from datetime import datetime
from enum import Enum

from functions import telemetry
from functions.budgeting import refund_unsent, reserve_attempt, true_up
from functions.core.endings import seat_record, stopped_seat
from functions.core.errors import ObjectMissing, UnreadableRecord
from functions.core.jobs import (
    Evaluation,
    Job,
    JobState,
    Outcome,
    SeatError,
    SeatRecord,
    SeatState,
)
from functions.core.leases import (
    Claim,
    Claimant,
    Claimed,
    Exhausted,
    Held,
    NotDue,
    bury,
    claim,
    under_way,
)
from functions.core.ports import Provider
from functions.core.prompts import PROMPT_DIGEST
from functions.dispatch import SeatMessage, dispatch
from functions.incidents import open_incident
from functions.inputs import Question, read_question
from functions.leasing import Granted, try_claim
from functions.looking import Seen, peek
from functions.postponing import (
    LOOK_SECONDS,
    Hold,
    call_seconds,
    hold_of,
    own_wake,
    postpone,
    waited,
    write_due,
)
from functions.purchase import buy
from functions.reuse import Look, settle_without_call, write_unheld
from functions.services import Services
from functions.settlement import close_if_ended, settle_seat, stop_run

LEAST_CALL_SECONDS = 0.25  # closer to the deadline nothing is claimed any more
PAUSED = "rate_limited"  # the code of a seat that another one's pause held back
CHANGED = "provider, endpoint or prompt template are not those the job was accepted with"


class Delivery(Enum):
    """What came of a delivery; the ack table gives each its status."""

    ENDED = "ended"  # the seat has its record, or its run is over
    DEFERRED = "deferred"  # a timer in the ledger will bring it back
    REPUBLISHED = "republished"  # a fresh message was published
    UNKNOWN_SEAT = "unknown_seat"  # no such job or seat


async def evaluate(services: Services, message: SeatMessage, *, until: float) -> Delivery:
    """Bring one seat to its end, or leave it where a timer or a message brings it back.

    `until` is the end of the handler's time on the services' monotonic clock. Safe to repeat and to
    run twice at once: every write is guarded.

    Raises:
        LedgerUnavailable, ObjectsUnavailable, PublishFailed: the delivery must come again.
        UnreadableRecord: a stored document cannot be read.
    """
    while True:
        seen = await peek(services, message)
        if seen is None:
            return Delivery.UNKNOWN_SEAT
        if message.run > seen.job.run:
            return Delivery.UNKNOWN_SEAT
        if message.run < seen.job.run:
            return Delivery.ENDED
        delivery = await _pass(services, seen, until)
        if delivery is not None:
            return delivery
        if services.clock.monotonic() >= until:
            return await _publish_afresh(services, seen)


async def end_if_spent(services: Services, message: SeatMessage) -> Delivery:
    """End a seat whose run may spend nothing more on it; buy nothing, publish nothing.

    `DEFERRED` means that it may still go on: its timers bring it back.

    Raises:
        LedgerUnavailable: no certain answer.
        UnreadableRecord: a stored document cannot be read.
    """
    seen = await peek(services, message)
    if seen is None or message.run > seen.job.run:
        return Delivery.UNKNOWN_SEAT
    if message.run < seen.job.run or seen.ended or seen.job.state.is_terminal:
        return Delivery.ENDED
    found = claim(seen.evaluation, now=seen.now, claimant=_claimant(services, seen))
    if isinstance(found, Exhausted):
        return await _fail_exhausted(services, seen, found)
    return Delivery.DEFERRED


async def _pass(services: Services, seen: Seen, until: float) -> Delivery | None:
    """Do what this look calls for; None means look again."""
    job = seen.job
    if job.state.is_terminal:
        return await _leave_stopped(services, seen)
    if seen.ended:
        return await _ended(services, seen)
    if seen.now >= job.deadline_at:
        if not await stop_run(services, job, JobState.EXPIRED, "the deadline passed"):
            await services.slots.wait(services.clock, LOOK_SECONDS)
        return None
    left_seconds = (job.deadline_at - seen.now).total_seconds()
    if left_seconds <= LEAST_CALL_SECONDS:
        await services.clock.sleep(left_seconds)
        return None
    look = await settle_without_call(services, seen)
    if look is Look.CHANGED:
        return None
    if look is Look.SETTLED:
        return await _ended(services, seen)
    if look is Look.HELD and seen.evaluation is not None and seen.evaluation.lease_until:
        held = Held(until=seen.evaluation.lease_until)
        return await _not_granted(services, seen, held, until)
    claimant = _claimant(services, seen)
    expected = claim(seen.evaluation, now=seen.now, claimant=claimant)
    if not isinstance(expected, Claimed):
        return await _not_granted(services, seen, expected, until)
    provider = services.providers.get(job.seats[seen.index].provider)
    if provider is None or not _same_identity(job, seen.index, provider):
        return await _fail(services, seen, "identity_changed", CHANGED)
    if (hold := await hold_of(services, seen, provider)) is not None:
        return await _hold_back(services, seen, hold, until)
    try:
        question = await read_question(services, job, seen.index)
    except (ObjectMissing, UnreadableRecord) as exc:
        await open_incident(services, "input_missing", job.id, job=job, detail=str(exc))
        return await _fail(services, seen, "identity_changed", str(exc))
    return await _claim_and_buy(services, seen, provider, question, until)


async def _ended(services: Services, seen: Seen) -> Delivery:
    """Finish a seat that ended without a call of this pass: what it reserved is free again."""
    await refund_unsent(services, seen.job, seen.index)
    await close_if_ended(services, seen.job)
    return Delivery.ENDED


def _same_identity(job: Job, index: int, provider: Provider) -> bool:
    """Whether a call now would still answer the question the work key names."""
    return provider.endpoint == job.seats[index].endpoint and job.digests.prompt == PROMPT_DIGEST


async def _fail(services: Services, seen: Seen, code: str, reason: str) -> Delivery:
    """End the seat for a reason that no retry can mend."""
    error = SeatError(code=code, message=reason, retryable=False)
    await settle_seat(services, seen.job, _record(seen, SeatState.FAILED, error))
    return await _ended(services, seen)


async def _leave_stopped(services: Services, seen: Seen) -> Delivery:
    """Give a seat of a stopped run its record, unless its own call is still under way."""
    job, evaluation = seen.job, seen.evaluation
    if job.stop is None:
        return Delivery.ENDED
    if not under_way(evaluation, job.id, job.run, seen.index, seen.now):
        await settle_seat(services, job, stopped_seat(job, seen.index, evaluation, seen.now))
    return Delivery.ENDED


def _record(seen: Seen, state: SeatState, error: SeatError) -> SeatRecord:
    """Return the record of a seat that ends without a call of its own now."""
    evaluation = bury(seen.evaluation, seen.now) if seen.evaluation else None
    return seat_record(
        seen.job, seen.index, state, ended_at=seen.now, evaluation=evaluation, error=error
    )


async def _claim_and_buy(
    services: Services, seen: Seen, provider: Provider, question: Question, until: float
) -> Delivery | None:
    """Take a slot, then the lease, then call: no lease burns in a queue.

    A shutdown, or the job's deadline, may come while a delivery stands in a queue: both are looked
    at again before the claim.
    """
    left_seconds = until - services.clock.monotonic()
    if services.inflight.closing or left_seconds < services.settings.provider_deadline_seconds:
        return await _publish_afresh(services, seen)
    patience = left_seconds - call_seconds(services)
    queued_at = services.clock.monotonic()
    async with services.slots.provider(provider.name, patience) as free:
        waited_seconds = services.clock.monotonic() - queued_at
        services.metrics.slot_waited(waited_seconds, provider.name, free=free)
        if not free:
            return await _publish_afresh(services, seen)
        if await hold_of(services, seen, provider) is not None:  # paused while it stood in a queue
            return None
        if (no_room := await reserve_attempt(services, seen)) is not None:
            services.metrics.budget_refused("run")
            return await _fail(services, seen, "budget_exhausted", no_room)
        async with services.slots.claiming():
            if services.inflight.closing:
                return await _publish_afresh(services, seen)
            if services.clock.now() >= seen.job.deadline_at:
                return None
            claimed = await try_claim(services, seen, _claimant(services, seen))
        if isinstance(claimed, Granted):
            _time_the_queue(services, seen, claimed)
            ended = await buy(services, seen, claimed.lease, provider, question)
            await true_up(services, seen.job, seen.index)
            if ended:
                await close_if_ended(services, seen.job)
                return Delivery.ENDED
            return None
    return await _not_granted(services, seen, claimed, until)


def _time_the_queue(services: Services, seen: Seen, granted: Granted) -> None:
    """Measure how long the message of a seat's first attempt was on its way, queues included."""
    if seen.published_at is not None and granted.lease.attempt.number == 1:
        waited_for = granted.lease.claimed_at - seen.published_at
        services.metrics.queue_waited(waited_for.total_seconds())


def _claimant(services: Services, seen: Seen) -> Claimant:
    job = seen.job
    return Claimant(
        job=job.id,
        run=job.run,
        seat=seen.index,
        tenant=job.tenant,
        work_key=job.seats[seen.index].work_key,
        window=job.run_window,
        holder=services.new_id(),
        lease_seconds=services.settings.lease_seconds,
        run_at=job.run_at,
        max_attempts=job.policy.max_attempts,
        reuse_since=seen.reuse_since,
        traceparent=services.tracing.own_traceparent(),
    )


async def _not_granted(
    services: Services, seen: Seen, refused: Claim, until: float
) -> Delivery | None:
    """Act on a claim that was not granted; closed and reusable ones are seen by the next look."""
    if isinstance(refused, Exhausted):
        return await _fail_exhausted(services, seen, refused)
    if isinstance(refused, Held):
        wait_seconds = min(LOOK_SECONDS, (refused.until - seen.now).total_seconds())
        wait_seconds *= 1 + services.jitter()  # those who wait together come back apart
        return await _wait(services, seen, wait_seconds, refused.until, until)
    if isinstance(refused, NotDue):
        if refused.due_at >= seen.job.deadline_at:
            code = _code_of_wait(refused.evaluation)
            return await _fail_due_too_late(services, seen, refused.due_at, code)
        wait_seconds = (refused.due_at - seen.now).total_seconds()
        return await _wait(services, seen, wait_seconds, refused.due_at, until)
    return None


async def _fail_exhausted(services: Services, seen: Seen, refused: Exhausted) -> Delivery:
    """End the seat; the evaluation's dead attempt, if any, ends `unknown`.

    A wake-up call of this seat is over; one of another job's seat stays.
    """
    after = bury(refused.evaluation, seen.now)
    if after.wake == own_wake(seen):
        after = replace(after, wake_at=None, wake=None)
    if after != seen.evaluation:
        await write_unheld(services, seen, after)
    record = replace(_record(seen, SeatState.FAILED, refused.error), due_at=_free_again(after))
    await settle_seat(services, seen.job, record)
    return await _ended(services, seen)


def _free_again(evaluation: Evaluation) -> datetime | None:
    """Return when the quota is free again that the last attempt found used up, where known."""
    return evaluation.attempts[-1].until if evaluation.attempts else None


async def _hold_back(services: Services, seen: Seen, hold: Hold, until: float) -> Delivery | None:
    """Let a seat wait while its model is paused; a short wait in the handler leaves no trace.

    A longer one becomes the evaluation's due time, and the next look finds the seat not due.
    """
    if hold.goes_at >= seen.job.deadline_at:
        return await _fail_due_too_late(services, seen, hold.goes_at, hold.code)
    wait_seconds = (hold.goes_at - services.clock.now()).total_seconds()
    if not await waited(services, wait_seconds, until):
        await write_due(services, seen, hold.goes_at)
    return None


def _code_of_wait(evaluation: Evaluation) -> str:
    """Return why an evaluation is not due: what its last attempt ended with, or a pause."""
    last = evaluation.attempts[-1] if evaluation.attempts else None
    if last is None or last.outcome is Outcome.SUCCEEDED:
        return PAUSED
    return last.code or "attempts_exhausted"


async def _fail_due_too_late(
    services: Services, seen: Seen, due_at: datetime, code: str
) -> Delivery:
    """End a seat at once when the evaluation may be asked again only after the job's deadline."""
    message = "the next try is due after the job's deadline"
    error = SeatError(code=code, message=message, retryable=True)
    record = replace(_record(seen, SeatState.FAILED, error), due_at=due_at)
    await settle_seat(services, seen.job, record)
    return await _ended(services, seen)


async def _wait(
    services: Services, seen: Seen, wait_seconds: float, back_at: datetime, until: float
) -> Delivery | None:
    """Wait in the handler when that is short and a place is free, else leave it to a timer."""
    if await waited(services, wait_seconds, until):
        return None
    return Delivery.DEFERRED if await postpone(services, seen, back_at) else None


async def _publish_afresh(services: Services, seen: Seen) -> Delivery:
    """Hand the seat to another instance or a later moment through the normal door."""
    await dispatch(services, seen.job, [seen.index])
    seat = seen.job.seats[seen.index].seat
    telemetry.event("published afresh", job=seen.job.id, seat=seat, owner=seen.job.owner)
    return Delivery.REPUBLISHED
