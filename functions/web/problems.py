"""Problem details: every error answer of the interface (RFC 9457), one constructor per meaning.

`type` is a stable name for programs, `urn:empanel:problem:<name>`; `title` says the same for people
and never varies; `detail` and `errors` are about this request. `errors[].pointer` is a JSON pointer
in its plain string form (RFC 6901, `/seats/0/model`); the empty pointer is the whole body.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from functions.core.errors import EmpanelError
from functions.web.faults import MAX_FAULTS, Fault

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:empanel:problem:"
MAX_TEXT_CHARACTERS = 1000


class Problem(EmpanelError):
    """An answer that says what is wrong; raised by request readers, rendered once by the routes.

    `extensions` are further members of the document, such as the report's `missing`.
    """

    def __init__(
        self,
        status: int,
        name: str,
        title: str,
        detail: str,
        *,
        errors: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status = status
        self.type = TYPE_PREFIX + name
        self.title = title
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.extensions = dict(extensions or {})

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document; long texts are cut and at most `MAX_FAULTS` errors shown.

        `Retry-After` stands in it too: in a batch a problem has no header of its own.
        """
        document: dict[str, Any] = {
            **self.extensions,
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": _shown(self.detail),
        }
        if self.errors:
            document["errors"] = [_entry(fault) for fault in self.errors[:MAX_FAULTS]]
        if "Retry-After" in self.headers:
            document["retry_after_seconds"] = int(self.headers["Retry-After"])
        return document

    def to_response(self) -> Response:
        """Return the answer; it is not to be cached."""
        return Response(
            json.dumps(self.to_document()).encode("ascii"),
            status_code=self.status,
            headers={"Cache-Control": "no-store", **self.headers},
            media_type=MEDIA_TYPE,
        )


def _entry(fault: Fault) -> dict[str, str]:
    return {"pointer": _shown(fault.pointer), "detail": _shown(fault.detail)}


def _shown(text: str) -> str:
    """Cut a text and spell out lone surrogates, which strict readers of the answer refuse."""
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[: MAX_TEXT_CHARACTERS - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _seconds(seconds: float) -> str:
    return str(max(1, math.ceil(seconds)))


def _summary(errors: Sequence[Fault]) -> str:
    first = f"{errors[0].pointer or 'the body'}: {errors[0].detail}"
    if len(errors) == 1:
        return first
    # Readers stop counting there.
    count = f"at least {MAX_FAULTS}" if len(errors) >= MAX_FAULTS else str(len(errors))
    return f"{count} rules are broken; the first: {first}"


def not_json(detail: str, errors: Sequence[Fault] = ()) -> Problem:
    """400: the body is not JSON that all readers understand alike."""
    return Problem(400, "not-json", "The body is not valid JSON", detail, errors=errors)


def bad_request(detail: str, errors: Sequence[Fault] = ()) -> Problem:
    """400: a query parameter or a header breaks its rule."""
    return Problem(400, "bad-request", "The request is malformed", detail, errors=errors)


def unauthorized(detail: str, *, invalid_token: bool = False) -> Problem:
    """401: no credential, or with `invalid_token` one that is not accepted (RFC 6750)."""
    challenge = 'Bearer realm="empanel"' + (', error="invalid_token"' if invalid_token else "")
    headers = {"WWW-Authenticate": challenge}
    return Problem(401, "unauthorized", "Authentication is required", detail, headers=headers)


def forbidden(detail: str) -> Problem:
    """403: the caller is known, but its role, or where the form came from, does not allow this."""
    return Problem(403, "forbidden", "The caller may not do this", detail)


def not_found(detail: str) -> Problem:
    """404: unknown, or of another tenant; the text must not tell the two apart."""
    return Problem(404, "not-found", "There is no such resource", detail)


def method_not_allowed(method: str, allowed: Iterable[str]) -> Problem:
    """405: the path exists, but not for this method."""
    allow = ", ".join(sorted(allowed))
    detail = f"{method} is not possible here; allowed: {allow}"
    headers = {"Allow": allow}
    return Problem(405, "method-not-allowed", "Method not allowed", detail, headers=headers)


def conflict(detail: str, extensions: Mapping[str, Any] | None = None) -> Problem:
    """409: the resource is not in a state that allows this."""
    title = "The resource is in another state"
    return Problem(409, "wrong-state", title, detail, extensions=extensions)


def gone(detail: str) -> Problem:
    """410: it existed, and what is needed of it has been purged."""
    return Problem(410, "gone", "The data has been purged", detail)


def too_large(limit_bytes: int) -> Problem:
    """413: the body is larger than `limit_bytes`."""
    detail = f"the body is larger than {limit_bytes} bytes"
    return Problem(413, "too-large", "The body is too large", detail)


def unsupported_media_type(detail: str, accept: str) -> Problem:
    """415: the body is in a format or an encoding that is not read here; `accept` names those."""
    headers = {"Accept": accept, "Accept-Encoding": "identity"}
    return Problem(415, "unsupported-media-type", "Unsupported media type", detail, headers=headers)


def unprocessable(errors: Sequence[Fault]) -> Problem:
    """422: JSON that breaks at least one rule; all rules found broken are told together."""
    title = "The request breaks a rule"
    return Problem(422, "invalid-request", title, _summary(errors), errors=errors)


def key_conflict(detail: str) -> Problem:
    """422: the idempotency key was used before with another body; nothing was changed."""
    title = "The idempotency key belongs to another request"
    return Problem(422, "key-conflict", title, detail)


def rate_limited(detail: str, retry_after_seconds: float) -> Problem:
    """429: a cap of the tenant is reached for now."""
    headers = {"Retry-After": _seconds(retry_after_seconds)}
    return Problem(429, "rate-limited", "Too many requests", detail, headers=headers)


def internal_error() -> Problem:
    """500: a fault of the service; what it was is in the log, never in the answer."""
    detail = "the request could not be processed; the fault has been logged"
    return Problem(500, "internal-error", "Internal error", detail)


def unavailable(
    detail: str, retry_after_seconds: float = 5, *, extensions: Mapping[str, Any] | None = None
) -> Problem:
    """503: a part that the answer depends on cannot be reached; the caller may try again."""
    title, headers = "Temporarily unavailable", {"Retry-After": _seconds(retry_after_seconds)}
    return Problem(503, "unavailable", title, detail, headers=headers, extensions=extensions)
