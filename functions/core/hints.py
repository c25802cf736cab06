"""What a provider says about when to ask again, read from headers and body.

Order: `retry-after-ms`, then `retry-after` (seconds or an HTTP date), then the same two as a proxy
of LiteLLM hands them on (`llm_provider-*`), then Gemini's `RetryInfo` in the body.
`x-ratelimit-reset-*` is no hint: it tells when a quota is full again, in Go durations, dates or
seconds. A value that breaks its form is ignored and the next source is asked. Nothing here raises,
and every hint is finite.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

PREFIXES = ("", "llm_provider-")

_NUMBER = re.compile(r"\+?[0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]+)?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)s")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_MONTH = r"(?P<month>[A-Z][a-z]{2})"
# RFC 9110, section 5.6.7: the current form, and the two obsolete ones a recipient must still read.
_DATES = (
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(
        rf"[A-Z][a-z]{{5,8}}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"
    ),
    re.compile(rf"[A-Z][a-z]{{2}} {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def read_hint(headers: Mapping[str, str], body: Any, now: datetime) -> float | None:
    """Return the seconds the provider asks to wait from `now`, or None when it does not say.

    Args:
        headers: names in lower case, or a case-insensitive mapping.
        body: the parsed JSON body, whatever it is.
        now: aware; an HTTP date in the past means 0.
    """
    for prefix in PREFIXES:
        milliseconds = seconds_of(headers.get(f"{prefix}retry-after-ms"))
        if milliseconds is not None:
            return milliseconds / 1000
        value = headers.get(f"{prefix}retry-after")
        for hint in (seconds_of(value), seconds_until(value, now)):
            if hint is not None:
                return hint
    return retry_info_seconds(body)


def read_should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return what `x-should-retry` says, None when it says neither true nor false."""
    for prefix in PREFIXES:
        said = headers.get(f"{prefix}x-should-retry", "").strip().lower()
        if said in ("true", "false"):
            return said == "true"
    return None


def seconds_of(value: str | None) -> float | None:
    """Return a non-negative finite decimal number, surrounding spaces allowed, else None."""
    text = (value or "").strip()
    if _NUMBER.fullmatch(text) is None:
        return None
    seconds = float(text)
    return seconds if math.isfinite(seconds) else None


def seconds_until(value: str | None, now: datetime) -> float | None:
    """Return the seconds from `now` to an HTTP date, 0 when it has passed, else None."""
    text = (value or "").strip()
    match = next((m for form in _DATES if (m := form.fullmatch(text))), None)
    if match is None:
        return None
    try:
        moment = _moment(match.groupdict(), now)
    except ValueError:  # the 31st of February, an unknown month, hour 24
        return None
    return max(0.0, (moment - now).total_seconds())


def retry_info_seconds(body: Any) -> float | None:
    """Return Gemini's `RetryInfo.retryDelay` ("34s", "600.5s") of an error body, else None."""
    if isinstance(body, list) and len(body) == 1:  # the API wraps some errors in a list
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith(".RetryInfo"):
            match = _DURATION.fullmatch(str(detail.get("retryDelay", "")))
            return seconds_of(match[1]) if match else None
    return None


def _moment(parts: Mapping[str, str], now: datetime) -> datetime:
    year = int(parts["year"])
    if len(parts["year"]) == 2:  # RFC 9110: over 50 years ahead means the past century
        year += now.year // 100 * 100
        year -= 100 if year > now.year + 50 else 0
    month = _MONTHS.index(parts["month"].lower()) + 1
    clock = (int(parts["hour"]), int(parts["minute"]), int(parts["second"]))
    return datetime(year, month, int(parts["day"]), *clock, tzinfo=UTC)
