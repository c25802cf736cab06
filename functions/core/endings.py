"""The records of an end: of a seat, of a run, and how the seats of a stopped run end. Pure."""

from collections.abc import Sequence
from datetime import datetime

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
        expire_at=job.expire_at,
    )


def terminal_record(
    job: Job,
    state: JobState,
    reason: str,
    ended: Sequence[SeatRecord],
    now: datetime,
    stopped: JobState | None,
) -> Terminal:
    """Return the terminal record of the job's current run.

    `ended` are the records of the seats that have one; `stopped` as in `close_run` of
    `functions.settlement`.
    """
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
        expire_at=job.expire_at,
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
