"""The Chat Completions dialect: what is sent, and what every kind of response means."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.jobs import Usage
from functions.core.prompts import Criterion, Rubric, answer_schema
from functions.core.verdicts import PREVIEW_CHARACTERS, CallFailure, CallRequest, ProviderAnswer
from functions.providers import chat
from functions.providers.base import Endpoint, WireRequest, endpoint_digest
from functions.providers.redaction import redactor

NOW = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
KEY = "sk-test-ABCDEFGH12345678"
ENDPOINT = Endpoint(name="openai", base_url="https://api.openai.com/v1", api_key=KEY)
SCHEMA = answer_schema(Rubric(instructions="x", criteria=(Criterion(name="a"),)))
VERDICT = '{"score": 71, "rationale": "ok"}'


def request(**parameters: Any) -> CallRequest:
    """Return a question with these seat parameters."""
    return CallRequest(model="gpt-x", system="s", user="u", schema=SCHEMA, parameters=parameters)


def sent(endpoint: Endpoint, question: CallRequest) -> tuple[WireRequest, dict[str, Any]]:
    """Return the request as built, and its body parsed."""
    wire = chat.build(endpoint, question)
    assert isinstance(wire, WireRequest)
    return wire, json.loads(wire.body)


def completion(
    content: Any = VERDICT, finish: Any = "stop", message: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a chat completion."""
    said = {"role": "assistant", "content": content, **(message or {})}
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "gpt-x-2026-01-01",
        "choices": [{"index": 0, "finish_reason": finish, "message": said}],
        "usage": {
            "prompt_tokens": 40,
            "completion_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    }


def read(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> ProviderAnswer | CallFailure:
    """Return what the dialect makes of a response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return chat.read(status, headers or {}, data, NOW, redactor([KEY]))


def failed(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> CallFailure:
    """Return the failure a response means."""
    result = read(body, status, headers)
    assert isinstance(result, CallFailure)
    assert len(result.message) <= PREVIEW_CHARACTERS
    return result


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    """A29: without parameters the request has model, messages and the answer's form alone."""
    wire, body = sent(ENDPOINT, request())
    assert body.keys() == {"model", "messages", "response_format"}
    assert [(m["role"], m["content"]) for m in body["messages"]] == [("system", "s"), ("user", "u")]
    assert wire.path == "/chat/completions"
    assert wire.headers["Authorization"] == f"Bearer {KEY}"


def test_parameters_take_the_endpoints_names() -> None:
    """A29: the output cap goes out under the endpoint's own field, the rest as given."""
    question = request(max_output_tokens=800, temperature=0, seed=7, reasoning_effort="low")
    _, body = sent(ENDPOINT, question)
    assert body["max_completion_tokens"] == 800
    assert (body["temperature"], body["seed"], body["reasoning_effort"]) == (0, 7, "low")
    older = Endpoint(name="m", base_url="http://h/v1", token_field="max_tokens")
    wire, body = sent(older, question)
    assert body["max_tokens"] == 800
    assert "Authorization" not in wire.headers


def test_an_unknown_parameter_is_refused_before_it_is_sent() -> None:
    """A parameter the dialect cannot say is a failure, not a silent change of the question."""
    result = chat.build(ENDPOINT, request(logit_bias={}))
    assert isinstance(result, CallFailure)
    assert (result.code, result.sent) == ("invalid_request", False)
    assert "logit_bias" in result.message


def test_another_auth_header_carries_the_key_alone() -> None:
    """Azure's `api-key` has no scheme before the key."""
    azure = Endpoint(name="a", base_url="https://h/v1", api_key=KEY, auth_header="api-key")
    wire, _ = sent(azure, request())
    assert wire.headers["api-key"] == KEY


def test_the_key_is_not_in_the_endpoints_text() -> None:
    """A25: printing an endpoint does not print its key."""
    assert KEY not in repr(ENDPOINT)


def test_the_default_schema_is_sent_strict_and_without_string_bounds() -> None:
    """OpenAI's strict mode refuses `maxLength`; numbers keep their bounds and order."""
    _, body = sent(ENDPOINT, request())
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert list(form["schema"]["properties"]) == ["rationale", "criteria", "score"]
    assert form["schema"]["properties"]["rationale"] == {"type": "string"}
    assert form["schema"]["properties"]["score"] == SCHEMA["properties"]["score"]


def test_a_grammar_server_gets_integers_and_short_strings() -> None:
    """llama.cpp bounds integers and strings only: the schema is narrowed to what it can hold."""
    local = Endpoint(name="l", base_url="http://h/v1", integers=True, max_string_characters=300)
    _, body = sent(local, request())
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    assert properties["score"] == {"type": "integer", "minimum": 0, "maximum": 100}
    assert properties["criteria"]["properties"]["a"]["type"] == "integer"
    assert properties["rationale"]["maxLength"] == 300
    assert SCHEMA["properties"]["score"]["type"] == "number"


def test_a_fine_scale_is_not_narrowed() -> None:
    """On a scale of 0 to 1 integers would change the question, so numbers stay numbers."""
    schema = {"type": "number", "minimum": 0, "maximum": 1}
    local = Endpoint(name="l", base_url="http://h/v1", integers=True)
    question = CallRequest(model="m", system="s", user="u", schema=schema)
    _, body = sent(local, question)
    assert body["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("mode", "form"), [("json_object", {"type": "json_object"}), ("prompt", None)]
)
def test_weaker_schema_modes(mode: Any, form: dict[str, str] | None) -> None:
    """A server without JSON Schema gets JSON mode, or nothing beside the prompt."""
    endpoint = Endpoint(name="m", base_url="http://h/v1", schema_mode=mode)
    _, body = sent(endpoint, request())
    assert body.get("response_format") == form


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {"type": "object", "properties": {}, "required": []},
        {"type": "array", "items": {"type": "string"}},
        {**SCHEMA, "properties": {**SCHEMA["properties"], "score": {"oneOf": [{}]}}},
    ],
)
def test_a_schema_outside_the_strict_subset_is_sent_loose(schema: dict[str, Any]) -> None:
    """A caller's schema that strict mode would refuse still guides the model."""
    _, body = sent(ENDPOINT, CallRequest(model="m", system="s", user="u", schema=schema))
    assert body["response_format"]["json_schema"]["strict"] is False


