"""OpenAI's Chat Completions dialect, as spoken by OpenAI and by compatible servers.

A 200 is read in this order, because each line can hide behind the next: an error in the body, the
stop reason, a refusal, the text. The text is not parsed here. Every sampling parameter is left out
unless the caller gave it: newer models answer 400 even to default values.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers.base import SEAT_PARAMETERS, Endpoint, WireRequest
from functions.providers.building import json_request, refused_parameters
from functions.providers.reading import Response, counts, is_error, parse_json
from functions.providers.redaction import Redact, unredacted
from functions.providers.sent_schema import openai_schema

PATH = "/chat/completions"
SCHEMA_NAME = "verdict"

_FINISHED = frozenset({"stop", "eos"})  # Together says `eos` where others say `stop`
_TRUNCATED = frozenset({"length", "model_length"})


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question; a parameter that the server lacks is a failure."""
    taken = SEAT_PARAMETERS - set(endpoint.refused_parameters)
    if (refused := refused_parameters(request, taken)) is not None:
        return refused
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.user},
        ],
    }
    names = {"max_output_tokens": endpoint.token_field, **endpoint.parameter_names}
    body |= {names.get(name, name): value for name, value in request.parameters.items()}
    body |= _response_format(endpoint, request.schema)
    return json_request(endpoint, PATH, body)


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
        request_id=headers.get("x-request-id") or headers.get("x-generation-id"),
    )


def read_usage(usage: Any) -> Usage | None:
    """Return the tokens of a `usage` object; None when input or output are not known from it."""
    found = counts(
        usage,
        "input",
        "output",
        input="prompt_tokens",
        output="completion_tokens",
        cached="prompt_tokens_details.cached_tokens",
        written="prompt_tokens_details.cache_write_tokens",
        reasoning="completion_tokens_details.reasoning_tokens",
    )
    if found is None:
        return None
    return Usage(
        input_tokens=found["input"],
        output_tokens=found["output"],
        cached_tokens=found["cached"],
        cache_write_tokens=found["written"],
        reasoning_tokens=found["reasoning"],
    )


def _response_format(endpoint: Endpoint, schema: Mapping[str, Any]) -> dict[str, Any]:
    if endpoint.schema_mode == "prompt":
        return {}
    if endpoint.schema_mode == "json_object":
        return {"response_format": {"type": "json_object"}}
    sent = openai_schema(schema, endpoint)
    form = {"name": SCHEMA_NAME, "strict": sent.strict, "schema": sent.schema}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _read(response: Response) -> ProviderAnswer | CallFailure:
    value = response.value
    if not 200 <= response.status < 300:
        return response.error(response.text() if value is None else value)
    if isinstance(value, dict) and is_error(value):
        return response.error(value)
    choices = value.get("choices") if isinstance(value, dict) else None
    if choices == []:
        return response.failed("empty_response", "the response has no choices")
    if isinstance(choices, list) and len(choices) > 1:  # none is more the verdict than the others
        return response.failed("invalid_output", f"{len(choices)} choices instead of one")
    choice = choices[0] if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict | None):
        why = f"HTTP {response.status} is no chat completion: {response.text()}"
        return response.failed("invalid_response", why)
    if choice.get("finish_reason") == "error" or is_error(choice):
        return response.error(choice)
    return _read_choice(response, choice, message or {})


def _read_choice(
    response: Response, choice: Mapping[str, Any], message: Mapping[str, Any]
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
    if not isinstance(reason, str) or reason not in _FINISHED:
        return response.failed("invalid_output", f"finish_reason {reason!r} is not accepted")
    return response.answered(_content(message.get("content")))


def _content(content: Any) -> str:
    """Return the text; some servers answer in parts, of which reasoning ones are no answer."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (p.get("text") for p in parts if isinstance(p, dict) and p.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))
