"""A job's states as they come: `GET /v1/jobs/{id}/events`.

    caller -> job -> parameters -> ended: its last state, or 204 for who has it
                                -> open: a place, then a stream of states until the end

An event's `id` is the ETag that `GET /v1/jobs/{id}` has for the same bytes, so whoever connects
again and sends it as `Last-Event-ID` is told nothing twice. A stream that ends before the run does
says nothing wrong: the caller connects again. 204 is what tells an `EventSource` to stop doing so.
"""

from collections.abc import AsyncGenerator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from functions.services import Services
from functions.statuses import JobStatus, read_status
from functions.web import catalog, problems, queries
from functions.web.application import Application
from functions.web.event_stream import HEADERS, HEARTBEAT, MEDIA_TYPE, EventStream, event, opening
from functions.web.finding import find_job
from functions.web.permits import Permit
from functions.web.racing import first_of
from functions.web.routing import route
from functions.web.watches import Shown, shown

EVENT = "job"
HEARTBEAT_SECONDS = 15.0
RETRY_SECONDS = 1.0
RETRY_SPREAD_SECONDS = 2.0  # a process that ends sends all its callers to the others at once
NO_PLACE_SECONDS = 5.0


async def watch_job(application: Application, request: Request) -> Response:
    """Send a job's state, and then each further one until its run has ended."""
    services = application.services
    caller, job = await find_job(application, request)
    queries.only(request.query_params, frozenset())
    status = await read_status(services, job)
    first, known = shown(status), _known(request)
    if first.ended and first.tag == known:
        return Response(status_code=204)
    if first.ended:
        content = _opening(services) + _event(first)
        return Response(content, headers=HEADERS, media_type=MEDIA_TYPE)
    if request.method == "HEAD":
        return _head()
    place = application.waits.take(caller.tenant)
    if place is None:
        raise problems.rate_limited(
            "no place is free for another request that stays; ask again, or read the job instead",
            NO_PLACE_SECONDS,
        )
    permit = Permit(application.keys, request, caller, services.clock)
    blocks = partial(_blocks, application, status, known, permit)
    return EventStream(blocks, place=place, ending=services.inflight.ending)


async def _blocks(
    application: Application, status: JobStatus, known: str, permit: Permit
) -> AsyncGenerator[bytes, None]:
    """Yield what is to be sent, until the run, the caller's right or the stream's time ends."""
    services, clock = application.services, application.services.clock
    until = clock.monotonic() + services.settings.stream_seconds
    yield _opening(services)
    beat_at = clock.monotonic() + HEARTBEAT_SECONDS
    with application.watches.following(services, status) as watch:
        while await permit.holds():
            if watch.latest.tag != known:
                latest = watch.latest
                yield _event(latest)
                known, beat_at = latest.tag, clock.monotonic() + HEARTBEAT_SECONDS
                if latest.ended:
                    return
                continue
            now = clock.monotonic()
            if watch.over or services.inflight.closing or now >= until:
                return
            if now >= beat_at:
                yield HEARTBEAT
                beat_at = now + HEARTBEAT_SECONDS
                continue
            pause_seconds = min(beat_at, permit.check_at, until) - now
            await first_of(watch.news(known), services.slots.wait(clock, pause_seconds))


def _known(request: Request) -> str:
    """Return the tag that the caller has; also from tools that keep `id:` without its quotes."""
    known = request.headers.get("last-event-id", "").strip()
    return known if known.startswith('"') or not known else f'"{known}"'


def _event(state: Shown) -> bytes:
    return event(EVENT, state.tag, state.body)


def _opening(services: Services) -> bytes:
    return opening(RETRY_SECONDS + RETRY_SPREAD_SECONDS * services.jitter())


def _head() -> Response:
    """Return the headers of a stream; its length is not known."""
    response = Response(headers=HEADERS, media_type=MEDIA_TYPE)
    del response.headers["content-length"]
    return response


ROUTES = (route("/v1/jobs/{job}/events", watch_job, "GET", catalog.WATCH_JOB),)