def test_properties_named_like_keywords_are_properties() -> None:
    """A property called `not` or `enum` is part of the data, not of the schema language."""
    number = {"type": "number", "minimum": 0, "maximum": 9}
    names = ["not", "enum", "properties"]
    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, number),
        "required": names,
        "additionalProperties": False,
    }
    local = Endpoint(name="l", base_url="http://h/v1", integers=True)
    _, body = sent(local, CallRequest(model="m", system="s", user="u", schema=schema))
    form = body["response_format"]["json_schema"]
    assert form["strict"] is True
    assert all(form["schema"]["properties"][n]["type"] == "integer" for n in names)


def test_a_good_answer_is_read_whole() -> None:
    """Text, returned model, usage with its parts and the request ID are kept (A31)."""
    assert read(completion(), headers={"x-request-id": "req-1"}) == ProviderAnswer(
        text=VERDICT,
        model_returned="gpt-x-2026-01-01",
        usage=Usage(input_tokens=40, output_tokens=12, cached_tokens=30, reasoning_tokens=5),
        request_id="req-1",
    )


def test_text_in_parts_is_joined_without_the_reasoning() -> None:
    """Servers that answer in parts give their text parts, not their thoughts."""
    parts = [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": VERDICT[:5]},
        {"type": "text", "text": VERDICT[5:]},
    ]
    answer = read(completion(parts))
    assert isinstance(answer, ProviderAnswer)
    assert answer.text == VERDICT


