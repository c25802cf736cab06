"""What came of an attempt, written by its holder: a success, a retry, a failure, or a cut.

Each function says whether the seat has its record now. Who has lost the lease writes nothing; a
valid answer of theirs lies in the bucket, where the next look finds it.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions import telemetry
from functions.calling import LEASE_LOST, Cut
from functions.core.costs import answer_cost_usd, failure_cost_usd
from functions.core.endings import seat_record
from functions.core.jobs import (
    Attempt,
    Evaluation,
    Job,
    Outcome,
    SeatError,
    SeatRecord,
    SeatState,
)
from functions.core.leases import INTERRUPTED, attempts_since, end_attempt, released
from functions.core.model_identity import alias_of
from functions.core.pauses import Pause, goes_at, pause_after, place_of
from functions.core.retries import RetryDecision, decide, is_retryable
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.leasing import Lease, commit_as_holder, give_back
from functions.looking import Seen
from functions.outputs import StoredAnswer
from functions.services import Services
from functions.settlement import settle_as_holder

SHORT_WAIT_SECONDS = 10.0  # retries due within this are waited for in the handler
REPAIR_HEAD_START_SECONDS = 10.0  # how long repair leaves a short wait to the handler that waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Bought:
    """A validated answer, stored; `answer` is what the provider sent."""

    answer: ProviderAnswer
    stored: StoredAnswer


@dataclass(frozen=True, kw_only=True, slots=True)
class NotStored:
    """A valid answer that the bucket did not take; it may have to be bought again."""

    answer: ProviderAnswer
    reason: str


Result = Bought | NotStored | CallFailure | Cut


async def record(services: Services, seen: Seen, lease: Lease, result: Result) -> bool:
    """Write the end of the attempt, as the holder; say whether the seat has its record now."""
    settled = False
    if isinstance(result, Bought):
        settled = await _record_success(services, seen, lease, result)
        await services.sightings.note(alias_of(seen.job, seen.index), result.answer.model_returned)
    elif isinstance(result, Cut):
        await _record_cut(services, lease, result)
    elif isinstance(result, NotStored):
        await _record_not_stored(services, seen, lease, result)
    else:
        pause = _note_pause(services, seen, result)
        settled = await _record_failure(services, seen, lease, result, pause)
        if pause is not None:
            await services.pauses.tell(pause)
    telemetry.event(
        "attempt ended",
        job=seen.job.id,
        seat=seen.job.seats[seen.index].seat,
        run=lease.attempt.run,
        attempt=lease.attempt.number,
        holder=lease.attempt.holder,
        token=lease.attempt.token,
        result=type(result).__name__,
        code=getattr(result, "code", None),
        settled=settled,
        owner=seen.job.owner,
    )
    return settled


async def _record_success(services: Services, seen: Seen, lease: Lease, bought: Bought) -> bool:
    answer, output = bought.answer, bought.stored.output
    ended = replace(
        lease.attempt,
        outcome=Outcome.SUCCEEDED,
        ended_at=services.clock.now(),
        http_status=answer.http_status,
        provider_request_id=answer.request_id,
        model_returned=answer.model_returned,
        usage=answer.usage,
        cost_usd=_answer_cost(services, seen, lease, answer),
    )
    after = replace(released(end_attempt(lease.evaluation, ended)), output=output)
    record = _seat_end(services, seen, after, SeatState.SUCCEEDED, output_of=after)
    return await settle_as_holder(services, seen.job, lease, after, record)


def _note_pause(services: Services, seen: Seen, failure: CallFailure) -> Pause | None:
    """Hold this process's seats back when the failure concerns them too; return the pause."""
    seat = seen.job.seats[seen.index]
    provider = services.providers.get(seat.provider)
    if provider is None:
        return None
    pause = pause_after(
        failure, scope=provider.pause_scope, model=seat.model, now=services.clock.now()
    )
    return services.pauses.note(pause) if pause is not None else None


async def _record_failure(
    services: Services, seen: Seen, lease: Lease, failure: CallFailure, pause: Pause | None
) -> bool:
    """Write a failed attempt: a retry with its due time, or the end of the seat.

    A retry that would come before a pause has ended takes its place behind it at once.
    """
    job, now = seen.job, services.clock.now()
    decision = _decide(services, job, lease.evaluation, failure, now)
    due_at = _due_at(now, failure, decision)
    if pause is not None and due_at is not None:
        place = place_of(lease.evaluation.work_key)
        due_at = goes_at(pause, place=place, before=job.deadline_at, due_at=due_at)
    cost_usd = failure_cost_usd(services.prices, job.seats[seen.index], lease.attempt, failure)
    ended = replace(_failed(lease.attempt, failure, decision, now), cost_usd=cost_usd)
    state = end_attempt(lease.evaluation, ended)
    if decision.retry and (due_at is None or due_at < job.deadline_at):
        waiting = released(state, due_at=due_at or now)
        if decision.wait_seconds <= SHORT_WAIT_SECONDS:
            head_start = timedelta(seconds=REPAIR_HEAD_START_SECONDS)
            waiting = replace(waiting, wake_at=(due_at or now) + head_start)
        await commit_as_holder(services, lease, waiting)
        return False
    after = replace(released(state, due_at=due_at), wake_at=None, wake=None)
    error = _seat_error(failure, decision)
    record = _seat_end(services, seen, after, SeatState.FAILED, error=error)
    record = replace(record, due_at=due_at if decision.retry else decision.until)
    return await settle_as_holder(services, job, lease, after, record)


