"""The Messages dialect: what is sent, and what every kind of response means."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.jobs import Usage
from functions.core.prompts import Criterion, Rubric, answer_schema
from functions.core.verdicts import (
    DEFAULT_OUTPUT_TOKENS,
    PREVIEW_CHARACTERS,
    CallFailure,
    CallRequest,
    ProviderAnswer,
    read_answer,
)
from functions.providers import anthropic
from functions.providers.base import Endpoint, WireRequest
from functions.providers.redaction import redactor

NOW = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
KEY = "sk-ant-test-ABCDEFGH12345678"
ENDPOINT = Endpoint(
    name="a",
    base_url="https://api.anthropic.com",
    dialect="anthropic",
    api_key=KEY,
    auth_header="x-api-key",
)
RUBRIC = Rubric(instructions="x")
SCHEMA = answer_schema(Rubric(instructions="x", criteria=(Criterion(name="a"),)))
VERDICT = '{"rationale": "ok", "score": 71}'
OTHER_VERDICT = '{"rationale": "no", "score": 3}'


def request(schema: dict[str, Any] = SCHEMA, **parameters: Any) -> CallRequest:
    """Return a question with these seat parameters."""
    return CallRequest(model="claude-x", system="s", user="u", schema=schema, parameters=parameters)


def sent(
    question: CallRequest, endpoint: Endpoint = ENDPOINT
) -> tuple[WireRequest, dict[str, Any]]:
    """Return the request as built, and its body parsed."""
    wire = anthropic.build(endpoint, question)
    assert isinstance(wire, WireRequest)
    return wire, json.loads(wire.body)


def text(value: Any = VERDICT) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": value}


THINKING = {"type": "thinking", "thinking": OTHER_VERDICT, "text": OTHER_VERDICT, "signature": "x"}
REDACTED = {"type": "redacted_thinking", "data": "x"}
TOOL_USE = {"type": "tool_use", "id": "t", "name": "n", "input": {"rationale": "ok", "score": 1}}


def message(*content: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    """Return a message with these blocks."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x-20260101",
        "content": [*content],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 6,
            "cache_read_input_tokens": 30,
            "output_tokens": 12,
            "output_tokens_details": {"thinking_tokens": 5},
        },
        **more,
    }


def error(kind: str, words: str = "m", code: str | None = None) -> dict[str, Any]:
    """Return the vendor's error body."""
    details = None if code is None else {"error_code": code}
    told = {"type": kind, "message": words, "details": details}
    return {"type": "error", "error": told, "request_id": "req_body"}


