"""What can be had without a call: a stored output, or an orphan object nobody settled."""

from dataclasses import replace
from datetime import datetime
from enum import Enum, auto

from functions import telemetry
from functions.core.documents import (
    changes,
    evaluation_path,
)
from functions.core.endings import seat_record
from functions.core.errors import UnknownVersion, UnreadableRecord, WriteConflict
from functions.core.identities import name_in_bucket, output_object
from functions.core.jobs import Evaluation, Outcome, SeatState
from functions.core.leases import bury, end_attempt, has_output_since, holds_output, is_live
from functions.core.leases import released as without_holder
from functions.core.ports import Update
from functions.incidents import open_incident
from functions.looking import Seen
from functions.outputs import StoredAnswer, find_answer, output_exists, was_purged
from functions.services import Services
from functions.settlement import settle_seat
from functions.tracing import link_to


class Look(Enum):
    """What a look at the stored things came to."""

    SETTLED = auto()  # the seat has its record
    CHANGED = auto()  # something moved meanwhile: look again
    MUST_BUY = auto()  # nothing is stored
    HELD = auto()  # the stored output is gone, and a holder buys another already


async def settle_without_call(services: Services, seen: Seen) -> Look:
    """Settle the seat from what is stored already, if anything is.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no certain answer: nothing may be bought yet.
        UnknownVersion: the answer is another release's, so nothing may be bought here.
    """
    evaluation = seen.evaluation
    if evaluation is None:
        return Look.MUST_BUY
    if has_output_since(evaluation, seen.reuse_since):
        return await _reuse(services, seen, evaluation)
    if evaluation.object_name is None or is_live(evaluation, seen.now):
        return Look.MUST_BUY
    if holds_output(evaluation, evaluation.object_name):
        return Look.MUST_BUY
    return await _adopt_orphan(services, seen, evaluation, evaluation.object_name)


async def _reuse(services: Services, seen: Seen, evaluation: Evaluation) -> Look:
    output = evaluation.output
    if output is None or not await output_exists(services, output):
        if output is not None and await was_purged(services, output.uri):
            return Look.CHANGED  # between the look and this one
        name = name_in_bucket(output.uri) if output else ""
        await _report(services, seen, "output_missing", name, "the object is gone")
        if is_live(evaluation, seen.now):
            return Look.HELD
        await _discard_output(services, seen, evaluation)
        return Look.CHANGED
    record = seat_record(
        seen.job,
        seen.index,
        SeatState.SUCCEEDED,
        ended_at=seen.now,
        evaluation=evaluation,
        output=output,
        reused=not _bought_here(seen, evaluation),
    )
    _link_to_the_buyer(evaluation, reused=record.reused)
    await settle_seat(services, seen.job, record)
    return Look.SETTLED


def _link_to_the_buyer(evaluation: Evaluation, *, reused: bool) -> None:
    """Let the trace of a delivery that reuses an answer lead to that of the attempt behind it."""
    bought = [a for a in evaluation.attempts if a.outcome is Outcome.SUCCEEDED]
    if reused and bought:
        link_to(bought[-1].traceparent)


def _bought_here(seen: Seen, evaluation: Evaluation) -> bool:
    """Whether one of this seat's own attempts in this run brought the output."""
    seat = (seen.job.id, seen.job.run, seen.index)
    return any(
        attempt.outcome is Outcome.SUCCEEDED and (attempt.job, attempt.run, attempt.seat) == seat
        for attempt in evaluation.attempts
    )


async def _adopt_orphan(
    services: Services, seen: Seen, evaluation: Evaluation, object_name: str
) -> Look:
    """Settle from an object whose holder never settled; its attempt turns out to have succeeded."""
    try:
        found = await find_answer(services, object_name)
    except UnknownVersion:
        raise  # another release's answer: good, paid for, and not to be bought again
    except UnreadableRecord as exc:
        await _report(services, seen, "output_damaged", object_name, str(exc))
        await _discard_output(services, seen, evaluation)
        return Look.CHANGED
    if found is None:
        return Look.MUST_BUY
    after = _with_orphan(evaluation, found, seen.now)
    adopted = replace(seen, evaluation=after)
    record = seat_record(
        seen.job,
        seen.index,
        SeatState.SUCCEEDED,
        ended_at=seen.now,
        evaluation=after,
        output=found.output,
        reused=not _bought_here(adopted, after),
    )
    if not await write_unheld(services, seen, after):
        return Look.CHANGED
    if not has_output_since(after, seen.reuse_since):
        return Look.CHANGED  # on record now, so the next claim buys under a new name
    await settle_seat(services, seen.job, record)
    _link_to_the_buyer(after, reused=record.reused)
    telemetry.event(
        "orphan adopted",
        job=seen.job.id,
        seat=record.seat,
        owner=seen.job.owner,
        object=object_name,
    )
    return Look.SETTLED


def _with_orphan(evaluation: Evaluation, found: StoredAnswer, now: datetime) -> Evaluation:
    """Return the evaluation with the orphan as its output and the attempt that bought it mended."""
    state = without_holder(bury(evaluation, now))
    for attempt in state.attempts:
        if attempt.token == found.token:
            mended = replace(
                attempt,
                outcome=Outcome.SUCCEEDED,
                ended_at=attempt.ended_at or now,
                usage=found.output.usage,
                cost_usd=found.output.cost_usd,
                model_returned=found.output.model_returned,
                provider_request_id=found.content.get("request_id"),
            )
            state = end_attempt(state, mended)
    return replace(state, output=found.output)


async def _report(services: Services, seen: Seen, kind: str, object_name: str, detail: str) -> None:
    """Open the incident of an object that is gone or damaged; one per object, whoever finds it."""
    seat = seen.job.seats[seen.index].seat
    await open_incident(services, kind, object_name, job=seen.job, seat=seat, detail=detail)


async def _discard_output(services: Services, seen: Seen, evaluation: Evaluation) -> None:
    """Give up an object that is gone or damaged: a new object name to buy under."""
    epoch = evaluation.epoch + 1
    window = seen.job.run_window
    fresh = output_object(evaluation.tenant, window, evaluation.work_key, epoch)
    after = replace(evaluation, output=None, epoch=epoch, object_name=fresh)
    await write_unheld(services, seen, after)


async def write_unheld(services: Services, seen: Seen, after: Evaluation) -> bool:
    """Write an evaluation nobody holds, if it is still as it was seen; say whether it was.

    Raises:
        LedgerUnavailable: not certainly written; the delivery must come again.
    """
    if seen.evaluation is None:
        return False
    fields = changes(seen.evaluation, after)
    if not fields:
        return True
    update = Update(
        path=evaluation_path(after.work_key),
        fields=fields,
        if_updated_at=seen.evaluation_update_time,
    )
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        return False
    provider = seen.job.seats[seen.index].provider
    services.metrics.attempts_ended(seen.evaluation.attempts, after.attempts, provider)
    return True
