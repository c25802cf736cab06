"""What all dialects share in reading a response: its value, bounded labels, counts, JSON."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.providers.failures import failure
from functions.providers.redaction import Redact, safe_preview

MAX_LABEL_CHARACTERS = 200  # model names and request IDs
MAX_TOKENS_REPORTED = 2**53 - 1


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
    """Return the parsed body, None when it is no JSON at all."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def label(value: Any, redact: Redact) -> str | None:
    """Return a bounded model name or request ID without secrets, None when it is no text."""
    return safe_preview(value, redact)[:MAX_LABEL_CHARACTERS] if isinstance(value, str) else None


def count(counts: Any, name: str) -> int | None:
    """Return a plausible number of tokens, else None."""
    value = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_TOKENS_REPORTED else None


def is_error(value: Mapping[str, Any]) -> bool:
    """Whether a body is an error whatever its status says (OpenRouter, flat Mistral bodies)."""
    flat = value.get("object") == "error" or value.get("type") == "error"
    return bool(value.get("error")) or flat
