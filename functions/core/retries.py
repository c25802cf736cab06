"""The one decision whether a failed request is asked again, and when. No other layer retries.

A decision is a value from the failure, the attempt, the time and a random number, all passed in:

| group | codes | what follows |
|---|---|---|
| permanent | `PERMANENT_CODES` | the seat fails with the code; a used-up quota says until when |
| recoverable | `RECOVERABLE_CODES` | again while attempts are left, then `attempts_exhausted` |
| unusable answer | `ANSWER_CODES` | once more, then the seat fails with the code |
| no provider's answer | `invalid_response` | again while attempts are left, then the code |

A recoverable failure of a request that was sent and never answered is `unknown`: it may have been
paid for. Every wait is at least the provider's hint and at least our own backoff; chance only
lengthens it. A hint of more than a day is a used-up quota.
"""

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from functions.core.jobs import Outcome
from functions.core.verdicts import CallFailure

PERMANENT_CODES = frozenset(
    {
        "invalid_credential",
        "permission_denied",
        "model_not_found",
        "invalid_request",
        "input_too_large",
        "quota_exhausted",
        "refused",
        "content_blocked",
        "truncated",
        "region_unsupported",
        "identity_changed",
    }
)
RECOVERABLE_CODES = frozenset(
    {"rate_limited", "overloaded", "provider_error", "timeout", "connection_error"}
)
ANSWER_CODES = frozenset({"invalid_output", "empty_response", "response_too_large"})

MAX_INVALID_OUTPUTS = 2  # answers are paid for; the same question rarely does better a third time
MAX_HINT_SECONDS = 86_400.0  # a longer wait is a quota in disguise
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
SPREAD = 0.25  # jitter adds at most this share of the wait
MAX_SPREAD_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryDecision:
    """How an attempt ended and what follows.

    `code` is the seat's code when `retry` is False, else the attempt's own. `wait_seconds` counts
    from now and is 0 when `retry` is False. `until` is when a used-up quota is free again, where
    that is known.
    """

    outcome: Outcome
    retry: bool
    wait_seconds: float
    code: str
    reason: str
    until: datetime | None = None


def is_retryable(code: str) -> bool:
    """Whether asking again, by a replay, can help a seat that ended with `code`."""
    return code not in PERMANENT_CODES and code != "budget_exhausted"


def decide(
    failure: CallFailure,
    *,
    now: datetime,
    attempt: int,
    max_attempts: int,
    invalid_outputs: int,
    jitter: float,
) -> RetryDecision:
    """Decide what follows a failed attempt.

    Args:
        failure: what the call brought.
        now: aware time at which the attempt ended; hints count from it.
        attempt: number of this attempt in its run, from 1, interruptions not counted.
        max_attempts: the job's bound for `attempt`.
        invalid_outputs: attempts of this run, before this one, with outcome `invalid_output`.
        jitter: a random number in [0, 1).
    """
    outcome = outcome_of(failure)
    if outcome is Outcome.PERMANENT:
        return _permanent(failure, now)
    if failure.should_retry is False:
        reason = f"the provider asked not to retry: {failure.message}"
        return _stop(Outcome.PERMANENT, "attempts_exhausted", reason)
    if outcome is Outcome.INVALID_OUTPUT and invalid_outputs + 1 >= MAX_INVALID_OUTPUTS:
        return _stop(outcome, failure.code, f"no usable answer twice: {failure.message}")
    if attempt >= max_attempts or _is_advised_against(failure, attempt):
        return _exhausted(outcome, failure, attempt)
    wait_seconds = _wait_seconds(attempt, _hint_seconds(failure), jitter)
    return RetryDecision(
        outcome=outcome,
        retry=True,
        wait_seconds=wait_seconds,
        code=failure.code,
        reason=f"{failure.code}: attempt {attempt + 1} of {max_attempts} in {wait_seconds:.1f} s",
    )


def outcome_of(failure: CallFailure) -> Outcome:
    """Return how the attempt ended; a code without a rule counts as retryable."""
    if failure.code in PERMANENT_CODES or _hint_seconds(failure) > MAX_HINT_SECONDS:
        return Outcome.PERMANENT
    if failure.code in ANSWER_CODES:
        return Outcome.INVALID_OUTPUT
    unanswered = failure.sent and failure.http_status is None
    if unanswered and failure.code in ("timeout", "connection_error"):
        return Outcome.UNKNOWN
    return Outcome.RETRYABLE


def backoff_seconds(attempt: int) -> float:
    """Return our own wait after attempt number `attempt`, before chance lengthens it."""
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 16), MAX_BACKOFF_SECONDS)


def with_until(message: str, until: datetime | None) -> str:
    """Return the message of a used-up quota with the time from which it is free again."""
    if until is None:
        return message
    return f"{message}; free again at {until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _permanent(failure: CallFailure, now: datetime) -> RetryDecision:
    code, reason, until = failure.code, failure.message, failure.until
    if code not in PERMANENT_CODES:
        hint_seconds = _hint_seconds(failure)
        reason = f"asked to wait {hint_seconds:.0f} s, over a day: {reason}"
        code, until = "quota_exhausted", until or _after(now, hint_seconds)
    decision = _stop(Outcome.PERMANENT, code, with_until(reason, until))
    return replace(decision, until=until)


def _after(now: datetime, seconds: float) -> datetime | None:
    """Return the time in so many seconds, None when no calendar has it."""
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _is_advised_against(failure: CallFailure, attempt: int) -> bool:
    return failure.most_retries is not None and attempt > failure.most_retries


def _hint_seconds(failure: CallFailure) -> float:
    hint = failure.hint_seconds
    return hint if hint is not None and math.isfinite(hint) and hint > 0 else 0.0


def _wait_seconds(attempt: int, hint_seconds: float, jitter: float) -> float:
    floor = max(hint_seconds, backoff_seconds(attempt))
    return floor + jitter * min(SPREAD * floor, MAX_SPREAD_SECONDS)


def _exhausted(outcome: Outcome, failure: CallFailure, attempts: int) -> RetryDecision:
    code = "attempts_exhausted" if failure.code in RECOVERABLE_CODES else failure.code
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    reason = f"{tries} spent, the last ended {failure.code}: {failure.message}"
    return _stop(outcome, code, reason)


def _stop(outcome: Outcome, code: str, reason: str) -> RetryDecision:
    return RetryDecision(outcome=outcome, retry=False, wait_seconds=0.0, code=code, reason=reason)