def read(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> ProviderAnswer | CallFailure:
    """Return what the dialect makes of a response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return anthropic.read(status, headers or {}, data, NOW, redactor([KEY]))


def failed(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> CallFailure:
    """Return the failure a response means."""
    result = read(body, status, headers)
    assert isinstance(result, CallFailure)
    assert len(result.message) <= PREVIEW_CHARACTERS
    return result


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    """A29: the question, the answer's form, and the cap that the API demands."""
    wire, body = sent(request())
    assert body.keys() == {"model", "max_tokens", "system", "messages", "output_config"}
    assert (body["model"], body["system"]) == ("claude-x", "s")
    assert body["messages"] == [{"role": "user", "content": "u"}]
    assert body["max_tokens"] == DEFAULT_OUTPUT_TOKENS
    assert body["output_config"].keys() == {"format"}
    assert wire.path == "/v1/messages"
    assert wire.headers["x-api-key"] == KEY
    assert wire.headers["anthropic-version"] == anthropic.VERSION
    assert "Authorization" not in wire.headers


def test_a_gateway_may_want_a_bearer_token() -> None:
    """The header that carries the key is the endpoint's."""
    gateway = Endpoint(name="a", base_url="http://h", api_key=KEY)
    assert sent(request(), gateway)[0].headers["Authorization"] == f"Bearer {KEY}"


def test_parameters_take_the_apis_names() -> None:
    """The cap is `max_tokens`, the effort goes into `output_config` beside the format."""
    question = request(max_output_tokens=800, temperature=0.5, top_p=0.9, reasoning_effort="low")
    _, body = sent(question)
    assert (body["max_tokens"], body["temperature"], body["top_p"]) == (800, 0.5, 0.9)
    assert body["output_config"]["effort"] == "low"
    assert "format" in body["output_config"]
    assert not {"reasoning_effort", "max_output_tokens"} & body.keys()


@pytest.mark.parametrize("name", ["seed", "top_k"])
def test_a_parameter_the_api_lacks_is_refused_before_it_is_sent(name: str) -> None:
    """A29: the API has no seed; leaving it out would be another question."""
    result = anthropic.build(ENDPOINT, request(SCHEMA, **{name: 7}))
    assert isinstance(result, CallFailure)
    assert (result.code, result.sent) == ("invalid_request", False)
    assert name in result.message


def test_a_parameter_the_endpoint_refuses_is_named() -> None:
    """An operator of newer models can refuse the temperature before it costs a request."""
    endpoint = Endpoint(name="a", base_url="http://h", refused_parameters=("temperature",))
    result = anthropic.build(endpoint, request(temperature=1))
    assert isinstance(result, CallFailure)
    assert "temperature" in result.message


def test_the_schema_is_cut_to_the_vendors_subset() -> None:
    """Bounds that the vendor refuses are told in descriptions, reasons come first."""
    form = sent(request())[1]["output_config"]["format"]
    assert form["type"] == "json_schema"
    properties = form["schema"]["properties"]
    assert list(properties) == ["rationale", "criteria", "score"]
    assert properties["score"] == {"type": "number", "description": "(minimum 0, maximum 100)"}
    assert form["schema"]["additionalProperties"] is False


def test_integers_are_listed_where_the_endpoint_wants_them() -> None:
    """An operator can have the scale enforced, at the price of whole numbers."""
    endpoint = Endpoint(name="a", base_url="http://h", integers=True)
    form = sent(request(), endpoint)[1]["output_config"]["format"]
    assert form["schema"]["properties"]["score"]["enum"] == list(range(101))


@pytest.mark.parametrize("mode", ["json_object", "prompt"])
def test_weaker_schema_modes(mode: Any) -> None:
    """Without a schema there is nothing beside the prompt: the API has no JSON mode."""
    endpoint = Endpoint(name="a", base_url="http://h", schema_mode=mode)
    assert "output_config" not in sent(request(), endpoint)[1]
    _, body = sent(request(reasoning_effort="high"), endpoint)
    assert body["output_config"] == {"effort": "high"}


def test_a_schema_that_cannot_be_said_is_left_to_the_prompt() -> None:
    """A grammar for any object would be one for `{}`."""
    assert "output_config" not in sent(request({"type": "object"}))[1]


def test_a_good_answer_is_read_whole() -> None:
    """Text, returned model, request ID, and the vendor's counts added up (A31)."""
    result = read(message(THINKING, text()), headers={"request-id": "req_1"})
    assert result == ProviderAnswer(
        text=VERDICT,
        model_returned="claude-x-20260101",
        usage=Usage(
            input_tokens=46,
            output_tokens=12,
            cached_tokens=30,
            cache_write_tokens=6,
            reasoning_tokens=5,
        ),
        request_id="req_1",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(message(text()), id="end_turn"),
        pytest.param(message(text(), stop="stop_sequence"), id="stop_sequence"),
        pytest.param(message(THINKING, REDACTED, text()), id="thinking-first"),
        pytest.param(message(text(VERDICT[:9]), THINKING, text(VERDICT[9:])), id="text-in-blocks"),
        pytest.param(message({"type": "new", "text": "x"}, None, text()), id="unknown-blocks"),
    ],
)
def test_the_text_of_an_answer(body: Any) -> None:
    """Text blocks are joined; thinking and unknown blocks are no answer."""
    result = read(body)
    assert isinstance(result, ProviderAnswer)
    assert result.text == VERDICT


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(message(text(), text(OTHER_VERDICT)), id="two-blocks"),
        pytest.param(message(text(), THINKING, text(VERDICT)), id="the-same-twice"),
        pytest.param(
            message(text(f"```json\n{VERDICT}\n```\n"), text(f"```json\n{OTHER_VERDICT}\n```")),
            id="two-fences",
        ),
        pytest.param(message(text("Here it is: "), text()), id="prose-before"),
    ],
)
def test_two_verdicts_are_none(body: Any) -> None:
    """A22: whatever way two verdicts come, neither is chosen."""
    result = read(body)
    assert isinstance(result, ProviderAnswer)
    verdict = read_answer(result, RUBRIC)
    assert isinstance(verdict, CallFailure)
    assert verdict.code == "invalid_output"


