"""What all dialects share in reading a response: its value, bounded labels, counts, JSON."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from functions.core.jobs import Usage
from functions.core.strict_json import MAX_DEPTH, is_deeper_than
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.providers.failures import failure
from functions.providers.redaction import Redact, safe_preview

MAX_LABEL_CHARACTERS = 200  # model names and request IDs
# Many times what any model takes. Sums of a run's costs stay far within 64 bits of nano-dollars.
MAX_TOKENS_REPORTED = 10**8


class Response(NamedTuple):
    """A response while it is read; `value` is the parsed body, None when it is no JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    value: Any
    now: datetime
    redact: Redact

    def error(self, body: Any) -> CallFailure:
        """Return the failure that an error body means."""
        return failure(self.status, self.headers, body, self.now, self.redact)

    def failed(self, code: str, message: str) -> CallFailure:
        """Return a failure with our own code."""
        text = safe_preview(message, self.redact)
        return CallFailure(code=code, message=text, http_status=self.status)

    def answered(self, text: str) -> ProviderAnswer | CallFailure:
        """Return the finished answer; blank text is none."""
        if not text.strip():
            return self.failed("empty_response", "the answer has no text")
        return ProviderAnswer(text=self.redact(text), http_status=self.status)

    def with_details(
        self,
        result: ProviderAnswer | CallFailure,
        *,
        usage: Usage | None,
        model: Any,
        request_id: Any,
    ) -> ProviderAnswer | CallFailure:
        """Return `result` with what the response says beside the text, an unusable one as well."""
        return replace(
            result,
            usage=usage,
            model_returned=label(model, self.redact),
            request_id=label(request_id, self.redact),
        )

    def text(self) -> str:
        """Return the body as far as it is text."""
        return self.body.decode("utf-8", "replace")


def parse_json(body: bytes) -> Any:
    """Return the parsed body, None when it is no JSON that all readers understand alike.

    A name that an object gives twice could hold two answers, of which each reader takes another.
    Deep nesting would end our own recursions later, where the answer is already paid for.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        if is_deeper_than(text, MAX_DEPTH):
            return None
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None


def label(value: Any, redact: Redact) -> str | None:
    """Return a bounded model name or request ID without secrets, None when there is no text."""
    if not isinstance(value, str):
        return None
    return safe_preview(value, redact)[:MAX_LABEL_CHARACTERS] or None


def counts(usage: Any, *needed: str, **places: str) -> dict[str, int] | None:
    """Return the numbers of tokens at these places, 0 where there is none.

    None when a needed one is missing or any is no plausible number: a cost that leaves tokens out
    would be too low, and a budget would go on with what is spent already.

    Args:
        usage: the vendor's object.
        needed: those of `places` that must be there.
        places: by our name, the vendor's name, within another object as `outer.inner`.
    """
    found = {name: _at(usage, place) for name, place in places.items()}
    if any(found[name] is None for name in needed):
        return None
    numbers = {name: 0 if value is None else _tokens(value) for name, value in found.items()}
    known = {name: number for name, number in numbers.items() if number is not None}
    return known if len(known) == len(numbers) else None


def is_error(value: Mapping[str, Any]) -> bool:
    """Whether a body is an error whatever its status says (OpenRouter, flat Mistral bodies)."""
    flat = value.get("object") == "error" or value.get("type") == "error"
    return bool(value.get("error")) or flat


def _at(usage: Any, place: str) -> Any:
    outer, _, inner = place.partition(".")
    value = usage.get(outer) if isinstance(usage, dict) else None
    if not inner:
        return value
    return value.get(inner) if isinstance(value, dict) else None


def _tokens(value: Any) -> int | None:
    """Return a plausible number of tokens, also one that is written as `12.0`, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_TOKENS_REPORTED and value == int(value) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a duplicate key in an object")
    return result
