"""Anthropic's Messages dialect.

A 200 is read in this order, because each line can hide behind the next: an error in the body, the
stop reason, the text. Thinking is no answer. A refusal is a 200, is billed, and comes again for the
same question.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from functions.core.jobs import Usage
from functions.core.verdicts import (
    DEFAULT_OUTPUT_TOKENS,
    CallFailure,
    CallRequest,
    ProviderAnswer,
)
from functions.providers.base import Endpoint, WireRequest
from functions.providers.building import json_request, refused_parameters
from functions.providers.reading import Response, counts, is_error, parse_json
from functions.providers.redaction import Redact, unredacted
from functions.providers.sent_schema import anthropic_schema

PATH = "/v1/messages"  # the base URL ends before the version
# The version that still takes sampling parameters, for the models that do; they are sent only when
# a caller gave them. An endpoint's `headers` name another: from 2026-10-21 on they are a 400.
VERSION = "2023-06-01"
PARAMETERS = frozenset({"max_output_tokens", "temperature", "top_p", "reasoning_effort"})

_FINISHED = frozenset({"end_turn", "stop_sequence"})
_TRUNCATED = frozenset({"max_tokens", "model_context_window_exceeded"})


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question; a parameter that the API lacks is a failure."""
    taken = PARAMETERS - set(endpoint.refused_parameters)
    if (refused := refused_parameters(request, taken)) is not None:
        return refused
    given = dict(request.parameters)
    effort = given.pop("reasoning_effort", None)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": given.pop("max_output_tokens", DEFAULT_OUTPUT_TOKENS),
        "system": request.system,
        "messages": [{"role": "user", "content": request.user}],
        **given,
    }
    config = {} if effort is None else {"effort": effort}
    if config := config | _format(endpoint, request.schema):
        body["output_config"] = config
    return json_request(endpoint, PATH, body, {"anthropic-version": VERSION})


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
    response = Response(status, headers, body, parse_json(body), now, redact)
    parsed = response.value if isinstance(response.value, dict) else {}
    return response.with_details(
        _read(response),
        usage=read_usage(parsed.get("usage")),
        model=parsed.get("model"),
        request_id=headers.get("request-id") or parsed.get("request_id"),
    )


def read_usage(usage: Any) -> Usage | None:
    """Return the tokens of a `usage` object; None when input or output are not known from it.

    The vendor counts input beside the cache, what is written to it and what is read from it apart.
    """
    found = counts(
        usage,
        "fresh",
        "output",
        fresh="input_tokens",
        output="output_tokens",
        cached="cache_read_input_tokens",
        written="cache_creation_input_tokens",
        reasoning="output_tokens_details.thinking_tokens",
    )
    if found is None:
        return None
    return Usage(
        input_tokens=found["fresh"] + found["written"] + found["cached"],
        output_tokens=found["output"],
        cached_tokens=found["cached"],
        cache_write_tokens=found["written"],
        reasoning_tokens=found["reasoning"],
    )


def _format(endpoint: Endpoint, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer's form; there is no JSON mode without a schema."""
    if endpoint.schema_mode != "json_schema":
        return {}
    sent = anthropic_schema(schema, integers=endpoint.integers)
    return {} if sent is None else {"format": {"type": "json_schema", "schema": sent}}


def _read(response: Response) -> ProviderAnswer | CallFailure:
    value = response.value
    if not 200 <= response.status < 300:
        return response.error(response.text() if value is None else value)
    if isinstance(value, dict) and is_error(value):
        return response.error(value)
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(content, list):
        why = f"HTTP {response.status} is no message: {response.text()}"
        return response.failed("invalid_response", why)
    reason = value.get("stop_reason")
    if reason == "refusal":
        said = _text(content)
        why = f"the model refused{_details(value)}" + (f": {said}" if said else "")
        return response.failed("refused", why)
    if isinstance(reason, str) and reason in _TRUNCATED:
        why = f"stop_reason {reason}: cut at the output cap (max_output_tokens) or the context"
        return response.failed("truncated", why)
    if not isinstance(reason, str) or reason not in _FINISHED:
        return response.failed("invalid_output", f"stop_reason {reason!r} is not accepted")
    return response.answered(_text(content))


def _details(value: Mapping[str, Any]) -> str:
    details = value.get("stop_details")
    known = details if isinstance(details, dict) else {}
    category, why = known.get("category"), known.get("explanation")
    return (f" ({category})" if category else "") + (f": {why}" if why else "")


def _text(content: list[Any]) -> str:
    blocks = (block for block in content if isinstance(block, dict) and block.get("type") == "text")
    return "".join(text for block in blocks if isinstance(text := block.get("text"), str))
