"""The `notify` target: one push delivery of one notification, and what it is acknowledged with.

A receiver's trouble is on record with a time for the next try, and never answered with an error:
push backoff would slow every notification.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from functions import telemetry
from functions.core.errors import LedgerError, UnreadableRecord
from functions.incidents import open_unreadable
from functions.notification import Notified, notify
from functions.outbox import decode
from functions.web.application import Application
from functions.web.bodies import read_body
from functions.web.push import (
    ACK,
    MAX_PUSH_BYTES,
    NACK,
    message_id,
    read_envelope,
    record_unreadable,
    verify_caller,
)
from functions.web.routing import health, respond, route
from functions.web.traced import in_delivery_span

DELIVERY_SECONDS = 60.0  # far below the push ack deadline; a try has limits of its own
STATUS_OF = {
    Notified.ENDED: ACK,  # delivered, gone, given up; or so before
    Notified.DEFERRED: ACK,  # due later, or another worker is at it: a timer in the ledger has it
    Notified.UNKNOWN: ACK,  # recorded as an incident
}


async def deliver(application: Application, request: Request) -> Response:
    """Answer one push delivery of the notify subscription."""
    await verify_caller(application, request)
    body = await read_body(request, MAX_PUSH_BYTES)
    telemetry.about(message_id=message_id(body))
    try:
        message = read_envelope(body)
        name = decode(message)
    except UnreadableRecord as exc:
        await record_unreadable(application, body, str(exc))
        return Response(status_code=ACK)
    telemetry.follow(message.attributes.get("traceparent"))
    telemetry.about(notification=name)
    return await in_delivery_span(
        application.services.tracing,
        request,
        topic=application.services.settings.notify_topic,
        traceparent=message.attributes.get("traceparent"),
        about={"empanel.notification": name},
        acknowledging=_delivered(application, name, body),
    )


async def _delivered(application: Application, name: str, body: bytes) -> int:
    try:
        async with asyncio.timeout(DELIVERY_SECONDS):
            notified = await notify(application.services, name)
    except (LedgerError, TimeoutError) as exc:
        telemetry.error("notification not handled", exc=exc)
        return NACK
    except UnreadableRecord as exc:
        await open_unreadable(application.services, exc, name)
        return ACK
    if notified is Notified.UNKNOWN:
        await record_unreadable(application, body, "there is no such notification")
    return STATUS_OF[notified]


ROUTES = (route("/", deliver, "POST"), route("/health", health, "GET"))


async def answer_notify(application: Application, request: Request) -> Response:
    """Answer any request to the `notify` target."""
    return await respond(application, ROUTES, request)
