"""OpenAI's Chat Completions dialect, as spoken by OpenAI and by compatible servers.

A 200 is read in this order, because each line can hide behind the next: an error in the body, the
stop reason, a refusal, the text. The text is not parsed here. Every sampling parameter is left out
unless the caller gave it: newer models answer 400 even to default values.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer, preview
from functions.providers.base import SEAT_PARAMETERS, Endpoint, WireRequest, auth_headers
from functions.providers.failures import failure
from functions.providers.redaction import Redact, safe_preview, unredacted
from functions.providers.sent_schema import is_strict, sent_schema

PATH = "/chat/completions"
SCHEMA_NAME = "verdict"
MAX_LABEL_CHARACTERS = 200  # model names and request IDs
MAX_TOKENS_REPORTED = 2**53 - 1

_TRUNCATED = frozenset({"length", "model_length"})


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question.

    A parameter outside `SEAT_PARAMETERS` is a failure: dropping it would store an answer to another
    question than the work key names.
    """
    unknown = sorted(request.parameters.keys() - SEAT_PARAMETERS)
    if unknown:
        message = preview(f"parameters not supported: {', '.join(unknown)}")
        return CallFailure(code="invalid_request", message=message, sent=False)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.user},
        ],
    }
    for name, value in request.parameters.items():
        body[endpoint.token_field if name == "max_output_tokens" else name] = value
    body |= _response_format(endpoint, request.schema)
    headers = {"content-type": "application/json", "accept": "application/json"}
    return WireRequest(PATH, headers | auth_headers(endpoint), json.dumps(body).encode())


class _Response(NamedTuple):
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

    def text(self) -> str:
        """Return the body as far as it is text."""
        return self.body.decode("utf-8", "replace")


def read(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    redact: Redact = unredacted,
) -> ProviderAnswer | CallFailure:
    """Return the answer or the failure that a whole response means.

    Args:
        status: of the response.
        headers: names in lower case, or a case-insensitive mapping.
        body: as received, content encoding removed.
        now: aware time that hints count from.
        redact: removes the endpoint's secrets from everything that is kept.
    """
    value = _json(body)
    result = _read(_Response(status, headers, body, value, now, redact))
    request_id = headers.get("x-request-id") or headers.get("x-generation-id")
    parsed = value if isinstance(value, dict) else {}
    return replace(
        result,
        usage=read_usage(parsed.get("usage")),
        model_returned=_label(parsed.get("model"), redact),
        request_id=_label(request_id, redact),
    )


def read_usage(usage: Any) -> Usage | None:
    """Return the tokens of a `usage` object; None when it counts neither input nor output."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None and completion is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    return Usage(
        input_tokens=prompt or 0,
        output_tokens=completion or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=reasoning or 0,
    )


def _response_format(endpoint: Endpoint, schema: Mapping[str, Any]) -> dict[str, Any]:
    if endpoint.schema_mode == "prompt":
        return {}
    if endpoint.schema_mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    sent = sent_schema(schema, endpoint)
    form = {"name": SCHEMA_NAME, "strict": is_strict(sent), "schema": sent}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _read(response: _Response) -> ProviderAnswer | CallFailure:
    value = response.value
    if not 200 <= response.status < 300:
        return response.error(response.text() if value is None else value)
    if isinstance(value, dict) and _is_error(value):
        return response.error(value)
    choices = value.get("choices") if isinstance(value, dict) else None
    if choices == []:
        return response.failed("empty_response", "the response has no choices")
    choice = choices[0] if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict | None):
        why = f"HTTP {response.status} is no chat completion: {response.text()}"
        return response.failed("invalid_response", why)
    if choice.get("finish_reason") == "error" or _is_error(choice):
        return response.error(choice)
    return _read_choice(response, choice, message or {})


def _read_choice(
    response: _Response, choice: Mapping[str, Any], message: Mapping[str, Any]
) -> ProviderAnswer | CallFailure:
    reason, refusal = choice.get("finish_reason"), message.get("refusal")
    if reason == "content_filter":
        why = f"the provider blocked the answer (content_filter) {refusal or ''}"
        return response.failed("content_blocked", why)
    if refusal:
        return response.failed("refused", f"the model refused: {refusal}")
    if isinstance(reason, str) and reason in _TRUNCATED:
        why = f"finish_reason {reason}: cut at the output cap (max_output_tokens) or the context"
        return response.failed("truncated", why)
    if reason != "stop":
        return response.failed("invalid_output", f"finish_reason {reason!r} is not accepted")
    text = _content(message.get("content"))
    if not text.strip():
        return response.failed("empty_response", "the answer has no text")
    return ProviderAnswer(text=response.redact(text), http_status=response.status)


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether a body is an error whatever its status says (OpenRouter, flat Mistral bodies)."""
    flat = value.get("object") == "error" or value.get("type") == "error"
    return bool(value.get("error")) or flat


def _content(content: Any) -> str:
    """Return the text; some servers answer in parts, of which reasoning ones are no answer."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (p.get("text") for p in parts if isinstance(p, dict) and p.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def _json(body: bytes) -> Any:
    """Return the parsed body, None when it is no JSON at all."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _label(value: Any, redact: Redact) -> str | None:
    return safe_preview(value, redact)[:MAX_LABEL_CHARACTERS] if isinstance(value, str) else None


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_TOKENS_REPORTED else None