@pytest.mark.parametrize(
    ("body", "code", "shown"),
    [
        pytest.param(completion('{"sc', "length"), "truncated", "max_output_tokens", id="A14"),
        pytest.param(completion(None, "length"), "truncated", "length", id="A14-all-reasoning"),
        pytest.param(
            completion("x", "model_length"), "truncated", "model_length", id="A14-mistral"
        ),
        pytest.param(
            completion(None, "content_filter"), "content_blocked", "content_filter", id="A16-filter"
        ),
        pytest.param(
            completion(None, "stop", {"refusal": "cannot help"}),
            "refused",
            "cannot help",
            id="A16-refusal",
        ),
        pytest.param(completion(""), "empty_response", "no text", id="A16-empty"),
        pytest.param(completion(None), "empty_response", "no text", id="A16-null"),
        pytest.param(completion(" \n"), "empty_response", "no text", id="A16-blank"),
        pytest.param({"choices": []}, "empty_response", "no choices", id="A10-no-choices"),
        pytest.param(completion("x", "steered"), "invalid_output", "steered", id="unknown-finish"),
        pytest.param(completion("x", None), "invalid_output", "None", id="no-finish"),
        pytest.param(
            completion("x", "tool_calls"), "invalid_output", "tool_calls", id="tool-calls"
        ),
        pytest.param(completion("x", "error"), "provider_error", "error", id="A11-choice-error"),
        pytest.param(
            {"choices": [{"error": {"code": 429, "message": "late"}, "message": {}}]},
            "rate_limited",
            "late",
            id="A11-error-in-the-choice",
        ),
        pytest.param(
            {"error": {"message": "upstream limited", "code": 429}, "user_id": "u"},
            "rate_limited",
            "upstream limited",
            id="A11-error-in-a-200",
        ),
        pytest.param(
            {"error": {"message": "pay", "code": 402}},
            "quota_exhausted",
            "pay",
            id="A11-pay-in-a-200",
        ),
        pytest.param({"error": "odd"}, "provider_error", "odd", id="A11-text-error"),
        pytest.param(
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "overloaded",
            "Overloaded",
            id="A13-overloaded-in-a-200",
        ),
        pytest.param(
            {"object": "error", "message": "flat", "code": 503},
            "overloaded",
            "flat",
            id="flat-in-200",
        ),
        pytest.param(
            b"<html><title>502 Bad Gateway</title></html>", "invalid_response", "502", id="A23-html"
        ),
        pytest.param(b"", "invalid_response", "HTTP 200", id="A23-empty"),
        pytest.param(bytes.fromhex("fffe7b22"), "invalid_response", "HTTP 200", id="A23-bytes"),
        pytest.param([], "invalid_response", "[]", id="A23-array"),
        pytest.param("ok", "invalid_response", "ok", id="A23-string"),
        pytest.param({"choices": [None]}, "invalid_response", "choices", id="null-choice"),
        pytest.param(
            {"choices": [{"message": "hi", "finish_reason": "stop"}]},
            "invalid_response",
            "hi",
            id="text-message",
        ),
        pytest.param(b"[" * 100_000, "invalid_response", "[[", id="nested-beyond-any-stack"),
    ],
)
def test_a_200_can_be_a_failure(body: Any, code: str, shown: str) -> None:
    """Each way in which a 200 is no answer has its code, and the provider's words are kept."""
    failure = failed(body)
    assert (failure.code, failure.http_status) == (code, 200)
    assert shown in failure.message


def test_an_unusable_answer_keeps_its_price() -> None:
    """A14: usage, model and request ID of a cut answer are charged and recorded."""
    failure = failed(completion("x", "length"), headers={"x-request-id": "req-9"})
    assert failure.usage is not None
    assert failure.usage.output_tokens == 12
    assert (failure.model_returned, failure.request_id) == ("gpt-x-2026-01-01", "req-9")


