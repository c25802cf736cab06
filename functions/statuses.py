"""What is really happening to a job, read off its records: states and facts, no percentage."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from functions.core.documents import (
    evaluation_path,
    from_document,
    from_snapshot,
    job_path,
    terminal_path,
)
from functions.core.endings import stopped_seat_error, stopped_seat_state, total
from functions.core.jobs import (
    Attempt,
    Evaluation,
    Job,
    JobState,
    Output,
    SeatError,
    SeatRecord,
    SeatState,
    Terminal,
)
from functions.core.leases import is_live, own_attempts
from functions.core.money import sum_usd
from functions.core.ports import Query
from functions.core.times import timestamp
from functions.services import Services


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStatus:
    """The records of one job; `evaluations` has those of seats that had not ended."""

    job: Job
    terminal: Terminal | None
    records: tuple[SeatRecord, ...]
    evaluations: dict[int, Evaluation | None]
    now: datetime

    @property
    def state(self) -> JobState:
        """The state of the job: running from its first attempt on, whatever its head says yet."""
        begun = any(attempt.run == self.job.run for attempt in self.attempts)
        return JobState.RUNNING if begun and not self.job.state.is_terminal else self.job.state

    def record(self, index: int) -> SeatRecord | None:
        """Return a seat's record in the current run, None while it has not ended."""
        for record in self.records:
            if (record.run, record.index) == (self.job.run, index):
                return record
        return None

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The job's own attempts of all runs, oldest first.

        Where a record and the evaluation both have one, that which has ended counts.
        """
        known: dict[tuple[int, int, int], Attempt] = {}
        for attempt in self._all_attempts():
            key = (attempt.run, attempt.seat, attempt.number)
            if key not in known or known[key].ended_at is None:
                known[key] = attempt
        return tuple(known[key] for key in sorted(known))

    def _all_attempts(self) -> list[Attempt]:
        found = [attempt for record in self.records for attempt in record.attempts]
        for index, evaluation in self.evaluations.items():
            found.extend(own_attempts(evaluation, self.job.id, self.job.run, index))
        return found

    def seat_state(self, index: int) -> SeatState:
        """Return the present state of a seat."""
        if (record := self.record(index)) is not None:
            return record.state
        if self.job.state.is_terminal:
            return stopped_seat_state(self.job.stop)
        evaluation = self.evaluations.get(index)
        if evaluation is not None and is_live(evaluation, self.now):
            return SeatState.RUNNING
        return SeatState.WAITING if self.due_at(index) else SeatState.QUEUED

    def seat_error(self, index: int) -> SeatError | None:
        """Return why a seat ended without an answer; None while it may still have one."""
        if (record := self.record(index)) is not None:
            return record.error
        return stopped_seat_error(self.job.stop) if self.job.state.is_terminal else None

    def due_at(self, index: int) -> datetime | None:
        """Return when a seat's retry is due, None when none waits."""
        if (record := self.record(index)) is not None:
            return record.due_at
        evaluation = self.evaluations.get(index)
        if evaluation is None or evaluation.due_at is None or evaluation.due_at <= self.now:
            return None
        return evaluation.due_at


async def read_status(services: Services, job: Job) -> JobStatus:
    """Read everything there is about a job.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: a document cannot be read.
    """
    seats = Query(collection=f"{job_path(job.id)}/seats")
    found, [terminal] = await asyncio.gather(
        services.ledger.query(seats), services.ledger.get(terminal_path(job.id, job.run))
    )
    services.clock.observe(terminal.read_time)
    records = tuple(from_document(SeatRecord, doc.data or {}, doc.path) for doc in found)
    ended = {record.index for record in records if record.run == job.run}
    missing = [index for index in range(len(job.seats)) if index not in ended]
    closed = from_snapshot(Terminal, terminal)
    job = as_closed(job, closed)
    return JobStatus(
        job=job,
        terminal=closed,
        records=records,
        evaluations=await _evaluations(services, job, missing),
        now=terminal.read_time,
    )


def as_closed(job: Job, terminal: Terminal | None) -> Job:
    """Return a job as its run's end has it: it may have closed since the head was read."""
    if terminal is None:
        return job
    return replace(job, state=terminal.state, stopped=terminal.stopped)


async def _evaluations(
    services: Services, job: Job, indexes: Sequence[int]
) -> dict[int, Evaluation | None]:
    if not indexes:
        return {}
    snapshots = await services.ledger.get(
        *(evaluation_path(job.seats[index].work_key) for index in indexes)
    )
    states = (from_snapshot(Evaluation, found) for found in snapshots)
    return dict(zip(indexes, states, strict=True))


