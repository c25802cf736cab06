"""The one decision whether a failed request is asked again, and when. No other layer retries.

A decision is a value from the failure, the attempt and a random number that is passed in:

| group | codes | what follows |
|---|---|---|
| permanent | `PERMANENT_CODES` | the seat fails with the code |
| recoverable | `RECOVERABLE_CODES` | again while attempts are left, then `attempts_exhausted` |
| unusable answer | `ANSWER_CODES` | once more, then the seat fails with the code |
| no provider's answer | `invalid_response` | again while attempts are left, then the code |

A recoverable failure of a request that was sent and never answered is `unknown`: it may have been
paid for. Every wait is at least the provider's hint and at least our own backoff; chance only
lengthens it.
"""

import math
from dataclasses import dataclass

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
    from now and is 0 when `retry` is False.
    """

    outcome: Outcome
    retry: bool
    wait_seconds: float
    code: str
    reason: str


def is_retryable(code: str) -> bool:
    """Whether asking again, by a replay, can help a seat that ended with `code`."""
    return code not in PERMANENT_CODES and code != "budget_exhausted"


def decide(
    failure: CallFailure, *, attempt: int, max_attempts: int, invalid_outputs: int, jitter: float
) -> RetryDecision:
    """Decide what follows a failed attempt.

    Args:
        failure: what the call brought.
        attempt: number of this attempt in its run, from 1, interruptions not counted.
        max_attempts: the job's bound for `attempt`.
        invalid_outputs: attempts of this run, before this one, with outcome `invalid_output`.
        jitter: a random number in [0, 1).
    """
    outcome = outcome_of(failure)
    if outcome is Outcome.PERMANENT:
        return _permanent(failure)
    if failure.should_retry is False:
        reason = f"the provider asked not to retry: {failure.message}"
        return _stop(Outcome.PERMANENT, "attempts_exhausted", reason)
    if outcome is Outcome.INVALID_OUTPUT and invalid_outputs + 1 >= MAX_INVALID_OUTPUTS:
        return _stop(outcome, failure.code, f"no usable answer twice: {failure.message}")
    if attempt >= max_attempts:
        return _exhausted(outcome, failure, max_attempts)
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


def _permanent(failure: CallFailure) -> RetryDecision:
    if failure.code in PERMANENT_CODES:
        return _stop(Outcome.PERMANENT, failure.code, failure.message)
    reason = f"asked to wait {failure.hint_seconds:.0f} s, over a day: {failure.message}"
    return _stop(Outcome.PERMANENT, "quota_exhausted", reason)


def _hint_seconds(failure: CallFailure) -> float:
    hint = failure.hint_seconds
    return hint if hint is not None and math.isfinite(hint) and hint > 0 else 0.0


def _wait_seconds(attempt: int, hint_seconds: float, jitter: float) -> float:
    floor = max(hint_seconds, backoff_seconds(attempt))
    return floor + jitter * min(SPREAD * floor, MAX_SPREAD_SECONDS)


def _exhausted(outcome: Outcome, failure: CallFailure, max_attempts: int) -> RetryDecision:
    code = "attempts_exhausted" if failure.code in RECOVERABLE_CODES else failure.code
    reason = f"{max_attempts} attempts spent, the last ended {failure.code}: {failure.message}"
    return _stop(outcome, code, reason)


def _stop(outcome: Outcome, code: str, reason: str) -> RetryDecision:
    return RetryDecision(outcome=outcome, retry=False, wait_seconds=0.0, code=code, reason=reason)
