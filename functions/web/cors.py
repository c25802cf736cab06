"""Cross-origin calls from browsers: none, unless `EMPANEL_CORS_ORIGINS` names the page's origin.

Callers authenticate with a header that no browser adds by itself, so credentials are not allowed,
and an origin that is not named is answered as if it had sent none.
"""

from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response

ALLOWED_METHODS = "GET, POST, PUT, DELETE"
ALLOWED_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Prefer,"
    " traceparent"
)
EXPOSED_HEADERS = "ETag, Location, Retry-After, WWW-Authenticate"
PREFLIGHT_SECONDS = 600


def preflight(request: Request, origins: Collection[str]) -> Response | None:
    """Answer a browser that asks whether it may call; None for any other request."""
    asks = request.method == "OPTIONS" and "access-control-request-method" in request.headers
    if not asks or request.headers.get("origin") not in origins:
        return None
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": ALLOWED_METHODS,
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        },
    )


def opened(request: Request, response: Response, origins: Collection[str]) -> Response:
    """Let a page of one of the origins read the answer."""
    if not origins:
        return response
    response.headers.append("Vary", "Origin")
    origin = request.headers.get("origin")
    if origin in origins:
        response.headers["Access-Control-Allow-Origin"] = str(origin)
        response.headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
    return response
