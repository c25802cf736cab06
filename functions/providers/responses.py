"""OpenAI's Responses dialect.

A 200 is read in this order, because each line can hide behind the next: an error in the body, the
status, a refusal, the text. Reasoning comes first in `output` and is no answer; a model that also
comments on its work marks the answer with the phase `final_answer`. Nothing is kept by the vendor:
`store` is true unless it is sent as false.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers.base import Endpoint, WireRequest
from functions.providers.building import json_request, refused_parameters
from functions.providers.reading import Response, counts, is_error, parse_json
from functions.providers.redaction import Redact, unredacted
from functions.providers.sent_schema import openai_schema

PATH = "/responses"  # the base URL ends with the version
SCHEMA_NAME = "verdict"
PARAMETERS = frozenset({"max_output_tokens", "temperature", "top_p", "reasoning_effort"})

_INCOMPLETE = {"max_output_tokens": "truncated", "content_filter": "content_blocked"}
_FINAL = "final_answer"
_COMMENTARY = "commentary"


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question; a parameter that the API lacks is a failure."""
    taken = PARAMETERS - set(endpoint.refused_parameters)
    if (refused := refused_parameters(request, taken)) is not None:
        return refused
    given = dict(request.parameters)
    effort = given.pop("reasoning_effort", None)
    body: dict[str, Any] = {
        "model": request.model,
        "instructions": request.system,
        "input": request.user,
        "store": False,
        **given,
    }
    if effort is not None:
        body["reasoning"] = {"effort": effort}
    body |= _text_format(endpoint, request.schema)
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
        request_id=headers.get("x-request-id"),
    )


def read_usage(usage: Any) -> Usage | None:
    """Return the tokens of a `usage` object; None when input or output are not known from it."""
    found = counts(
        usage,
        "input",
        "output",
        input="input_tokens",
        output="output_tokens",
        cached="input_tokens_details.cached_tokens",
        written="input_tokens_details.cache_write_tokens",
        reasoning="output_tokens_details.reasoning_tokens",
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


def _text_format(endpoint: Endpoint, schema: Mapping[str, Any]) -> dict[str, Any]:
    if endpoint.schema_mode == "prompt":
        return {}
    if endpoint.schema_mode == "json_object":
        return {"text": {"format": {"type": "json_object"}}}
    sent = openai_schema(schema, endpoint)
    form = {"type": "json_schema", "name": SCHEMA_NAME, "strict": sent.strict}
    return {"text": {"format": {**form, "schema": sent.schema}}}


def _read(response: Response) -> ProviderAnswer | CallFailure:
    value = response.value
    if not 200 <= response.status < 300:
        return response.error(response.text() if value is None else value)
    if isinstance(value, dict) and is_error(value):
        return response.error(value)
    status = value.get("status") if isinstance(value, dict) else None
    output = value.get("output") if isinstance(value, dict) else None
    if status == "failed":
        return response.failed("provider_error", "the response failed without an error")
    if not isinstance(status, str) or not isinstance(output, list):
        why = f"HTTP {response.status} is no response object: {response.text()}"
        return response.failed("invalid_response", why)
    messages = [item for item in output if isinstance(item, dict) and item.get("type") == "message"]
    return _read_messages(response, status, messages)


def _read_messages(
    response: Response, status: str, messages: list[dict[str, Any]]
) -> ProviderAnswer | CallFailure:
    reason = _incomplete_reason(response.value) if status == "incomplete" else None
    refusals = [part.get("refusal") for part in _parts(messages) if part.get("type") == "refusal"]
    if refusals and reason != "content_filter":
        said = " ".join(text for text in refusals if isinstance(text, str))
        return response.failed("refused", f"the model refused: {said}")
    if status == "incomplete":
        return _incomplete(response, reason)
    if status != "completed":
        return response.failed("invalid_output", f"status {status!r} is not accepted")
    finals = [message for message in messages if message.get("phase") == _FINAL]
    answers = finals or [m for m in messages if m.get("phase") != _COMMENTARY]
    if any(message.get("status", "completed") != "completed" for message in answers):
        return response.failed("truncated", "a message of the completed response is incomplete")
    texts = (part.get("text") for part in _parts(answers) if part.get("type") == "output_text")
    return response.answered("".join(text for text in texts if isinstance(text, str)))


def _incomplete(response: Response, reason: str | None) -> CallFailure:
    code = _INCOMPLETE.get(reason or "", "invalid_output")
    return response.failed(code, f"the response is incomplete: {reason}")


def _incomplete_reason(value: Mapping[str, Any]) -> str | None:
    details = value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason if isinstance(reason, str) else None


def _parts(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        yield from (part for part in parts if isinstance(part, dict))