def job_view(status: JobStatus) -> dict[str, Any]:
    """Return the job as the interface shows it."""
    job = status.job
    return {
        "id": job.id,
        "state": status.state.value,
        "run": job.run,
        "submitted_at": timestamp(job.submitted_at),
        "deadline_at": timestamp(job.deadline_at),
        "window": job.run_window,
        "owner": job.owner,
        "labels": job.labels,
        "decision_id": job.decision_id,
        "digests": asdict(job.digests),
        "policy": asdict(job.policy),
        "seats": [_seat_view(status, index) for index in range(len(job.seats))],
        "terminal": _terminal_view(status.terminal),
        "usage": _usage_view(status),
        "purged_at": timestamp(job.purged_at),
    }


def job_summary(job: Job) -> dict[str, Any]:
    """Return a job as lists show it: what its own document says."""
    return {
        "id": job.id,
        "state": job.state.value,
        "run": job.run,
        "submitted_at": timestamp(job.submitted_at),
        "deadline_at": timestamp(job.deadline_at),
        "window": job.run_window,
        "owner": job.owner,
        "labels": job.labels,
        "decision_id": job.decision_id,
        "purged_at": timestamp(job.purged_at),
        "seats": [
            {"seat": seat.seat, "provider": seat.provider, "model": seat.model}
            for seat in job.seats
        ],
    }


def attempts_view(status: JobStatus) -> dict[str, Any]:
    """Return the job's own attempts as the interface shows them."""
    return {"attempts": [_attempt_view(status, attempt) for attempt in status.attempts]}


def output_view(output: Output | None) -> dict[str, Any] | None:
    """Return an output's reference."""
    if output is None:
        return None
    return {"uri": output.uri, "generation": output.generation, "sha256": output.sha256}


def _seat_view(status: JobStatus, index: int) -> dict[str, Any]:
    seat, record = status.job.seats[index], status.record(index)
    own = [a for a in status.attempts if (a.run, a.seat) == (status.job.run, index)]
    error = status.seat_error(index)
    return {
        "seat": seat.seat,
        "provider": seat.provider,
        "model": seat.model,
        "model_returned": _model_returned(record, own),
        "state": status.seat_state(index).value,
        "work_key": seat.work_key,
        "attempts": len(own),
        "max_attempts": status.job.policy.max_attempts,
        "due_at": timestamp(status.due_at(index)),
        "reused": record.reused if record else False,
        "carried": record.carried if record else False,
        "output": output_view(record.output) if record else None,
        "cost_usd": _seat_cost(record, own),
        "error": asdict(error) if error else None,
        "started_at": timestamp(own[0].started_at if own else None),
        "ended_at": timestamp(record.ended_at if record else None),
    }


def _model_returned(record: SeatRecord | None, own: Sequence[Attempt]) -> str | None:
    """Return the name in the seat's answer, or in the last one of use to nobody."""
    if record is not None and record.output is not None:
        return record.output.model_returned
    return next((a.model_returned for a in reversed(own) if a.model_returned), None)


def _seat_cost(record: SeatRecord | None, own: Sequence[Attempt]) -> float | None:
    """Return what the seat's own attempts cost; a reused seat shows what its answer once did."""
    if record is not None and record.reused and record.output is not None:
        return record.output.cost_usd
    return sum_usd(attempt.cost_usd for attempt in own)


def _terminal_view(terminal: Terminal | None) -> dict[str, Any] | None:
    if terminal is None:
        return None
    return {
        "state": terminal.state.value,
        "run": terminal.run,
        "completed_at": timestamp(terminal.completed_at),
        "decision_id": terminal.decision_id,
        "reason": terminal.reason,
        "digests": {"input": terminal.input_digest, "models": terminal.models_digest},
        "policy_revision": terminal.policy_revision,
        "models": [
            {
                "seat": seat.seat,
                "model_requested": seat.model_requested,
                "model_returned": seat.model_returned,
            }
            for seat in terminal.seats
        ],
    }


def _usage_view(status: JobStatus) -> dict[str, Any]:
    return asdict(total(status.attempts))


def _attempt_view(status: JobStatus, attempt: Attempt) -> dict[str, Any]:
    return {
        "seat": status.job.seats[attempt.seat].seat,
        "number": attempt.number,
        "run": attempt.run,
        "holder": attempt.holder,
        "started_at": timestamp(attempt.started_at),
        "ended_at": timestamp(attempt.ended_at),
        "outcome": attempt.outcome.value,
        "http_status": attempt.http_status,
        "code": attempt.code,
        "message": attempt.message,
        "provider_request_id": attempt.provider_request_id,
        "model_requested": status.job.seats[attempt.seat].model,
        "model_returned": attempt.model_returned,
        "hint_seconds": attempt.hint_seconds,
        "until": timestamp(attempt.until),
        "usage": asdict(attempt.usage) if attempt.usage else None,
        "cost_usd": attempt.cost_usd,
    }
