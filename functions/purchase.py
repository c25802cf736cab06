"""One claimed attempt: call, validate, store, settle.

The attempt is on record before the call. Whatever comes of it is written by the holder only; who
has lost the lease leaves a valid answer in the bucket, where the next look finds it.
"""

import asyncio
from dataclasses import replace
from functools import partial

from functions import telemetry
from functions.asking import Asking, asking
from functions.calling import LEASE_LOST, Cut, KeptLease, ask, insist, kept, shielded
from functions.core.costs import answer_cost_usd
from functions.core.errors import ObjectsUnavailable, UnreadableRecord
from functions.core.identities import attempt_key
from functions.core.leases import INTERRUPTED
from functions.core.ports import Provider
from functions.core.prompts import Rubric
from functions.core.verdicts import CallFailure, ProviderAnswer, read_answer
from functions.inflight import Call
from functions.inputs import Question
from functions.leasing import Lease
from functions.looking import Seen
from functions.outcome import Bought, NotStored, Result, record
from functions.outputs import encode_answer, store_answer
from functions.services import Services
from functions.settlement import mark_running


async def buy(
    services: Services, seen: Seen, lease: Lease, provider: Provider, question: Question
) -> bool:
    """Spend the claimed attempt and record what came of it; say whether the seat has its record.

    When it has none, the evaluation waits for a retry or is somebody else's: look again.

    Raises:
        LedgerUnavailable: the end of the attempt is not certainly on record; the lease runs out.
    """
    job = seen.job
    first = not services.inflight.works_for(job.id, job.run)
    try:
        async with (
            services.inflight.call(job.id, job.run, lease.claimed_at) as call,
            kept(services, lease) as holding,
        ):
            if first:  # the run's other seats would only meet this write
                await mark_running(services, job, seen.job_update_time)
            result = await _ask_and_store(services, seen, provider, question, holding, call)
    except asyncio.CancelledError:
        await shielded(record(services, seen, holding.current, Cut(code=INTERRUPTED)))
        raise
    return await shielded(record(services, seen, holding.current, result))


async def _ask_and_store(
    services: Services,
    seen: Seen,
    provider: Provider,
    question: Question,
    holding: KeptLease,
    call: Call,
) -> Result:
    if not holding.safe:
        if not holding.current.lost:
            services.metrics.lease_lost()
        return Cut(code=LEASE_LOST)  # the process stood still since the claim: nothing was sent
    if call.cut_code is not None:
        return Cut(code=call.cut_code, sent=False)
    left_seconds = (seen.job.deadline_at - services.clock.now()).total_seconds()
    expiry = asyncio.get_running_loop().call_later(left_seconds, call.cut, "deadline_exceeded")
    try:
        with asking(services, seen.job.seats[seen.index], holding.current.attempt) as asked:
            result = await ask(
                provider,
                replace(question.request, attempt_key=_attempt_key(holding.current)),
                keep=lambda answer: _keep(services, seen, holding, question.rubric, answer, asked),
                lease=holding,
                call=call,
                deadline_seconds=services.settings.provider_deadline_seconds,
            )
            _tell_end(asked, result)
        return result
    finally:
        expiry.cancel()


def _tell_end(asked: Asking, result: Result) -> None:
    """Tell how a request ended that brought no answer; one with an answer has told it itself."""
    if isinstance(result, Cut):
        asked.cut(result.code)
    elif isinstance(result, CallFailure):
        asked.ended(result)


async def _keep(
    services: Services,
    seen: Seen,
    holding: KeptLease,
    rubric: Rubric,
    answer: ProviderAnswer,
    asked: Asking,
) -> Bought | NotStored | CallFailure:
    asked.answered(answer)
    return await _store(services, seen, holding.current, rubric, answer)


def _attempt_key(lease: Lease) -> str:
    attempt = lease.attempt
    return attempt_key(job=attempt.job, run=attempt.run, seat=attempt.seat, number=attempt.number)


async def _store(
    services: Services, seen: Seen, lease: Lease, rubric: Rubric, answer: ProviderAnswer
) -> Bought | NotStored | CallFailure:
    """Validate and store an answer; it is paid for, so the bucket is asked more than once."""
    verdict = read_answer(answer, rubric)
    if isinstance(verdict, CallFailure):
        return verdict
    seat, evaluation = seen.job.seats[seen.index], lease.evaluation
    now = services.clock.now()
    cost_usd = answer_cost_usd(services.prices, seat, lease.attempt, answer)
    data = encode_answer(
        evaluation, lease.attempt, seat, answer, verdict, stored_at=now, cost_usd=cost_usd
    )
    name = evaluation.object_name or ""
    try:
        stored = await insist(services, partial(store_answer, services, name, data))
    except (ObjectsUnavailable, UnreadableRecord) as exc:
        telemetry.error(
            "answer not stored",
            exc=exc,
            job=seen.job.id,
            seat=seat.seat,
            attempt=lease.attempt.number,
            owner=seen.job.owner,
        )
        return NotStored(answer=answer, reason=str(exc)[:300])
    return Bought(answer=answer, stored=stored)
