"""Follow one job until its run ends: by the API's event stream, else by asking again.

The stream is an offer. Whatever is wrong with it (no such route, no free place, a proxy that keeps
answers back, a process that ends) shows by itself when the job is read the plain way instead.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import httpx
from pydantic import ValidationError

from functions.cli.answers import Job
from functions.cli.client import Api, Received
from functions.cli.events import Event, NotEvents, read_events
from functions.cli.exits import CliError, Refused, Unreachable

FIRST_INTERVAL_SECONDS = 0.5
LAST_INTERVAL_SECONDS = 2.0
INTERVAL_GROWTH = 1.5
LEAST_INTERVAL_SECONDS = 0.1
HINT_LIMIT_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
BUSY_STATUSES = frozenset({429, 503})
# Streams in a row that brought nothing: then reading is the surer way.
FRUITLESS_STREAMS = 3
RECONNECT_SECONDS = 1.0

OnRead = Callable[[Job], None]
Sleep = Callable[[float], Awaitable[None]]


async def watch(
    api: Api,
    job_id: str,
    on_read: OnRead,
    *,
    sleep: Sleep = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Received[Job]:
    """The job once its run has ended; `on_read` gets every state that is told on the way.

    An API that is busy or being restarted is asked again for `PATIENCE_SECONDS`; then its last
    `Refused` or `Unreachable` is raised. One that never answered at all is given no patience.
    """
    told = await _streamed(api, job_id, on_read, sleep)
    if told is not None and told.value.ended:
        return told
    return await _polled(api, job_id, on_read, sleep, clock, answered=told is not None)


async def _streamed(api: Api, job_id: str, on_read: OnRead, sleep: Sleep) -> Received[Job] | None:
    """The last state that streams told: that of the end, or what there was when they stopped."""
    told: Received[Job] | None = None
    last_event_id, fruitless, pause_seconds = "", 0, RECONNECT_SECONDS
    while fruitless < FRUITLESS_STREAMS:
        fruitless += 1
        try:
            async with (
                api.events(job_id, last_event_id) as chunks,
                aclosing(read_events(chunks)) as events,
            ):
                async for event in events:
                    told, last_event_id, fruitless = _received(event), event.identity, 0
                    pause_seconds = interval_seconds(event.retry_seconds, RECONNECT_SECONDS)
                    on_read(told.value)
                    if told.value.ended:
                        return told
        except (CliError, NotEvents, ValidationError):
            return told
        except httpx.HTTPError:
            pass  # it broke off: the next one goes on where this one ended
        await sleep(pause_seconds)
    return told


def _received(event: Event) -> Received[Job]:
    value = Job.model_validate_json(event.data)
    return Received(value=value, raw=event.data, status=200, retry_after_seconds=None)


async def _polled(
    api: Api,
    job_id: str,
    on_read: OnRead,
    sleep: Sleep,
    clock: Callable[[], float],
    *,
    answered: bool,
) -> Received[Job]:
    started_at = clock()
    own_interval, answered_at = FIRST_INTERVAL_SECONDS, started_at if answered else None
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
    """How long to wait before the next request: the API's hint within bounds, else our own pace."""
    if hint_seconds is None:
        return own_seconds
    return min(max(hint_seconds, LEAST_INTERVAL_SECONDS), HINT_LIMIT_SECONDS)


def _passing(error: CliError, *, answered_before: bool) -> bool:
    if isinstance(error, Refused):
        return error.status in BUSY_STATUSES
    return isinstance(error, Unreachable) and answered_before
