"""Vendors' error bodies, read into one value; what each part means is said elsewhere.

Forms: OpenAI's nested error, Mistral's flat one, Anthropic's with `details.error_code`, Google's
with a list of `details` (sometimes within a list of one), `detail` lists, plain text.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorBody:
    """The parts of a vendor's error, as far as they were there.

    `names` are the vendor's names for it in lower case, the most precise one first. `status` is a
    numeric `code`, as OpenRouter, LiteLLM, Google and llama.cpp send it. `quota_ids` are those of
    Google's `QuotaFailure`; `explained` says whether Google sent any details.
    """

    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    status: int | None = None
    names: tuple[str, ...] = ()
    quota_ids: tuple[str, ...] = ()
    explained: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_error(body: Any) -> ErrorBody:
    """Return the parts of an error body, whatever it is; text is its message."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, dict):
        return ErrorBody(message=body if isinstance(body, str) else "")
    error = body.get("error") or body
    if not isinstance(error, dict):
        return ErrorBody(message=str(error))
    metadata = error.get("metadata")
    param, detail = _first_detail(error.get("detail"))
    return ErrorBody(
        message=_text(error.get("message")) or detail or json.dumps(error),
        code=_text(error.get("code")),
        type=_text(error.get("type")),
        param=_text(error.get("param")) or param,
        status=_status(error.get("code")),
        names=tuple(name.lower() for name in _names(error) if name),
        quota_ids=tuple(_quota_ids(error)),
        explained=bool(error.get("details")),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _names(error: Mapping[str, Any]) -> Iterator[str | None]:
    details, inner = error.get("details"), error.get("innererror")
    if isinstance(details, dict):
        yield _text(details.get("error_code"))
    for detail in _details(error, "ErrorInfo"):
        yield _text(detail.get("reason"))
    if isinstance(inner, dict):
        yield _text(inner.get("code"))
    yield _text(error.get("code"))
    yield _text(error.get("type"))
    yield _text(error.get("status"))


def _quota_ids(error: Mapping[str, Any]) -> Iterator[str]:
    for detail in _details(error, "QuotaFailure"):
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict) and isinstance(violation.get("quotaId"), str):
                yield violation["quotaId"]


def _details(error: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield Google's details of a kind, such as `ErrorInfo`."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith(f".{kind}"):
            yield detail


def _first_detail(detail: Any) -> tuple[str | None, str]:
    """Return the first parameter and the message of a 422 `detail`, a text or a list."""
    first = detail[0] if isinstance(detail, list) and detail else detail
    if not isinstance(first, dict):
        return None, _text(first) or ""
    place = first.get("loc")
    steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
    return ".".join(steps) or None, _text(first.get("msg")) or ""


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _status(code: Any) -> int | None:
    text = _text(code) or ""
    is_status = len(text) == 3 and text.isascii() and text.isdigit() and text >= "400"
    return int(text) if is_status else None