def error(code: Any = None, kind: Any = None, message: str = "m", **more: Any) -> dict[str, Any]:
    """Return OpenAI's error body."""
    return {"error": {"message": message, "type": kind, "code": code, **more}}


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        pytest.param(
            429, error("insufficient_quota", "insufficient_quota"), "quota_exhausted", id="A01"
        ),
        pytest.param(
            429,
            error("credit_balance_exhausted", "insufficient_quota"),
            "quota_exhausted",
            id="A01-credit",
        ),
        pytest.param(429, error(None, "insufficient_quota"), "quota_exhausted", id="A01-type-only"),
        pytest.param(402, error(402), "quota_exhausted", id="A01-402"),
        pytest.param(
            402,
            error(402, metadata={"limit_source": "openrouter_in_flight_budget"}),
            "rate_limited",
            id="A01-in-flight-budget",
        ),
        pytest.param(429, error("rate_limit_exceeded", "tokens"), "rate_limited", id="A01-rate"),
        pytest.param(429, error("slow_down"), "rate_limited", id="slow-down"),
        pytest.param(503, error("slow_down"), "overloaded", id="slow-down-503"),
        pytest.param(503, error("server_is_overloaded"), "overloaded", id="overloaded"),
        pytest.param(429, error("429", "throttling_error"), "rate_limited", id="litellm"),
        pytest.param(401, error("invalid_api_key"), "invalid_credential", id="A25-401"),
        pytest.param(403, error(), "permission_denied", id="403"),
        pytest.param(
            403, error("unsupported_country_region_territory"), "region_unsupported", id="region"
        ),
        pytest.param(404, error("model_not_found"), "model_not_found", id="404"),
        pytest.param(400, error("context_length_exceeded"), "input_too_large", id="too-long"),
        pytest.param(
            400, error(400, "exceed_context_size_error"), "input_too_large", id="too-long-llama.cpp"
        ),
        pytest.param(413, b"", "input_too_large", id="413"),
        pytest.param(400, error("content_filter"), "content_blocked", id="A16-azure-prompt"),
        pytest.param(400, error("unsupported_value"), "invalid_request", id="A29"),
        pytest.param(422, {"detail": "no"}, "invalid_request", id="422"),
        pytest.param(408, error(), "timeout", id="408"),
        pytest.param(409, error(), "provider_error", id="409"),
        pytest.param(425, error(), "provider_error", id="425"),
        pytest.param(498, error(), "overloaded", id="498"),
        pytest.param(500, error("server_error"), "provider_error", id="500"),
        pytest.param(502, b"<html>Bad Gateway</html>", "provider_error", id="502-html"),
        pytest.param(503, b"", "overloaded", id="503-empty"),
        pytest.param(504, error(), "timeout", id="504"),
        pytest.param(529, error(None, "overloaded_error"), "overloaded", id="A13-529"),
        pytest.param(599, error(), "provider_error", id="A13-unknown-5xx"),
        pytest.param(307, b"", "invalid_request", id="redirect"),
        pytest.param(500, [error("server_error")], "provider_error", id="list-of-one"),
        pytest.param(
            429, {"object": "error", "message": "m", "code": "3505"}, "rate_limited", id="mistral"
        ),
    ],
)
def test_errors_are_judged_by_code_before_status(status: int, body: Any, code: str) -> None:
    """Each error has one code of ours; an unknown vendor's code counts by its status."""
    failure = failed(body, status)
    assert (failure.code, failure.http_status, failure.sent) == (code, status, True)
    assert f"HTTP {status}" in failure.message


def test_a01_a_spent_account_has_no_hint() -> None:
    """A billing error is not made a rate limit by its Retry-After or x-should-retry header."""
    headers = {"retry-after": "1", "x-should-retry": "true"}
    failure = failed(error("insufficient_quota", "insufficient_quota"), 429, headers)
    assert (failure.code, failure.hint_seconds) == ("quota_exhausted", None)


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ({"retry-after": "Mon, 02 Mar 2026 10:00:20 GMT"}, 20.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "61500", "retry-after": "61"}, 61.5),
        ({"retry-after": "-3"}, None),
    ],
)
def test_a02_a03_a05_the_hint_of_a_rate_limit(headers: dict[str, str], hint: float | None) -> None:
    """The provider's wish is read with the failure."""
    assert failed(error("rate_limit_exceeded"), 429, headers).hint_seconds == hint


