"""The `dead_letter` target: one message that its topic gave up, recorded and acknowledged."""

from starlette.requests import Request
from starlette.responses import Response

from functions import telemetry
from functions.core.errors import LedgerError, UnreadableRecord
from functions.dead_letters import record_dead_letter
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


async def receive(application: Application, request: Request) -> Response:
    """Answer one push delivery of the dead letters' subscription.

    What is on record is acknowledged, whatever it was; nothing comes after a dead-letter topic.
    """
    await verify_caller(application, request)
    body = await read_body(request, MAX_PUSH_BYTES)
    identity = message_id(body)
    telemetry.about(message_id=identity)
    try:
        message = read_envelope(body)
    except UnreadableRecord as exc:
        await record_unreadable(application, body, str(exc))
        return Response(status_code=ACK)
    telemetry.follow(message.attributes.get("traceparent"))
    try:
        await record_dead_letter(application.services, message, identity)
    except LedgerError as exc:
        telemetry.error("dead letter not recorded", exc=exc)
        return Response(status_code=NACK)
    return Response(status_code=ACK)


ROUTES = (route("/", receive, "POST"), route("/health", health, "GET"))


async def answer_dead_letter(application: Application, request: Request) -> Response:
    """Answer any request to the `dead_letter` target."""
    return await respond(application, ROUTES, request)
