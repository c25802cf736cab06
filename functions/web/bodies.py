"""The bytes of a request body: media type first, then at most so many bytes as the limit allows."""

from starlette.requests import Request

from functions.web import problems

MAX_BODY_BYTES = 1024 * 1024
JSON = "application/json"
NDJSON = "application/x-ndjson"


def require_json(request: Request) -> None:
    """Refuse a body that is not announced as JSON: `application/json` or `application/*+json`.

    Raises:
        Problem: 415, also for a charset other than UTF-8 and for any content encoding.
    """
    media_type = _media_type(request)
    if not (media_type == JSON or _is_json_suffixed(media_type)):
        raise _unsupported(media_type, JSON)
    _require_plain_utf8(request, JSON)


def require_ndjson(request: Request) -> None:
    """Refuse a body that is not announced as `application/x-ndjson`.

    Raises:
        Problem: 415, also for a charset other than UTF-8 and for any content encoding.
    """
    media_type = _media_type(request)
    if media_type != NDJSON:
        raise _unsupported(media_type, NDJSON)
    _require_plain_utf8(request, NDJSON)


async def read_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body; reading stops at the first byte beyond the limit.

    Raises:
        Problem: 413.
        ClientDisconnect: the caller went away before the end of the body.
    """
    if _announced_bytes(request) > limit_bytes:
        raise problems.too_large(limit_bytes)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit_bytes:
            raise problems.too_large(limit_bytes)
        body += chunk
    return bytes(body)


def _announced_bytes(request: Request) -> int:
    """Return Content-Length, 0 when there is none to trust; the count while reading decides."""
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        return 0
    # More digits than any limit has: not worth an int(), which refuses thousands of them.
    return int(text[:18])


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json_suffixed(media_type: str) -> bool:
    return media_type.startswith("application/") and media_type.endswith("+json")


def _require_plain_utf8(request: Request, accept: str) -> None:
    charsets = _charsets(request.headers.get("content-type", ""))
    if not charsets <= {"utf-8", "utf8"}:
        raise problems.unsupported_media_type("the body must be UTF-8", accept)
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise problems.unsupported_media_type("the body must not be compressed", accept)


def _charsets(content_type: str) -> set[str]:
    """Return every charset that is named, since readers differ in which of two they believe."""
    parameters = (part.partition("=") for part in content_type.split(";")[1:])
    return {
        value.strip().strip('"').lower()
        for name, _, value in parameters
        if name.strip().lower() == "charset"
    }


def _unsupported(media_type: str, accept: str) -> problems.Problem:
    sent = media_type or "nothing"
    detail = f"Content-Type must be {accept}, and {sent} was sent"
    return problems.unsupported_media_type(detail, accept)
