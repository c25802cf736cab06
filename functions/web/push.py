"""The push and scheduler targets: verify the caller, decode the envelope, acknowledge.

What a delivery came to is mapped to a status by `STATUS_OF`, an outage to a nack by `_evaluated`. A
message nobody can read is recorded and acknowledged; what cannot be recorded, and everything
unexpected, is answered with an error by `functions.web.routing`, and so comes again. A provider's
trouble is never answered with an error: push backoff would slow every message.
"""

import asyncio
import base64
import binascii
import hashlib
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions import telemetry
from functions.audit import audit
from functions.config import CLEAN_UP_SECONDS
from functions.core.errors import (
    CallerRefused,
    LedgerError,
    ObjectError,
    PublishFailed,
    UnreadableRecord,
)
from functions.core.ports import Message
from functions.dispatch import SeatMessage, decode
from functions.evaluation import Delivery
from functions.evaluation import evaluate as evaluate_seat
from functions.incidents import open_incident, open_unreadable
from functions.reconciliation import repair
from functions.tracing import Attributes
from functions.web import problems
from functions.web.application import Application
from functions.web.authentication import bearer
from functions.web.bodies import read_body
from functions.web.routing import health, respond, route
from functions.web.traced import in_delivery_span

MAX_PUSH_BYTES = 15 * 1024 * 1024  # a message holds 10 MB, a third more in base64
PREVIEW_BYTES = 200

ACK, NACK = 204, 503
STATUS_OF = {
    Delivery.ENDED: ACK,  # settled, reused, closed, canceled, exhausted, permanently failed
    Delivery.DEFERRED: ACK,  # due later or held by another: a timer in the ledger has it
    Delivery.REPUBLISHED: ACK,  # no slot, no time, shutting down: a fresh message has it
    Delivery.UNKNOWN_SEAT: ACK,  # recorded as an incident
}


async def evaluate(application: Application, request: Request) -> Response:
    """Answer one push delivery of the evaluate subscription."""
    await verify_caller(application, request)
    body = await read_body(request, MAX_PUSH_BYTES)
    identity = message_id(body)
    telemetry.about(message_id=identity)
    try:
        message = decode(read_envelope(body))
    except UnreadableRecord as exc:
        await record_unreadable(application, body, str(exc))
        return Response(status_code=ACK)
    if application.services.metrics.live:
        message = replace(message, published_at=published_at(body))
    telemetry.follow(message.traceparent)
    telemetry.about(job=message.job, run=message.run, seat=message.seat)
    return await in_delivery_span(
        application.services.tracing,
        request,
        topic=application.services.settings.evaluate_topic,
        traceparent=message.traceparent,
        about=_described(message, identity),
        acknowledging=_evaluated(application, message, body),
    )


def _described(message: SeatMessage, identity: str | None) -> Attributes:
    return {
        "messaging.message.id": identity or "",
        "empanel.job": message.job,
        "empanel.run": message.run,
        "empanel.seat_index": message.seat,
    }


async def _evaluated(application: Application, message: SeatMessage, body: bytes) -> int:
    services = application.services
    seconds = services.settings.handler_deadline_seconds
    until = services.clock.monotonic() + seconds
    try:
        async with asyncio.timeout(seconds + CLEAN_UP_SECONDS):
            delivery = await evaluate_seat(services, message, until=until)
    except (LedgerError, ObjectError, PublishFailed, TimeoutError) as exc:
        telemetry.error("delivery failed", exc=exc)
        return NACK
    except UnreadableRecord as exc:
        await open_unreadable(services, exc, message.job)
        return ACK
    if delivery is Delivery.UNKNOWN_SEAT:
        await record_unreadable(application, body, "there is no such job or seat")
    return STATUS_OF[delivery]


async def record_unreadable(application: Application, body: bytes, reason: str) -> None:
    """Record a message that nobody can work on, named by the digest of its bytes.

    Raises:
        LedgerUnavailable: it is not on record, so it must not be acknowledged.
    """
    digest = hashlib.sha256(body).hexdigest()
    await open_incident(
        application.services,
        "unreadable_message",
        digest,
        detail=reason,
        digest=digest,
        message_id=message_id(body),
        preview=body[:PREVIEW_BYTES].decode("utf-8", "backslashreplace"),
    )


def read_envelope(body: bytes) -> Message:
    """Return the message in a push envelope.

    Raises:
        UnreadableRecord: it is no envelope, or its data is not base64.
    """
    message = _envelope(body).get("message")
    if not isinstance(message, dict):
        raise UnreadableRecord("the envelope holds no message")
    data, attributes = message.get("data", ""), message.get("attributes") or {}
    if not isinstance(data, str) or not isinstance(attributes, dict):
        raise UnreadableRecord("the message's data is no text, or its attributes are no object")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise UnreadableRecord("the message's data is not base64") from exc
    texts = {str(key): value for key, value in attributes.items() if isinstance(value, str)}
    return Message(data=decoded, attributes=texts)


def _envelope(body: bytes) -> dict[str, Any]:
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise UnreadableRecord("the body is not JSON") from exc
    if not isinstance(envelope, dict):
        raise UnreadableRecord("the body is not an envelope")
    return envelope


def message_id(body: bytes) -> str | None:
    """Return the ID in a push envelope, None where there is none to read."""
    try:
        message = _envelope(body).get("message")
    except UnreadableRecord:
        return None
    identity = message.get("messageId") if isinstance(message, dict) else None
    return identity[:100] if isinstance(identity, str) and identity.isascii() else None


def published_at(body: bytes) -> datetime | None:
    """Return when the message in a push envelope was published, None where that cannot be read."""
    message = _envelope(body).get("message")
    text = message.get("publishTime") if isinstance(message, dict) else None
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


async def reconcile(application: Application, request: Request) -> Response:
    """Answer the scheduler: `mode=repair` looks for lost work until its period is nearly over.

    `mode=audit` counts and verifies; what it could not look at makes it answer 503, never 200.
    """
    await verify_caller(application, request)
    mode = request.query_params.get("mode")
    if mode == "repair":
        return JSONResponse((await repair(application.services)).view())
    if mode == "audit":
        result = await audit(application.services)
        return JSONResponse(result.view(), status_code=200 if result.complete else NACK)
    raise problems.bad_request("the query parameter 'mode' must be 'repair' or 'audit'")


async def verify_caller(application: Application, request: Request) -> None:
    """Refuse every caller but the configured accounts, before the body is read.

    Raises:
        Problem: 401 without a token, 403 with one that is not valid here.
    """
    token = bearer(request)
    if token is None or application.callers is None:
        raise problems.unauthorized("this target needs an identity token")
    try:
        await application.callers.verify(token)
    except CallerRefused as exc:
        telemetry.warning("caller refused", reason=str(exc))
        raise problems.forbidden("the identity token does not allow this call") from exc


EVALUATE_ROUTES = (route("/", evaluate, "POST"), route("/health", health, "GET"))
RECONCILE_ROUTES = (route("/", reconcile, "POST"), route("/health", health, "GET"))


async def answer_evaluate(application: Application, request: Request) -> Response:
    """Answer any request to the `evaluate` target."""
    return await respond(application, EVALUATE_ROUTES, request)


async def answer_reconcile(application: Application, request: Request) -> Response:
    """Answer any request to the `reconcile` target."""
    return await respond(application, RECONCILE_ROUTES, request)
