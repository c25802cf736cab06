"""Follow one job until its run ends, by asking again at the pace the API gives."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from functions.cli.answers import Job
from functions.cli.client import Api, Received
from functions.cli.exits import CliError, Refused, Unreachable

FIRST_INTERVAL_SECONDS = 0.5
LAST_INTERVAL_SECONDS = 2.0
INTERVAL_GROWTH = 1.5
LEAST_INTERVAL_SECONDS = 0.1
HINT_LIMIT_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
BUSY_STATUSES = frozenset({429, 503})


async def watch(
    api: Api,
    job_id: str,
    on_read: Callable[[Job], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Received[Job]:
    """The job once its run has ended; `on_read` gets every state read on the way.

    An API that is busy or being restarted is asked again for `PATIENCE_SECONDS`; then its last
    `Refused` or `Unreachable` is raised. One that never answered at all is given no patience.
    """
    own_interval, answered_at = FIRST_INTERVAL_SECONDS, None
    started_at = clock()
    while True:
        hint: float | None
        try:
            received = await api.job(job_id)
        except CliError as error:
            since = answered_at if answered_at is not None else started_at
            if not _passing(error, answered_before=answered_at is not None):
                raise
            if clock() - since > PATIENCE_SECONDS:
                raise
            hint = error.retry_after_seconds if isinstance(error, Refused) else None
        else:
            answered_at, hint = clock(), received.retry_after_seconds
            on_read(received.value)
            if received.value.ended:
                return received
        await sleep(interval_seconds(hint, own_interval))
        own_interval = min(own_interval * INTERVAL_GROWTH, LAST_INTERVAL_SECONDS)


def interval_seconds(hint_seconds: float | None, own_seconds: float) -> float:
    """How long to wait before the next read: the API's hint within bounds, else our own pace."""
    if hint_seconds is None:
        return own_seconds
    return min(max(hint_seconds, LEAST_INTERVAL_SECONDS), HINT_LIMIT_SECONDS)


def _passing(error: CliError, *, answered_before: bool) -> bool:
    if isinstance(error, Refused):
        return error.status in BUSY_STATUSES
    return isinstance(error, Unreachable) and answered_before
