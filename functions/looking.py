"""The look at the start of every pass: job, evaluation and seat record, in one round trip."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from functions.core.documents import evaluation_path, from_snapshot, job_path, seat_path
from functions.core.jobs import Evaluation, Job
from functions.dispatch import SeatMessage
from functions.services import Services


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One look at a delivery's job, evaluation and seat; `now` is the server's read time.

    `ended` says that the seat has its record in this run. `published_at` is when the message of
    this delivery was published, where that is known.
    """

    job: Job
    job_update_time: datetime
    evaluation: Evaluation | None
    evaluation_update_time: datetime | None
    index: int
    ended: bool
    now: datetime
    reuse_since: datetime
    published_at: datetime | None = None


async def peek(services: Services, message: SeatMessage) -> Seen | None:
    """Read job, evaluation and seat record in one round trip; None when there is no such seat.

    Raises:
        UnreadableRecord: a document cannot be read.
        LedgerUnavailable: no answer.
    """
    found, evaluation, seat = await services.ledger.get(
        job_path(message.job),
        evaluation_path(message.work_key),
        seat_path(message.job, message.run, message.seat),
    )
    services.clock.observe(evaluation.read_time)
    job = from_snapshot(Job, found)
    if job is None or found.update_time is None or not _has_seat(job, message):
        return None
    return Seen(
        job=job,
        job_update_time=found.update_time,
        evaluation=from_snapshot(Evaluation, evaluation),
        evaluation_update_time=evaluation.update_time,
        index=message.seat,
        ended=seat.exists,
        now=evaluation.read_time,
        reuse_since=reuse_since(services, job, evaluation.read_time),
        published_at=message.published_at,
    )


def _has_seat(job: Job, message: SeatMessage) -> bool:
    return message.seat < len(job.seats) and job.seats[message.seat].work_key == message.work_key


def reuse_since(services: Services, job: Job, now: datetime) -> datetime:
    """Return since when an output must have been stored for the job's current run to use it.

    Outputs older than half their retention could be gone before the job's own are.
    """
    if not job.policy.reuse:
        return job.run_at
    return now - timedelta(days=services.settings.retention_days / 2)