REFUSED = {"type": "refusal", "category": "cyber", "explanation": "looks like an exploit"}


@pytest.mark.parametrize(
    ("body", "code", "shown"),
    [
        pytest.param(message(text('{"r'), stop="max_tokens"), "truncated", "max_tokens", id="A14"),
        pytest.param(
            message(text(), stop="max_tokens"), "truncated", "max_tokens", id="A14-whole-by-chance"
        ),
        pytest.param(
            message(THINKING, stop="max_tokens"), "truncated", "max_tokens", id="A14-all-thinking"
        ),
        pytest.param(
            message(stop="model_context_window_exceeded"),
            "truncated",
            "model_context_window_exceeded",
            id="A14-context",
        ),
        pytest.param(
            message(stop="refusal", stop_details=REFUSED),
            "refused",
            "(cyber): looks like an exploit",
            id="A16-refusal",
        ),
        pytest.param(
            message(text(), stop="refusal", stop_details=None), "refused", "refused", id="A16-text"
        ),
        pytest.param(message(stop="refusal"), "refused", "refused", id="A16-no-details"),
        pytest.param(
            message(stop="refusal", stop_details={"category": "bio"}),
            "refused",
            "(bio)",
            id="A16-category",
        ),
        pytest.param(
            message(text(), stop="pause_turn"), "invalid_output", "pause_turn", id="pause"
        ),
        pytest.param(
            message(text(), TOOL_USE, stop="tool_use"), "invalid_output", "tool_use", id="tool"
        ),
        pytest.param(message(text(), stop="new"), "invalid_output", "new", id="unknown-reason"),
        pytest.param(message(text(), stop=None), "invalid_output", "None", id="no-reason"),
        pytest.param(message(text(), stop=["end_turn"]), "invalid_output", "end_turn", id="odd"),
        pytest.param(message(), "empty_response", "no text", id="A10-no-content"),
        pytest.param(message(THINKING), "empty_response", "no text", id="A10-only-thinking"),
        pytest.param(message(text(" \n")), "empty_response", "no text", id="A10-blank"),
        pytest.param(message(text(None)), "empty_response", "no text", id="null-text"),
        pytest.param(error("overloaded_error"), "overloaded", "overloaded", id="A13-in-a-200"),
        pytest.param(error("api_error"), "provider_error", "api_error", id="A13-api-in-a-200"),
        pytest.param(error("new_error"), "provider_error", "new_error", id="A13-unknown"),
        pytest.param({"error": "odd"}, "provider_error", "odd", id="A11-text-error"),
        pytest.param(b"<html>Bad Gateway</html>", "invalid_response", "Bad Gateway", id="A23-html"),
        pytest.param(b"", "invalid_response", "HTTP 200", id="A23-empty"),
        pytest.param([], "invalid_response", "[]", id="A23-array"),
        pytest.param({"choices": []}, "invalid_response", "choices", id="a-chat-completion"),
        pytest.param(
            {"content": "hi", "stop_reason": "end_turn"}, "invalid_response", "hi", id="text-alone"
        ),
        pytest.param(b"[" * 100_000, "invalid_response", "[[", id="nested-beyond-any-stack"),
    ],
)
def test_a_200_can_be_a_failure(body: Any, code: str, shown: str) -> None:
    """Each way in which a 200 is no answer has its code, and the provider's words are kept."""
    failure = failed(body)
    assert (failure.code, failure.http_status) == (code, 200)
    assert shown in failure.message


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "pause_turn"])
def test_an_unusable_answer_keeps_its_price(stop: str) -> None:
    """A14: usage, model and request ID of an unusable answer are charged and recorded."""
    failure = failed(message(text(), stop=stop), headers={"request-id": "req_9"})
    assert failure.usage is not None
    assert (failure.usage.input_tokens, failure.usage.output_tokens) == (46, 12)
    assert (failure.model_returned, failure.request_id) == ("claude-x-20260101", "req_9")


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        pytest.param(400, error("invalid_request_error"), "invalid_request", id="400"),
        pytest.param(
            400,
            error("invalid_request_error", "You have reached your specified API usage limits."),
            "quota_exhausted",
            id="A01-own-limit",
        ),
        pytest.param(
            400,
            error("invalid_request_error", code="organization_on_hold"),
            "permission_denied",
            id="on-hold",
        ),
        pytest.param(401, error("authentication_error"), "invalid_credential", id="401"),
        pytest.param(403, error("permission_error"), "permission_denied", id="403"),
        pytest.param(404, error("not_found_error"), "model_not_found", id="404"),
        pytest.param(402, error("billing_error"), "quota_exhausted", id="402"),
        pytest.param(409, error("conflict_error"), "provider_error", id="409"),
        pytest.param(413, error("request_too_large"), "input_too_large", id="413"),
        pytest.param(429, error("rate_limit_error"), "rate_limited", id="429"),
        pytest.param(
            429, error("rate_limit_error", code="ramp_limit_exceeded"), "rate_limited", id="ramp"
        ),
        pytest.param(
            429,
            error("rate_limit_error", code="enforced_spend_limit_reached"),
            "quota_exhausted",
            id="A01-spend",
        ),
        pytest.param(
            429,
            error("rate_limit_error", code="contract_spend_limit_reached"),
            "quota_exhausted",
            id="A01-contract",
        ),
        pytest.param(500, error("api_error"), "provider_error", id="500"),
        pytest.param(503, b"", "overloaded", id="503"),
        pytest.param(504, error("timeout_error"), "timeout", id="504"),
        pytest.param(529, error("overloaded_error"), "overloaded", id="A13-529"),
    ],
)
def test_errors_are_judged_by_code_before_type_before_status(
    status: int, body: Any, code: str
) -> None:
    """Each row of the vendor's table of errors has one code of ours."""
    failure = failed(body, status)
    assert (failure.code, failure.http_status) == (code, status)


