"""From an error response to a failure: by the vendor's names and message first, then by status.

The status alone does not tell: 429 means both "wait" and "pay". Hints are read only once the code
says that waiting can help. The tables are in `functions.providers.vendor_codes`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from functions.core.hints import read_hint, read_should_retry
from functions.core.retries import PERMANENT_CODES
from functions.core.verdicts import CallFailure
from functions.providers.error_bodies import ErrorBody, read_error
from functions.providers.quota_resets import free_again, is_daily
from functions.providers.redaction import Redact, safe_preview
from functions.providers.vendor_codes import (
    BY_LIMIT_SOURCE,
    BY_NAME,
    BY_STATUS,
    MESSAGE_RULES,
    NO_QUOTA,
)

MOST_BLIND_RETRIES = 2  # Google's advice for a 429 of Vertex that does not say which quota it was
_READ_CHARACTERS = 2000  # of a message


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
    code = _code(status if status >= 300 else error.status or status, error, should_retry)
    return CallFailure(
        code=code,
        message=safe_preview(_sentence(status, error), redact),
        http_status=status,
        hint_seconds=None if code in PERMANENT_CODES else read_hint(headers, body, now),
        should_retry=should_retry,
        until=free_again(error, now) if code == "quota_exhausted" else None,
        most_retries=MOST_BLIND_RETRIES if code == "rate_limited" and _is_blind(error) else None,
    )


def classify(status: int, error: ErrorBody) -> str:
    """Return our code for a status and a vendor's error; unknown vendor codes count by status."""
    return known(status, error) or by_status(status)


def known(status: int, error: ErrorBody) -> str | None:
    """Return our code for what the vendor says in words, None when it says nothing known."""
    codes = [code for name in error.names if (code := BY_NAME.get(name)) is not None]
    if (source := BY_LIMIT_SOURCE.get(str(error.metadata.get("limit_source")))) is not None:
        return source
    if "flagged_input" in error.metadata:  # OpenRouter's moderation, with a 403
        return "content_blocked"
    if "quota_exhausted" in codes or _is_used_up(status, error):
        return "quota_exhausted"
    if codes:  # `slow_down` has meant both
        return "overloaded" if codes[0] == "rate_limited" and status == 503 else codes[0]
    return _by_message(status, error)


def by_status(status: int) -> str:
    """Return our code for an HTTP status that came without a known vendor's code."""
    if status in BY_STATUS:
        return BY_STATUS[status]
    if status >= 500 or status < 300:  # an error inside a 200 that says nothing about itself
        return "provider_error"
    return "invalid_request"  # also redirects, which are not followed


def _code(status: int, error: ErrorBody, should_retry: bool | None) -> str:
    """Return our code; what a vendor itself calls transient is so, but for a bill to be paid."""
    code = classify(status, error)
    if should_retry and code in PERMANENT_CODES and code != "quota_exhausted":
        return "provider_error"
    return code


def _is_used_up(status: int, error: ErrorBody) -> bool:
    """Whether Google's 429 means a day's quota, or a tier without any: no rate limit to wait out.

    Its `RetryInfo` says a few seconds all the same.
    """
    if status != 429:
        return False
    return is_daily(error) or (_is_google(error) and bool(NO_QUOTA.search(error.message)))


def _is_blind(error: ErrorBody) -> bool:
    return _is_google(error) and not error.explained


def _is_google(error: ErrorBody) -> bool:
    return "resource_exhausted" in error.names


def _by_message(status: int, error: ErrorBody) -> str | None:
    message = error.message[:_READ_CHARACTERS]
    for rule in MESSAGE_RULES:
        beside = rule.name is None or rule.name in error.names
        if status in rule.statuses and beside and rule.pattern.search(message):
            return rule.code
    return None


def _sentence(status: int, error: ErrorBody) -> str:
    names = " ".join(dict.fromkeys(n for n in (error.type, error.code) if n))
    param = f" (param {error.param})" if error.param else ""
    head = f"HTTP {status} {names}".rstrip() + param
    return f"{head}: {error.message}" if error.message else head
