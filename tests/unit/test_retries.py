"""The retry decision: which codes are asked again, how often, and not before when."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.core.jobs import Outcome
from functions.core.retries import (
    ANSWER_CODES,
    PERMANENT_CODES,
    RECOVERABLE_CODES,
    RetryDecision,
    backoff_seconds,
    decide,
    is_retryable,
)
from functions.core.verdicts import CallFailure

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def decided(
    code: str,
    *,
    attempt: int = 1,
    invalid_outputs: int = 0,
    jitter: float = 0.0,
    status: int | None = 500,
    sent: bool = True,
    hint: float | None = None,
    should_retry: bool | None = None,
    until: datetime | None = None,
    most_retries: int | None = None,
) -> RetryDecision:
    """Return the decision for a failure of a job with four attempts."""
    failure = CallFailure(
        code=code,
        message="said",
        http_status=status,
        sent=sent,
        hint_seconds=hint,
        should_retry=should_retry,
        until=until,
        most_retries=most_retries,
    )
    return decide(
        failure,
        now=NOW,
        attempt=attempt,
        max_attempts=4,
        invalid_outputs=invalid_outputs,
        jitter=jitter,
    )


@pytest.mark.parametrize("code", sorted(PERMANENT_CODES))
def test_a_permanent_code_ends_the_seat_at_once(code: str) -> None:
    """A01, A14, A16, A29: what cannot get better is asked once."""
    decision = decided(code, hint=1.0)
    assert (decision.outcome, decision.retry, decision.code) == (Outcome.PERMANENT, False, code)
    assert not is_retryable(code)


@pytest.mark.parametrize("code", sorted(RECOVERABLE_CODES))
def test_a_recoverable_code_is_asked_until_the_attempts_are_spent(code: str) -> None:
    """A32: the last attempt ends `attempts_exhausted` and names the code behind it."""
    assert all(decided(code, attempt=n).retry for n in (1, 2, 3))
    last = decided(code, attempt=4)
    assert (last.retry, last.code, last.outcome) == (False, "attempts_exhausted", Outcome.RETRYABLE)
    assert code in last.reason
    assert is_retryable(code)


@pytest.mark.parametrize("code", sorted(ANSWER_CODES))
def test_an_unusable_answer_is_asked_for_once_more(code: str) -> None:
    """A21, A22: the second unusable answer ends the seat with the answer's own code."""
    first, second = decided(code, status=200), decided(code, status=200, invalid_outputs=1)
    assert (first.retry, first.outcome) == (True, Outcome.INVALID_OUTPUT)
    assert (second.retry, second.code) == (False, code)


def test_a_single_attempt_keeps_the_answers_code() -> None:
    """An unusable answer at the last attempt is not called exhaustion."""
    assert decided("invalid_output", attempt=4).code == "invalid_output"


def test_a23_no_providers_answer_is_asked_until_the_attempts_are_spent() -> None:
    """A gateway's page in place of an answer is transient, and keeps its code at the end."""
    assert decided("invalid_response", attempt=3, status=200).retry
    last = decided("invalid_response", attempt=4, status=200)
    assert (last.retry, last.code) == (False, "invalid_response")


@pytest.mark.parametrize(
    ("code", "sent", "status", "outcome"),
    [
        pytest.param("timeout", True, None, Outcome.UNKNOWN, id="A26-no-answer-in-time"),
        pytest.param("connection_error", True, None, Outcome.UNKNOWN, id="A27-cut"),
        pytest.param("connection_error", False, None, Outcome.RETRYABLE, id="never-connected"),
        pytest.param("timeout", False, None, Outcome.RETRYABLE, id="connect-timeout"),
        pytest.param("timeout", True, 504, Outcome.RETRYABLE, id="answered-504"),
        pytest.param("provider_error", True, 500, Outcome.RETRYABLE, id="answered-500"),
    ],
)
def test_sent_and_unanswered_is_unknown(
    code: str, sent: bool, status: int | None, outcome: Outcome
) -> None:
    """Only a request that went out and got no answer may have been paid for unseen."""
    decision = decided(code, sent=sent, status=status)
    assert (decision.outcome, decision.retry) == (outcome, True)


