"""From an error response to a failure code: by (status, vendor's code) first, then by status.

The status alone does not tell: 429 means both "wait" and "pay". Hints are read only once the code
says that waiting can help. Vendors' codes: OpenAI, Azure, Mistral, OpenRouter, llama.cpp, LiteLLM.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from functions.core.hints import read_hint, read_should_retry
from functions.core.retries import PERMANENT_CODES
from functions.core.verdicts import CallFailure
from functions.providers.redaction import Redact, safe_preview

_BY_VENDOR_CODE = {
    code: ours
    for ours, codes in {
        "quota_exhausted": (
            "insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded"
            " project_spend_limit_exceeded organization_usage_limit_exceeded"
            " billing_hard_limit_reached billing_not_active quota_exceeded payment_required"
            " billing_error"
        ),
        "rate_limited": "rate_limit_exceeded slow_down rate_limit_error",
        "overloaded": "server_is_overloaded overloaded_error",
        "invalid_credential": "invalid_api_key authentication_error",
        "permission_denied": "permission_error",
        "model_not_found": "model_not_found",
        "input_too_large": (
            "context_length_exceeded exceed_context_size_error string_above_max_length"
            " request_too_large"
        ),
        "content_blocked": "content_filter content_policy_violation responsibleaipolicyviolation",
        "region_unsupported": "unsupported_country_region_territory",
        "provider_error": "server_error api_error",
    }.items()
    for code in codes.split()
}
_BY_STATUS = {
    401: "invalid_credential",
    402: "quota_exhausted",
    403: "permission_denied",
    404: "model_not_found",
    408: "timeout",
    409: "provider_error",
    413: "input_too_large",
    425: "provider_error",
    429: "rate_limited",
    498: "overloaded",  # Groq: capacity exceeded
    499: "timeout",  # Google: the request was cancelled on its way
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorBody:
    """The parts of a vendor's error, as far as they were there."""

    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    status: int | None = None  # a numeric `code`, as OpenRouter, LiteLLM and llama.cpp send it
    metadata: Mapping[str, Any] = field(default_factory=dict)


def failure(
    status: int,
    headers: Mapping[str, str],
    body: Any,
    now: datetime,
    redact: Redact,
) -> CallFailure:
    """Return the failure an error response, or an error inside a 200, means.

    Args:
        status: of the response.
        headers: names in lower case, or a case-insensitive mapping.
        body: the parsed JSON body, or its text when it is no JSON.
        now: aware time the hints count from.
        redact: removes the endpoint's secrets.
    """
    error = read_error(body)
    should_retry = read_should_retry(headers)
    code = classify(status if status >= 300 else error.status or status, error)
    if code == "invalid_request" and should_retry:
        code = "provider_error"  # the vendor calls its own 4xx transient (OpenAI's SDK obeys too)
    return CallFailure(
        code=code,
        message=safe_preview(_sentence(status, error), redact),
        http_status=status,
        hint_seconds=None if code in PERMANENT_CODES else read_hint(headers, body, now),
        should_retry=should_retry,
    )


def classify(status: int, error: ErrorBody) -> str:
    """Return our code for a status and a vendor's error; unknown vendor codes count by status."""
    if error.metadata.get("limit_source") == "openrouter_in_flight_budget":
        return "rate_limited"  # a 402 that ends by itself once running requests have ended
    known = (_BY_VENDOR_CODE.get((name or "").lower()) for name in (error.code, error.type))
    vendor = next((code for code in known if code is not None), None)
    if vendor == "rate_limited" and status == 503:  # `slow_down` has meant both
        return "overloaded"
    return vendor or by_status(status)


def by_status(status: int) -> str:
    """Return our code for an HTTP status that came without a known vendor's code."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500 or status < 300:  # an error inside a 200 that says nothing about itself
        return "provider_error"
    return "invalid_request"  # also redirects, which are not followed


def read_error(body: Any) -> ErrorBody:
    """Read OpenAI's nested error, Mistral's flat one, `detail` lists, lists of one, and text."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, dict):
        return ErrorBody(message=body if isinstance(body, str) else "")
    error = body.get("error") or body
    if not isinstance(error, dict):
        return ErrorBody(message=str(error))
    metadata = error.get("metadata")
    param, detail = _details(error.get("detail"))
    return ErrorBody(
        message=_text(error.get("message")) or detail or json.dumps(error),
        code=_text(error.get("code")),
        type=_text(error.get("type")),
        param=_text(error.get("param")) or param,
        status=_status(error.get("code")),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _sentence(status: int, error: ErrorBody) -> str:
    names = " ".join(dict.fromkeys(n for n in (error.type, error.code) if n))
    param = f" (param {error.param})" if error.param else ""
    head = f"HTTP {status} {names}".rstrip() + param
    return f"{head}: {error.message}" if error.message else head


def _details(detail: Any) -> tuple[str | None, str]:
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
