"""The panel's report: complete, or partial with every missing seat named.

Each answer is read from the bucket and checked against the digest on record. Statistics are over
the seats that answered and say so: `n` of `of`. A missing seat is neither zero nor left out in
silence.
"""

import asyncio
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from functions.core.errors import (
    LedgerUnavailable,
    ObjectMissing,
    ObjectsUnavailable,
    UnknownVersion,
    UnreadableRecord,
)
from functions.core.jobs import Output, SeatError, SeatState
from functions.core.model_identity import alias_of, panel_warnings
from functions.core.times import timestamp
from functions.outputs import read_output, was_purged
from functions.services import Services
from functions.statuses import JobStatus, output_view

READS_AT_ONCE = 16


async def build_report(services: Services, status: JobStatus) -> dict[str, Any]:
    """Return the report; `complete` is true only when every seat's answer could be read.

    Raises:
        ObjectsUnavailable: the bucket gave no certain answer.
        LedgerUnavailable: no answer.
        UnknownVersion: an answer, or a record, is another release's.
    """
    answers = await _read_all(services, status)
    seats = [
        _seat_view(status, index, content)
        for index, content in enumerate(answers)
        if isinstance(content, Mapping)
    ]
    missing = [
        _missing_view(status, index, error)
        for index, error in enumerate(answers)
        if not isinstance(error, Mapping)
    ]
    return {
        "job_id": status.job.id,
        "run": status.job.run,
        "state": status.job.state.value,
        "complete": not missing,
        "decision_id": status.job.decision_id,
        "seats": seats,
        "missing": missing,
        "warnings": await _warnings(services, status),
        "summary": _summary([seat["score"] for seat in seats], of=len(status.job.seats)),
    }


async def _read_all(
    services: Services, status: JobStatus
) -> list[Mapping[str, Any] | SeatError | None]:
    """Read every seat's answer; the first outage ends the other reads and comes out as itself."""
    limit = asyncio.Semaphore(READS_AT_ONCE)
    indexes = range(len(status.job.seats))
    try:
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(_read(services, status, index, limit)) for index in indexes]
    except ExceptionGroup as failed:
        outages, others = failed.split((LedgerUnavailable, ObjectsUnavailable, UnknownVersion))
        if outages is None or others is not None:
            raise
        raise outages.exceptions[0] from failed
    return [read.result() for read in reads]


async def _warnings(services: Services, status: JobStatus) -> list[dict[str, Any]]:
    """Say which seats' models are not what they seem, as far as the run's end could see.

    What comes to light later is not added, so that the report of a closed run stays as it is.
    """
    job = status.job
    records = [record for record in status.records if record.run == job.run]
    records.sort(key=lambda record: record.index)
    answered = [alias_of(job, record.index) for record in records if record.output]
    known = await services.sightings.known(answered)
    until = status.terminal.completed_at if status.terminal else status.now
    return [asdict(warning) for warning in panel_warnings(job, records, known, until=until)]


async def _read(
    services: Services, status: JobStatus, index: int, limit: asyncio.Semaphore
) -> Mapping[str, Any] | SeatError | None:
    """Return a seat's answer, or why it has none; None when it has simply not ended."""
    record = status.record(index)
    if record is None or record.output is None:
        return status.seat_error(index)
    async with limit:
        try:
            return await read_output(services, record.output)
        except ObjectMissing:
            purged = await was_purged(services, record.output.uri)
            reason = "purged" if purged else "the answer's object is gone"
            return SeatError(code="output_missing", message=reason, retryable=True)
        except UnknownVersion:
            raise  # nothing is damaged
        except UnreadableRecord as exc:
            return SeatError(code="output_damaged", message=str(exc), retryable=True)


def _seat_view(status: JobStatus, index: int, content: Mapping[str, Any]) -> dict[str, Any]:
    record = status.record(index)
    output: Output | None = record.output if record else None
    return {
        "seat": status.job.seats[index].seat,
        "score": content["score"],
        "criteria": content["criteria"],
        "rationale": content["rationale"],
        "answer": content["answer"],
        "usage": asdict(output.usage) if output and output.usage else None,
        "cost_usd": output.cost_usd if output else None,
        "model_requested": status.job.seats[index].model,
        "model_returned": output.model_returned if output else None,
        "reused": record.reused if record else False,
        "output": output_view(output),
    }


def _missing_view(status: JobStatus, index: int, error: SeatError | None) -> dict[str, Any]:
    state = status.seat_state(index)
    if state is SeatState.SUCCEEDED:
        state = SeatState.FAILED  # its record says succeeded, its object does not
    return {
        "seat": status.job.seats[index].seat,
        "state": state.value,
        "code": error.code if error else None,
        "reason": error.message if error else f"the seat is {state.value}",
        "due_at": timestamp(status.due_at(index)),
    }


def _summary(scores: list[float | None], *, of: int) -> dict[str, Any]:
    """Return statistics over the seats that gave a score, out of all seats asked."""
    given = [score for score in scores if score is not None]
    return {
        "mean": _figure(statistics.fmean, given) if given else None,
        "median": _figure(statistics.median, given) if given else None,
        "min": min(given, default=None),
        "max": max(given, default=None),
        "stdev": _figure(statistics.stdev, given) if len(given) > 1 else None,
        "n": len(given),
        "of": of,
    }


def _figure(statistic: Callable[[list[float]], float], scores: list[float]) -> float | None:
    """Return a statistic, None where it is beyond what a double holds: scores may be that large."""
    try:
        figure = statistic(scores)
    except OverflowError:
        return None
    return figure if math.isfinite(figure) else None
