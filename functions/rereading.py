"""A job's status read again: only what can still change, in one round trip.

The record of a seat that has ended and the attempts in it stay as they are, so a look at a job
reads its head, the run's end, and record and evaluation of the seats that had not ended.
"""

from functions.core.documents import (
    evaluation_path,
    from_snapshot,
    job_path,
    seat_path,
    terminal_path,
)
from functions.core.jobs import Evaluation, Job, SeatRecord, Terminal
from functions.services import Services
from functions.statuses import JobStatus, as_closed, read_status


async def reread(services: Services, status: JobStatus) -> JobStatus | None:
    """Return a job's status as it is now, None when the job is gone.

    Reads two documents and two for each seat that had not ended; all there is when the job has been
    replayed meanwhile.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: a document cannot be read.
    """
    job, unended = status.job, _unended(status)
    count = len(unended)
    head, end, *found = await services.ledger.get(
        job_path(job.id),
        terminal_path(job.id, job.run),
        *(seat_path(job.id, job.run, index) for index in unended),
        *(evaluation_path(job.seats[index].work_key) for index in unended),
    )
    services.clock.observe(head.read_time)
    present = from_snapshot(Job, head)
    if present is None or present.run != job.run:
        return await read_status(services, present) if present else None
    ended = {
        index: record
        for index, snapshot in zip(unended, found[:count], strict=True)
        if (record := from_snapshot(SeatRecord, snapshot)) is not None
    }
    evaluations = {
        index: from_snapshot(Evaluation, snapshot)
        for index, snapshot in zip(unended, found[count:], strict=True)
        if index not in ended
    }
    terminal = from_snapshot(Terminal, end)
    return JobStatus(
        job=as_closed(present, terminal),
        terminal=terminal,
        records=(*status.records, *ended.values()),
        evaluations=evaluations,
        now=end.read_time,
    )


def _unended(status: JobStatus) -> list[int]:
    return [index for index in range(len(status.job.seats)) if status.record(index) is None]
