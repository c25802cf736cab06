"""Google's `generateContent` dialect as the Gemini API speaks it; `vertex` differs in its address.

A 200 is read in this order, because each line can hide behind the next: an error in the body, a
blocked prompt (no candidates at all), the finish reason, the text. Thought parts are no answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer, preview
from functions.providers.base import SEAT_PARAMETERS, Endpoint, WireRequest
from functions.providers.building import json_request, refused_parameters
from functions.providers.reading import Response, counts, is_error, parse_json
from functions.providers.redaction import Redact, unredacted
from functions.providers.sent_schema import gemini_schema

API_VERSION = "v1beta"  # Google serves v1 as well; servers in its place mostly do not

_NAMES = {
    "max_output_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
}
_LEVELS = frozenset({"minimal", "low", "medium", "high", "xhigh"})
_STOPPED = "STOP"
_TRUNCATED = frozenset({"MAX_TOKENS", "CONTINUATION"})
_BLOCKED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
    }
)


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question; a parameter that the server lacks is a failure."""
    version = endpoint.api_version or API_VERSION
    return build_at(f"/{version}{model_path(request.model)}", endpoint, request)


def build_at(path: str, endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question to a path below the endpoint's base URL."""
    taken = SEAT_PARAMETERS - set(endpoint.refused_parameters)
    if (refused := refused_parameters(request, taken)) is not None:
        return refused
    if (effort := request.parameters.get("reasoning_effort")) not in {None, "none", *_LEVELS}:
        message = preview(f"reasoning_effort {effort}: Gemini has no such thinking level")
        return CallFailure(code="invalid_request", message=message, sent=False)
    body: dict[str, Any] = {
        "systemInstruction": {"parts": [{"text": request.system}]},
        "contents": [{"role": "user", "parts": [{"text": request.user}]}],
    }
    if config := _generation_config(endpoint, request):
        body["generationConfig"] = config
    return json_request(endpoint, path, body)


def model_path(model: str) -> str:
    """Return the step that names model and method; no model's name can leave its place in it."""
    return f"/models/{quote(model, safe='')}:generateContent"


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
        usage=read_usage(parsed.get("usageMetadata")),
        model=parsed.get("modelVersion"),
        request_id=parsed.get("responseId") or headers.get("x-request-id"),
    )


def read_usage(usage: Any) -> Usage | None:
    """Return the tokens of a `usageMetadata`; None when the prompt's are not known from it.

    Thoughts are billed as output but not counted among the candidates' tokens. The prompt's count
    has the cached ones in it, and not those that tools added. Google leaves out what is 0.
    """
    found = counts(
        usage,
        "prompt",
        prompt="promptTokenCount",
        candidates="candidatesTokenCount",
        thoughts="thoughtsTokenCount",
        tools="toolUsePromptTokenCount",
        cached="cachedContentTokenCount",
    )
    if found is None:
        return None
    return Usage(
        input_tokens=found["prompt"] + found["tools"],
        output_tokens=found["candidates"] + found["thoughts"],
        cached_tokens=found["cached"],
        reasoning_tokens=found["thoughts"],
    )


def _generation_config(endpoint: Endpoint, request: CallRequest) -> dict[str, Any]:
    config: dict[str, Any] = {
        _NAMES[name]: value for name, value in request.parameters.items() if name in _NAMES
    }
    if endpoint.schema_mode != "prompt":
        config["responseMimeType"] = "application/json"
    if endpoint.schema_mode == "json_schema":
        schema = gemini_schema(request.schema, integers=endpoint.integers)
        config |= {} if schema is None else {"responseJsonSchema": schema}
    if (effort := request.parameters.get("reasoning_effort")) is not None:
        config["thinkingConfig"] = _thinking(effort)
    return config


def _thinking(effort: str) -> dict[str, Any]:
    """Return how much to think; `none` is a budget of zero, for which there is no level."""
    return {"thinkingBudget": 0} if effort == "none" else {"thinkingLevel": effort.upper()}


def _read(response: Response) -> ProviderAnswer | CallFailure:
    value = response.value
    if isinstance(value, list) and len(value) == 1:  # the API wraps some errors in a list
        value = value[0] if isinstance(value[0], dict) and is_error(value[0]) else value
    if not 200 <= response.status < 300:
        return response.error(response.text() if value is None else value)
    if isinstance(value, dict) and is_error(value):
        return response.error(value)
    if not isinstance(value, dict) or not _is_generated(value):
        why = f"HTTP {response.status} is no generated content: {response.text()}"
        return response.failed("invalid_response", why)
    candidates = value.get("candidates")
    if candidates and len(candidates) > 1:  # none of them is more the verdict than the others
        return response.failed("invalid_output", f"{len(candidates)} candidates instead of one")
    if candidates:
        return _read_candidate(response, candidates[0])
    feedback = value.get("promptFeedback") or {}
    if (reason := feedback.get("blockReason")) is not None:
        said = feedback.get("blockReasonMessage") or ""
        return response.failed("content_blocked", f"the prompt was blocked ({reason}) {said}")
    # The same question would only come back empty again: it is not asked a second time.
    return replace(response.failed("empty_response", "no candidates"), most_retries=0)


def _is_generated(value: Mapping[str, Any]) -> bool:
    """Whether a body has the form of an answer, be it one without candidates."""
    candidates, feedback = value.get("candidates"), value.get("promptFeedback")
    if not isinstance(candidates, list | None) or not isinstance(feedback, dict | None):
        return False
    if candidates:
        first = candidates[0]
        return isinstance(first, dict) and isinstance(first.get("content"), dict | None)
    known = {"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"}
    return bool(known & value.keys())


def _read_candidate(
    response: Response, candidate: Mapping[str, Any]
) -> ProviderAnswer | CallFailure:
    reason, said = candidate.get("finishReason"), candidate.get("finishMessage") or ""
    if reason == _STOPPED:
        return response.answered(_text(candidate.get("content") or {}))
    if isinstance(reason, str) and reason in _BLOCKED:
        why = f"the provider blocked the answer ({reason}) {said}"
        return response.failed("content_blocked", why)
    if isinstance(reason, str) and reason in _TRUNCATED:
        why = f"finishReason {reason}: cut at the output cap (max_output_tokens), thoughts included"
        return response.failed("truncated", why)
    return response.failed("invalid_output", f"finishReason {reason!r} is not accepted {said}")


def _text(content: Mapping[str, Any]) -> str:
    """Return the text of all parts that are no thoughts."""
    parts = content.get("parts")
    texts = (
        part.get("text")
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and not part.get("thought")
    )
    return "".join(text for text in texts if isinstance(text, str))