@pytest.mark.parametrize("code", ["rate_limited", "overloaded", "invalid_response"])
def test_a05_a_wait_of_more_than_a_day_is_a_quota(code: str) -> None:
    """A hint over 24 hours ends the seat; one of exactly 24 hours does not."""
    over = decided(code, hint=86_401)
    assert (over.outcome, over.retry, over.code) == (Outcome.PERMANENT, False, "quota_exhausted")
    assert "86401 s" in over.reason
    assert over.until == NOW + timedelta(seconds=86_401)
    assert "free again at 2026-11-30T12:00:01Z" in over.reason
    assert decided(code, hint=86_400).wait_seconds >= 86_400


@pytest.mark.parametrize("hint", [1e12, 1e300])
def test_a03_a_wait_beyond_the_calendar_is_a_quota_without_a_time(hint: float) -> None:
    """A hint that no calendar can hold ends the seat like any other of more than a day."""
    decision = decided("rate_limited", hint=hint)
    assert (decision.code, decision.until) == ("quota_exhausted", None)


def test_a07_a_used_up_quota_says_until_when() -> None:
    """The time from which a quota is free again is in the decision and in its reason."""
    until = NOW + timedelta(hours=20)
    decision = decided("quota_exhausted", until=until)
    assert (decision.code, decision.until) == ("quota_exhausted", until)
    assert decision.reason == "said; free again at 2026-11-30T08:00:00Z"


def test_the_vendors_advice_bounds_the_retries() -> None:
    """Two retries advised: the third attempt is the last, though four are allowed."""
    ends = [decided("rate_limited", attempt=n, most_retries=2) for n in (1, 2, 3)]
    assert [end.retry for end in ends] == [True, True, False]
    assert ends[-1].code == "attempts_exhausted"
    assert ends[-1].reason.startswith("3 attempts spent, the last ended rate_limited")


def test_the_provider_may_forbid_a_retry() -> None:
    """`x-should-retry: false` ends a recoverable failure as if its tries were spent."""
    decision = decided("provider_error", should_retry=False)
    assert (decision.retry, decision.code) == (False, "attempts_exhausted")
    assert decided("quota_exhausted", should_retry=True).retry is False


@pytest.mark.parametrize(
    ("hint", "attempt", "wait"),
    [
        (None, 1, 1.0),
        (None, 3, 4.0),
        (0.0, 2, 2.0),
        (20.0, 1, 20.0),
        (0.5, 3, 4.0),
        (61.5, 1, 61.5),
    ],
)
def test_the_wait_is_the_longer_of_hint_and_backoff(
    hint: float | None, attempt: int, wait: float
) -> None:
    """A02, A03, A05: never earlier than the hint, never earlier than our own backoff."""
    assert decided("rate_limited", hint=hint, attempt=attempt).wait_seconds == wait


@given(
    hint=st.none() | st.floats(),
    attempt=st.integers(min_value=1, max_value=10**6),
    jitter=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_chance_only_lengthens(hint: float | None, attempt: int, jitter: float) -> None:
    """Every wait is finite, not below its floor, and at most a quarter or 30 s above it."""
    failure = CallFailure(code="overloaded", message="m", http_status=503, hint_seconds=hint)
    decision = decide(
        failure, now=NOW, attempt=attempt, max_attempts=10**7, invalid_outputs=0, jitter=jitter
    )
    if not decision.retry:
        assert hint is not None
        assert hint > 86_400
        assert decision.wait_seconds == 0
        return
    sane = hint if hint is not None and math.isfinite(hint) else 0.0
    floor = max(sane, backoff_seconds(attempt))
    assert floor <= decision.wait_seconds <= floor + min(0.25 * floor, 30.0)


def test_backoff_grows_to_its_cap() -> None:
    """The wait doubles from one second and stays at a minute."""
    waits = [backoff_seconds(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 1000)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("budget_exhausted", False), ("attempts_exhausted", True), ("invalid_output", True)],
)
def test_whether_a_replay_can_help(code: str, retryable: bool) -> None:
    """Only permanent codes and a spent budget say that asking again cannot help."""
    assert is_retryable(code) is retryable