def test_should_retry_makes_an_unknown_4xx_transient() -> None:
    """`x-should-retry` is obeyed where no known code says otherwise."""
    assert failed(error(), 400, {"x-should-retry": "true"}).code == "provider_error"
    assert failed(error(), 500, {"x-should-retry": "false"}).should_retry is False


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            error("unsupported_value", "invalid_request_error", "only 1", param="temperature"),
            "HTTP 400 invalid_request_error unsupported_value (param temperature): only 1",
        ),
        (
            {"object": "error", "message": "bad", "type": "invalid", "param": "seed", "code": 1},
            "HTTP 400 invalid 1 (param seed): bad",
        ),
        (
            {"detail": [{"loc": ["body", "top_p"], "msg": "too high", "type": "value_error"}]},
            "HTTP 400 (param top_p): too high",
        ),
        ({"error": "no such thing"}, "HTTP 400: no such thing"),
    ],
)
def test_a29_the_parameter_is_named(body: Any, shown: str) -> None:
    """Whatever the body's form, the message names the parameter and keeps the vendor's words."""
    assert failed(body, 400).message == shown


@pytest.mark.parametrize("lead", [0, PREVIEW_CHARACTERS - 60, PREVIEW_CHARACTERS - 30])
def test_a25_no_key_in_a_message(lead: int) -> None:
    """The key and every longer part of it are gone, also where the message is cut."""
    said = "x" * lead + f" Incorrect API key provided: {KEY}. Bearer {KEY[:15]}*** {KEY[5:]}"
    failure = failed(error("invalid_api_key", message=said), 401)
    parts = (KEY[i : i + 12] for i in range(len(KEY) - 11))
    assert failure.code == "invalid_credential"
    assert not any(part in failure.message for part in parts)
    assert "[redacted]" in failure.message or lead


def test_a25_no_key_anywhere_else() -> None:
    """A server that echoes the key cannot put it into answers, model names or request IDs."""
    body = completion(f"key {KEY}") | {"model": KEY}
    assert KEY not in str(read(body, headers={"x-request-id": KEY}))
    assert KEY not in str(read(f"<html>{KEY}".encode()))


def test_usage_is_counted_only_from_numbers() -> None:
    """Odd, negative, boolean, absurd or missing counts make all unknown: no cost is too low."""
    assert chat.read_usage(None) is None
    assert chat.read_usage({"prompt_tokens": "40"}) is None
    assert chat.read_usage({"prompt_tokens": True, "completion_tokens": 10**30}) is None
    assert chat.read_usage({"prompt_tokens": 4, "completion_tokens": -1}) is None
    assert chat.read_usage({"completion_tokens": 4}) is None
    whole = chat.read_usage({"prompt_tokens": 12.0, "completion_tokens": 5.0})
    assert whole == Usage(input_tokens=12, output_tokens=5)


@pytest.mark.parametrize(
    "url",
    ["https://API.openai.com/v1/", "HTTPS://api.openai.com:443/v1", " https://api.openai.com/v1"],
)
def test_one_endpoint_has_one_digest(url: str) -> None:
    """Spelling does not change an endpoint; path, port and dialect do."""
    digest = endpoint_digest("chat", "https://api.openai.com/v1")
    assert endpoint_digest("chat", url) == digest
    assert endpoint_digest("chat", "https://api.openai.com/v2") != digest
    assert endpoint_digest("chat", "https://api.openai.com:8443/v1") != digest
    assert endpoint_digest("responses", url) != digest
    assert endpoint_digest("chat", "http://[::1]:80/v1") == endpoint_digest(
        "chat", "http://[::1]/v1/"
    )
