"""Retry hints: what is a number of seconds, what is ignored, and which source is asked first."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.core.hints import read_hint, read_should_retry

NOW = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)


def gemini(delay: Any) -> dict[str, Any]:
    """Return a Gemini error body with a RetryInfo."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure"}
    return {"error": {"code": 429, "details": [quota, info]}}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("-3", None, id="A03-negative"),
        pytest.param("+3", 3.0, id="A03-plus"),
        pytest.param("1.5", 1.5, id="A03-decimal"),
        pytest.param("0", 0.0, id="A03-zero"),
        pytest.param("", None, id="A03-empty"),
        pytest.param("  7  ", 7.0, id="A03-spaces"),
        pytest.param("nan", None, id="A03-nan"),
        pytest.param("inf", None, id="A03-inf"),
        pytest.param("1e9", 1e9, id="A03-thirty-years"),
        pytest.param("1e999", None, id="A03-overflow"),
        pytest.param("12, 30", None, id="A03-list"),
        pytest.param("Sun", None, id="A03-weekday"),
        pytest.param("1_000", None, id="A03-underscore"),
        pytest.param("٣", None, id="A03-other-digits"),
        pytest.param("61", 61.0, id="A05-over-a-minute"),
        pytest.param("250000", 250000.0, id="A05-days"),
        pytest.param("Mon, 02 Mar 2026 10:00:20 GMT", 20.0, id="A02-date"),
        pytest.param("Monday, 02-Mar-26 10:00:20 GMT", 20.0, id="A02-rfc-850"),
        pytest.param("Mon Mar  2 10:00:20 2026", 20.0, id="A02-asctime"),
        pytest.param("Mon, 02 Mar 2026 09:00:00 GMT", 0.0, id="A02-past"),
        pytest.param("Friday, 02-Mar-90 10:00:00 GMT", 0.0, id="A02-past-century"),
        pytest.param("Mon, 31 Feb 2026 10:00:20 GMT", None, id="A02-no-such-day"),
        pytest.param("Mon, 02 Foo 2026 10:00:20 GMT", None, id="A02-no-such-month"),
        pytest.param("Mon, 02 Mar 0000 10:00:20 GMT", None, id="A02-no-such-year"),
        pytest.param("Mon, 02 Mar 2026 10:00:20 +0100", None, id="A02-other-zone"),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    """Seconds and HTTP dates are read; anything else is ignored, never a long wait."""
    assert read_hint({"retry-after": value}, None, NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        pytest.param(
            {"retry-after-ms": "61500", "retry-after": "1"}, None, 61.5, id="A05-ms-first"
        ),
        pytest.param({"retry-after-ms": "soon", "retry-after": "2"}, None, 2.0, id="bad-ms"),
        pytest.param({"retry-after": "2"}, gemini("34s"), 2.0, id="header-before-body"),
        pytest.param({"retry-after": "-1"}, gemini("34s"), 34.0, id="bad-header-then-body"),
        pytest.param({"llm_provider-retry-after": "9"}, None, 9.0, id="litellm-hands-on"),
        pytest.param({"llm_provider-retry-after-ms": "500"}, None, 0.5, id="litellm-hands-on-ms"),
        pytest.param(
            {"retry-after": "2", "llm_provider-retry-after-ms": "9000"}, None, 2.0, id="own-first"
        ),
        pytest.param({"retry-after": "6m0s"}, None, None, id="go-duration"),
        pytest.param(
            {"anthropic-ratelimit-tokens-reset": "2026-03-02T10:00:20Z"},
            None,
            None,
            id="rfc-3339-reset",
        ),
        pytest.param({}, gemini("600.5s"), 600.5, id="body"),
        pytest.param({}, [gemini("7s")], 7.0, id="body-in-a-list"),
        pytest.param({}, gemini("7"), None, id="no-unit"),
        pytest.param({}, gemini("-7s"), None, id="negative-delay"),
        pytest.param({}, gemini({"seconds": 7}), None, id="other-form"),
        pytest.param({}, {"error": {"details": ["x", None]}}, None, id="odd-details"),
        pytest.param({"x-ratelimit-reset-requests": "6m0s"}, None, None, id="reset-is-no-hint"),
        pytest.param({}, "<html>", None, id="text"),
    ],
)
def test_the_order_of_sources(headers: dict[str, str], body: Any, seconds: float | None) -> None:
    """Milliseconds win over seconds, headers over the body, and a bad source is passed over."""
    assert read_hint(headers, body, NOW) == seconds


@given(st.text(), st.text())
def test_no_header_raises(first: str, second: str) -> None:
    """Whatever a header says, the hint is None or a finite wait."""
    hint = read_hint({"retry-after-ms": first, "retry-after": second}, None, NOW)
    assert hint is None or (math.isfinite(hint) and hint >= 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "details", "@type", "retryDelay"]) | st.text(), inner
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_no_body_raises(body: Any) -> None:
    """Whatever a body holds, the hint is None or a finite wait."""
    hint = read_hint({}, body, NOW)
    assert hint is None or (math.isfinite(hint) and hint >= 0)


@pytest.mark.parametrize(
    ("value", "answer"), [("true", True), (" False ", False), ("maybe", None), ("", None)]
)
def test_should_retry(value: str, answer: bool | None) -> None:
    """`x-should-retry` is true, false, or not said."""
    assert read_should_retry({"x-should-retry": value}) is answer
    assert read_should_retry({}) is None
    assert read_should_retry({"llm_provider-x-should-retry": value}) is answer


def test_a_proxys_own_word_comes_first() -> None:
    """What the proxy says about a retry wins over what it hands on."""
    both = {"x-should-retry": "false", "llm_provider-x-should-retry": "true"}
    assert read_should_retry(both) is False
