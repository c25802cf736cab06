"""When a caller should look at a job again: what `Retry-After` says of one that is open."""

import math

from functions.core.jobs import SeatState
from functions.statuses import JobStatus

POLL_SECONDS = 1
# A job can be cancelled, and a pause can be lifted, while all its seats wait for hours.
MAX_POLL_SECONDS = 300


def retry_after(status: JobStatus) -> dict[str, str]:
    """Return the header for a job's status, none when its run has ended."""
    if status.job.state.is_terminal:
        return {}
    return {"Retry-After": str(poll_seconds(status))}


def poll_seconds(status: JobStatus) -> int:
    """Return the seconds until something can have happened.

    When every open seat waits for a time that its provider asked for, the job cannot end before the
    last of these times.
    """
    indexes = range(len(status.job.seats))
    unended = [index for index in indexes if status.record(index) is None]
    due = [status.due_at(index) for index in unended]
    waiting = [status.seat_state(index) is SeatState.WAITING for index in unended]
    if not unended or not all(waiting):
        return POLL_SECONDS
    left = max(((at - status.now).total_seconds() for at in due if at is not None), default=0.0)
    return min(max(math.ceil(left), POLL_SECONDS), MAX_POLL_SECONDS)