def _decide(
    services: Services, job: Job, evaluation: Evaluation, failure: CallFailure, now: datetime
) -> RetryDecision:
    tries = attempts_since(evaluation, job.run_at)
    return decide(
        failure,
        now=now,
        attempt=sum(a.outcome is not Outcome.CANCELED for a in tries),
        max_attempts=job.policy.max_attempts,
        invalid_outputs=sum(a.outcome is Outcome.INVALID_OUTPUT for a in tries),
        jitter=services.jitter(),
    )


def _seat_error(failure: CallFailure, decision: RetryDecision) -> SeatError:
    """Return the seat's error; a retry that comes too late keeps the attempt's own code."""
    if decision.retry:
        message = f"{failure.message}; the next try is due after the job's deadline"
        return SeatError(code=failure.code, message=message, retryable=is_retryable(failure.code))
    return SeatError(
        code=decision.code, message=decision.reason, retryable=is_retryable(decision.code)
    )


async def _record_cut(services: Services, lease: Lease, cut: Cut) -> None:
    """Write an attempt that was cut, and let go of the lease.

    The seat gets no record here: after a shutdown it goes on elsewhere, and when its run was
    stopped or ran into its deadline, the next look finds that and ends the seat as the run ended.
    """
    if cut.code == LEASE_LOST:
        return
    if not cut.sent:
        await give_back(services, lease, f"the call was {cut.code} first")
        return
    now = services.clock.now()
    ended = replace(
        lease.attempt,
        outcome=Outcome.CANCELED,
        ended_at=now,
        code=cut.code,
        message="the request was cut from our side; it may have been paid for",
    )
    after = released(end_attempt(lease.evaluation, ended))
    if cut.code == INTERRUPTED:
        after = replace(after, wake_at=now, wake=lease.evaluation.wake)
    await commit_as_holder(services, lease, after)


async def _record_not_stored(
    services: Services, seen: Seen, lease: Lease, result: NotStored
) -> None:
    now = services.clock.now()
    ended = replace(
        lease.attempt,
        outcome=Outcome.UNKNOWN,
        ended_at=now,
        http_status=result.answer.http_status,
        message=f"the answer could not be stored: {result.reason}",
        usage=result.answer.usage,
        model_returned=result.answer.model_returned,
        provider_request_id=result.answer.request_id,
        cost_usd=_answer_cost(services, seen, lease, result.answer),
    )
    due_at = now + timedelta(seconds=REPAIR_HEAD_START_SECONDS)
    after = released(end_attempt(lease.evaluation, ended), due_at=due_at)
    await commit_as_holder(services, lease, after)


def _answer_cost(
    services: Services, seen: Seen, lease: Lease, answer: ProviderAnswer
) -> float | None:
    return answer_cost_usd(services.prices, seen.job.seats[seen.index], lease.attempt, answer)


def _due_at(now: datetime, failure: CallFailure, decision: RetryDecision) -> datetime | None:
    """Return when the evaluation may be asked again, also by others when this seat gives up."""
    seconds = decision.wait_seconds
    if not decision.retry and decision.outcome is not Outcome.PERMANENT:
        seconds = failure.hint_seconds or 0.0
    return now + timedelta(seconds=seconds) if seconds > 0 else None


def _failed(
    attempt: Attempt, failure: CallFailure, decision: RetryDecision, now: datetime
) -> Attempt:
    return replace(
        attempt,
        outcome=decision.outcome,
        ended_at=now,
        http_status=failure.http_status,
        sent=failure.sent,
        code="quota_exhausted" if decision.code == "quota_exhausted" else failure.code,
        message=failure.message,
        hint_seconds=failure.hint_seconds,
        until=decision.until,
        provider_request_id=failure.request_id,
        model_returned=failure.model_returned,
        usage=failure.usage,
    )


def _seat_end(
    services: Services,
    seen: Seen,
    after: Evaluation,
    state: SeatState,
    *,
    output_of: Evaluation | None = None,
    error: SeatError | None = None,
) -> SeatRecord:
    return seat_record(
        seen.job,
        seen.index,
        state,
        ended_at=services.clock.now(),
        evaluation=after,
        output=output_of.output if output_of else None,
        error=error,
    )
