"""What pages say: states, codes and kinds in words, times and costs as people read them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

# A sign beside each state, so that colour is not the only one.
MARKS = {
    "accepted": "○",
    "queued": "○",
    "running": "◐",
    "waiting": "◷",
    "succeeded": "✓",
    "failed": "✕",
    "expired": "⧖",
    "canceled": "⊘",
    "open": "!",
    "resolved": "✓",
}

# The codes of seats and attempts.
MEANINGS = {
    "invalid_credential": "The provider does not accept its key.",
    "permission_denied": "The provider's key may not use this model.",
    "model_not_found": "The provider does not know this model.",
    "invalid_request": "The provider refused the request as wrong.",
    "input_too_large": "The question is too long for this model.",
    "quota_exhausted": "The provider's quota or credit is used up.",
    "refused": "The model refused to answer.",
    "content_blocked": "The provider blocked the question or the answer.",
    "truncated": "The answer was cut off at its length limit.",
    "region_unsupported": "The provider does not serve this region.",
    "identity_changed": "The endpoint or the prompt changed after the job was accepted.",
    "rate_limited": "The provider asked for fewer requests.",
    "overloaded": "The provider had too much to do.",
    "provider_error": "The provider failed.",
    "timeout": "No answer came in time.",
    "connection_error": "The provider could not be reached.",
    "attempts_exhausted": "All tries were used without an answer.",
    "invalid_output": "The model's answer did not have the required form.",
    "empty_response": "The model answered nothing.",
    "response_too_large": "The answer was larger than what is read.",
    "invalid_response": "What came back was no answer of a provider.",
    "budget_exhausted": "The job's or the tenant's budget was used up.",
    "deadline_exceeded": "The job's deadline passed first.",
    "canceled": "The job was cancelled first.",
    "interrupted": "A shutdown cut the request; it is asked again.",
    "output_missing": "The stored answer is gone.",
    "output_damaged": "The stored answer is not what was stored.",
}

# The lists of an audit, in the order they are shown, and the kinds of incidents.
KINDS = {
    "missing_terminal": "Runs without a terminal record",
    "aged": "Runs past their time that have not ended",
    "missing_output": "Successes whose answer is gone",
    "digest_mismatch": "Answers that are not what was stored",
    "missing_failure": "Failed seats without their record",
    "undelivered_notifications": "Notifications not delivered yet",
    "orphan_outputs": "Stored answers that belong to nothing",
    "malformed": "Documents that cannot be read",
    "off_window": "Jobs accepted outside the hour they count in",
    "repairs": "Repairs",
    "errors": "What could not be looked at",
    "output_missing": "An answer is gone",
    "output_damaged": "An answer is not what was stored",
    "input_missing": "The input of an open job is gone",
    "failure_missing": "A failed seat lacks its record",
    "aged_gap": "A job is past its time and has not ended",
    "orphan_output": "A stored answer belongs to nothing",
    "notification_lost": "A notification could not be delivered",
    "dead_letter": "A message was given up",
    "unreadable_message": "A message could not be read",
    "unreadable_record": "A record could not be read",
    "malformed_record": "A document cannot be counted",
    "changed_after_seal": "A sealed hour has changed",
    "window_unsealed": "An hour's records expire before it is sealed",
}


def mark(state: str) -> str:
    """Return the sign of a state."""
    return MARKS.get(state, "·")


def meaning(code: str) -> str:
    """Return what a code says, the code itself when it is not known."""
    return MEANINGS.get(code, code)


def kind(name: str) -> str:
    """Return what an audit's list or an incident's kind is called, its name when not known."""
    return KINDS.get(name, name)


def moment(text: str) -> str:
    """Return an RFC 3339 time to the second: `2026-11-29 12:00:00 UTC`."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def elapsed(start: str, end: str) -> str:
    """Return the time between two RFC 3339 times, in seconds."""
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return f"{passed.total_seconds():.1f} s"


def cost(usd: float | None) -> str:
    """Return US dollars; what is not known is said to be unknown, never zero."""
    if usd is None:
        return "unknown"
    if 0 < usd < 1e-6:
        return "under $0.000001"
    return f"${usd:.2f}" if usd == round(usd, 2) else f"${usd:.6f}"


def number(value: float | None) -> str:
    """Return a number without digits that mean nothing."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def pretty(value: Any) -> str:
    """Return a JSON value as text to read."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def counted(seats: Iterable[Mapping[str, Any]]) -> str:
    """Return how many seats stand in each state: `2 succeeded, 1 waiting`."""
    states = Counter(seat["state"] for seat in seats)
    return ", ".join(f"{count} {state}" for state, count in states.most_common())