def test_the_request_id_is_also_in_an_errors_body() -> None:
    """The header comes first; without it the body names the request."""
    assert failed(error("api_error"), 500).request_id == "req_body"
    assert failed(error("api_error"), 500, {"request-id": "req_head"}).request_id == "req_head"


def test_a25_no_key_in_what_is_kept() -> None:
    """A server that echoes the key cannot put it into answers, model names or messages."""
    bodies = [
        message(text(f"key {KEY}"), model=KEY),
        message(stop="refusal", stop_details={"explanation": KEY}),
        error("authentication_error", f"invalid x-api-key {KEY}") | {"request_id": KEY},
    ]
    for body in bodies:
        assert KEY not in str(read(body))
    assert KEY not in repr(ENDPOINT)


def test_usage_is_counted_only_from_numbers() -> None:
    """Odd counts are ignored, absent cache counts are 0, no counts at all are unknown."""
    assert anthropic.read_usage(None) is None
    assert anthropic.read_usage({"input_tokens": "40"}) is None
    assert anthropic.read_usage({"input_tokens": True, "output_tokens": 10**30}) is None
    counts = {"input_tokens": 4, "output_tokens": -1, "cache_read_input_tokens": None}
    assert anthropic.read_usage(counts) is None
    assert anthropic.read_usage(counts | {"output_tokens": 1}) == Usage(
        input_tokens=4, output_tokens=1
    )
    assert anthropic.read_usage({"output_tokens": 4}) is None
