"""A request, or the delivery of a message, answered in a span of its own."""

from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from functions.tracing import Attributes, Tracing, answered

PROBE = "/health"  # the platform's, every few seconds


async def in_request_span(
    tracing: Tracing, request: Request, answering: Awaitable[Response]
) -> Response:
    """Answer a request in a span of its own, the platform's probes in none."""
    if not tracing.live or request.url.path == PROBE:
        return await answering
    with tracing.serving(request.method, request.url.path, request.headers) as span:
        response = await answering
        answered(span, response.status_code)
    return response


async def in_delivery_span(
    tracing: Tracing,
    request: Request,
    *,
    topic: str,
    traceparent: str | None,
    about: Attributes,
    acknowledging: Awaitable[int],
) -> Response:
    """Acknowledge the delivery of a message in a span of the trace that the message belongs to."""
    with tracing.processing(topic, traceparent, request.headers, about) as span:
        status = await acknowledging
        answered(span, status)
    return Response(status_code=status)
