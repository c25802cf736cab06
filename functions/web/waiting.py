"""`Prefer: wait`: an answer that waits for the job's end, for a while (RFC 7240).

A preference is no demand: where no place is free, or the process ends, the caller gets the job as
it is. Costs one small read a second for each waiting request.
"""

import re

from starlette.requests import Request

from functions.acceptance import find
from functions.core.jobs import Job
from functions.web.application import Application

MAX_WAIT_SECONDS = 60
LOOK_SECONDS = 1.0

_WAIT = re.compile(r"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*", re.IGNORECASE)


def preferred_wait_seconds(request: Request) -> int:
    """Return how long the caller would wait, 0 when it does not say or says it in another form."""
    parts = ",".join(request.headers.getlist("prefer")).replace(";", ",").split(",")
    found = next((match for part in parts if (match := _WAIT.fullmatch(part))), None)
    return min(int(found[1]), MAX_WAIT_SECONDS) if found else 0


async def wait_for_end(application: Application, job: Job, seconds: float) -> Job:
    """Return the job once its run has ended, or as it is when the time is over.

    Raises:
        LedgerUnavailable: the job cannot be read.
    """
    services = application.services
    place = application.waits.take(job.tenant) if seconds > 0 else None
    if place is None:
        return job
    until = services.clock.monotonic() + seconds
    with place:
        while not job.state.is_terminal and not services.inflight.closing:
            left_seconds = until - services.clock.monotonic()
            if left_seconds <= 0:
                break
            await services.slots.wait(services.clock, min(LOOK_SECONDS, left_seconds))
            job = await find(services, job.tenant, job.id) or job
    return job
