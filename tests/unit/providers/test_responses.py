"""The Responses dialect: what is sent, and what every kind of response means."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.jobs import Usage
from functions.core.prompts import Criterion, Rubric, answer_schema
from functions.core.verdicts import (
    PREVIEW_CHARACTERS,
    CallFailure,
    CallRequest,
    ProviderAnswer,
    read_answer,
)
from functions.providers import responses
from functions.providers.base import Endpoint, WireRequest
from functions.providers.redaction import redactor

NOW = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
KEY = "sk-test-ABCDEFGH12345678"
ENDPOINT = Endpoint(
    name="o", base_url="https://api.openai.com/v1", dialect="responses", api_key=KEY
)
RUBRIC = Rubric(instructions="x")
SCHEMA = answer_schema(Rubric(instructions="x", criteria=(Criterion(name="a"),)))
VERDICT = '{"rationale": "ok", "score": 71}'
OTHER_VERDICT = '{"rationale": "no", "score": 3}'


def request(schema: dict[str, Any] = SCHEMA, **parameters: Any) -> CallRequest:
    """Return a question with these seat parameters."""
    return CallRequest(model="gpt-x", system="s", user="u", schema=schema, parameters=parameters)


def sent(
    question: CallRequest, endpoint: Endpoint = ENDPOINT
) -> tuple[WireRequest, dict[str, Any]]:
    """Return the request as built, and its body parsed."""
    wire = responses.build(endpoint, question)
    assert isinstance(wire, WireRequest)
    return wire, json.loads(wire.body)


def text(value: Any = VERDICT) -> dict[str, Any]:
    """Return a part of a message that is text."""
    return {"type": "output_text", "text": value, "annotations": []}


def refusal(why: Any = "cannot help") -> dict[str, Any]:
    """Return a part of a message that is a refusal."""
    return {"type": "refusal", "refusal": why}


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    """Return an item of the output that is a message."""
    return {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [*parts],
        **more,
    }


REASONING = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": OTHER_VERDICT}],
    "content": [{"type": "output_text", "text": OTHER_VERDICT}],
}


def response(*output: Any, status: Any = "completed", **more: Any) -> dict[str, Any]:
    """Return a response with these items."""
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": "gpt-x-2026-01-01",
        "output": [*output],
        "usage": {
            "input_tokens": 40,
            "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 6},
            "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 5},
        },
        **more,
    }


def incomplete(reason: Any, *output: Any) -> dict[str, Any]:
    """Return a response that ended before its time."""
    items = output or (message(text('{"rat'), status="incomplete"),)
    return response(*items, status="incomplete", incomplete_details={"reason": reason})


def error(code: Any, words: str = "m") -> dict[str, Any]:
    """Return a response that failed with this code."""
    return response(status="failed", error={"code": code, "message": words})


def read(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> ProviderAnswer | CallFailure:
    """Return what the dialect makes of a response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return responses.read(status, headers or {}, data, NOW, redactor([KEY]))


def failed(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> CallFailure:
    """Return the failure a response means."""
    result = read(body, status, headers)
    assert isinstance(result, CallFailure)
    assert len(result.message) <= PREVIEW_CHARACTERS
    return result


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    """A29: without parameters the request has the question, the answer's form and `store` alone."""
    wire, body = sent(request())
    assert body.keys() == {"model", "instructions", "input", "store", "text"}
    assert (body["model"], body["instructions"], body["input"]) == ("gpt-x", "s", "u")
    assert wire.path == "/responses"
    assert wire.headers["Authorization"] == f"Bearer {KEY}"


def test_the_vendor_is_told_to_keep_nothing() -> None:
    """`store` is true by default at the vendor; no configuration turns it back on."""
    assert sent(request())[1]["store"] is False
    endpoint = Endpoint(name="o", base_url="http://h/v1", extra_body={"store": True})
    assert sent(request(), endpoint)[1]["store"] is False


def test_parameters_take_the_apis_names() -> None:
    """The effort goes into `reasoning`, the output cap is `max_output_tokens` whatever server."""
    question = request(max_output_tokens=800, temperature=0, top_p=0.5, reasoning_effort="low")
    _, body = sent(question)
    assert (body["max_output_tokens"], body["temperature"], body["top_p"]) == (800, 0, 0.5)
    assert body["reasoning"] == {"effort": "low"}
    assert "reasoning_effort" not in body


@pytest.mark.parametrize("name", ["seed", "logit_bias"])
def test_a_parameter_the_api_lacks_is_refused_before_it_is_sent(name: str) -> None:
    """A29: the API has no seed; leaving it out would be another question."""
    result = responses.build(ENDPOINT, request(SCHEMA, **{name: 7}))
    assert isinstance(result, CallFailure)
    assert (result.code, result.sent) == ("invalid_request", False)
    assert name in result.message


def test_a_parameter_the_endpoint_refuses_is_named() -> None:
    """An operator can say that a server takes no temperature."""
    endpoint = Endpoint(name="o", base_url="http://h/v1", refused_parameters=("temperature",))
    result = responses.build(endpoint, request(temperature=1))
    assert isinstance(result, CallFailure)
    assert "temperature" in result.message


def test_the_format_is_flat_and_strict() -> None:
    """The schema stands in the format itself, not within a `json_schema`."""
    form = sent(request())[1]["text"]["format"]
    assert form.keys() == {"type", "name", "strict", "schema"}
    assert (form["type"], form["strict"]) == ("json_schema", True)
    assert list(form["schema"]["properties"]) == ["rationale", "criteria", "score"]
    assert form["schema"]["properties"]["rationale"] == {"type": "string"}


def test_an_open_schema_is_sent_loose() -> None:
    """A caller's schema that strict mode would refuse still guides the model."""
    schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    form = sent(request(schema))[1]["text"]["format"]
    assert (form["strict"], form["schema"]) == (False, schema)


@pytest.mark.parametrize(
    ("mode", "form"), [("json_object", {"format": {"type": "json_object"}}), ("prompt", None)]
)
def test_weaker_schema_modes(mode: Any, form: dict[str, Any] | None) -> None:
    """A server without JSON Schema gets JSON mode, or nothing beside the prompt."""
    endpoint = Endpoint(name="o", base_url="http://h/v1", schema_mode=mode)
    assert sent(request(), endpoint)[1].get("text") == form


def test_a_good_answer_is_read_whole() -> None:
    """Text, returned model, usage with its parts and the request ID are kept (A31)."""
    result = read(response(REASONING, message(text())), headers={"x-request-id": "req-1"})
    assert result == ProviderAnswer(
        text=VERDICT,
        model_returned="gpt-x-2026-01-01",
        usage=Usage(
            input_tokens=40,
            output_tokens=12,
            cached_tokens=30,
            cache_write_tokens=6,
            reasoning_tokens=5,
        ),
        request_id="req-1",
    )


@pytest.mark.parametrize(
    "output",
    [
        pytest.param([REASONING, message(text())], id="reasoning-first"),
        pytest.param([message(text(VERDICT[:9]), text(VERDICT[9:]))], id="text-in-parts"),
        pytest.param([message(text(VERDICT[:9])), message(text(VERDICT[9:]))], id="two-messages"),
        pytest.param(
            [
                message(text(OTHER_VERDICT), phase="commentary"),
                REASONING,
                message(text(), phase="final_answer"),
            ],
            id="commentary-first",
        ),
        pytest.param(
            [message(text(), phase="final_answer"), message(text(OTHER_VERDICT))],
            id="the-final-answer-counts",
        ),
        pytest.param(
            [message(text("hm"), phase="commentary"), message(text())], id="no-phase-is-no-comment"
        ),
        pytest.param([message({"type": "new"}, text()), {"type": "new"}, None], id="unknown-items"),
        pytest.param([message(text(), status=None) | {"status": "completed"}], id="status"),
    ],
)
def test_the_text_of_an_answer(output: list[Any]) -> None:
    """Text parts are joined; reasoning, comments and unknown items are no answer."""
    result = read(response(*output))
    assert isinstance(result, ProviderAnswer)
    assert result.text == VERDICT


@pytest.mark.parametrize(
    "output",
    [
        pytest.param([message(text(), text(OTHER_VERDICT))], id="two-parts"),
        pytest.param([message(text()), message(text(OTHER_VERDICT))], id="two-messages"),
        pytest.param(
            [message(text(f"```json\n{v}\n```"), phase="final_answer") for v in (VERDICT, VERDICT)],
            id="two-fences",
        ),
        pytest.param([message(text("I think: "), text())], id="prose-before"),
    ],
)
def test_two_verdicts_are_none(output: list[Any]) -> None:
    """A22: whatever way two verdicts come, neither is chosen."""
    result = read(response(*output))
    assert isinstance(result, ProviderAnswer)
    verdict = read_answer(result, RUBRIC)
    assert isinstance(verdict, CallFailure)
    assert verdict.code == "invalid_output"


@pytest.mark.parametrize(
    ("body", "code", "shown"),
    [
        pytest.param(incomplete("max_output_tokens"), "truncated", "max_output_tokens", id="A14"),
        pytest.param(
            incomplete("max_output_tokens", message(text(VERDICT))),
            "truncated",
            "max_output_tokens",
            id="A14-whole-by-chance",
        ),
        pytest.param(
            incomplete("max_output_tokens", REASONING),
            "truncated",
            "max_output_tokens",
            id="A14-all-reasoning",
        ),
        pytest.param(
            response(message(text('{"rat'), status="incomplete")),
            "truncated",
            "incomplete",
            id="A14-message-incomplete",
        ),
        pytest.param(
            incomplete("content_filter"), "content_blocked", "content_filter", id="A16-filter"
        ),
        pytest.param(
            incomplete("content_filter", message(refusal())),
            "content_blocked",
            "content_filter",
            id="A16-filter-with-words",
        ),
        pytest.param(incomplete("max_messages"), "invalid_output", "max_messages", id="messages"),
        pytest.param(incomplete("steered"), "invalid_output", "steered", id="steered"),
        pytest.param(incomplete("new"), "invalid_output", "new", id="unknown-reason"),
        pytest.param(incomplete(None), "invalid_output", "None", id="no-reason"),
        pytest.param(incomplete(["x"]), "invalid_output", "None", id="odd-reason"),
        pytest.param(response(message(refusal())), "refused", "cannot help", id="A16-refusal"),
        pytest.param(
            response(message(text()), message(refusal("no"))), "refused", "no", id="A16-and-text"
        ),
        pytest.param(
            incomplete("max_output_tokens", message(refusal())),
            "refused",
            "cannot help",
            id="A16-cut-refusal",
        ),
        pytest.param(response(message(refusal(None))), "refused", "refused", id="A16-no-words"),
        pytest.param(response(), "empty_response", "no text", id="A10-no-output"),
        pytest.param(response(REASONING), "empty_response", "no text", id="A10-only-reasoning"),
        pytest.param(response(message()), "empty_response", "no text", id="A10-no-parts"),
        pytest.param(response(message(text(" \n"))), "empty_response", "no text", id="A10-blank"),
        pytest.param(response(message(text(None))), "empty_response", "no text", id="null-text"),
        pytest.param(
            response(message(text(), phase="commentary")),
            "empty_response",
            "no text",
            id="only-comments",
        ),
        pytest.param(
            response({"type": "function_call", "name": "f", "arguments": VERDICT}),
            "empty_response",
            "no text",
            id="tool-call",
        ),
        pytest.param(
            response(message(text()), status="cancelled"), "invalid_output", "cancelled", id="c"
        ),
        pytest.param(response(status="queued"), "invalid_output", "queued", id="queued"),
        pytest.param(
            response(status="in_progress"), "invalid_output", "in_progress", id="progress"
        ),
        pytest.param(
            response(message(text()), status="new"), "invalid_output", "new", id="unknown"
        ),
        pytest.param(error("server_error"), "provider_error", "server_error", id="A13-failed"),
        pytest.param(error("rate_limit_exceeded"), "rate_limited", "rate_limit", id="A13-rate"),
        pytest.param(error("vector_store_timeout"), "provider_error", "vector", id="A13-unknown"),
        pytest.param(error("invalid_prompt"), "invalid_request", "invalid_prompt", id="prompt"),
        pytest.param(error("bio_policy"), "content_blocked", "bio_policy", id="policy"),
        pytest.param(
            error("misalignment_policy_violation"), "content_blocked", "misalignment", id="policy-2"
        ),
        pytest.param(
            error("data_residency_mismatch"), "region_unsupported", "residency", id="residency"
        ),
        pytest.param(error("invalid_image"), "invalid_request", "invalid_image", id="image"),
        pytest.param(
            response(message(text()), status="failed"),
            "provider_error",
            "failed",
            id="failed-unsaid",
        ),
        pytest.param(
            response(message(text()), error={"code": "server_error", "message": "late"}),
            "provider_error",
            "late",
            id="A11-error-beside-text",
        ),
        pytest.param(
            {"error": {"message": "pay", "code": 402}}, "quota_exhausted", "pay", id="A11-pay"
        ),
        pytest.param({"error": "odd"}, "provider_error", "odd", id="A11-text-error"),
        pytest.param(b"<html>Bad Gateway</html>", "invalid_response", "Bad Gateway", id="A23-html"),
        pytest.param(b"", "invalid_response", "HTTP 200", id="A23-empty"),
        pytest.param([], "invalid_response", "[]", id="A23-array"),
        pytest.param({"choices": []}, "invalid_response", "choices", id="a-chat-completion"),
        pytest.param({"status": "completed"}, "invalid_response", "completed", id="no-output"),
        pytest.param({"status": ["x"], "output": []}, "invalid_response", "x", id="odd-status"),
        pytest.param(
            {"status": "completed", "output": {}}, "invalid_response", "output", id="odd-output"
        ),
        pytest.param(
            response({"type": "message", "content": 5}, {"type": "message"}),
            "empty_response",
            "no text",
            id="odd-content",
        ),
        pytest.param(b"[" * 100_000, "invalid_response", "[[", id="nested-beyond-any-stack"),
    ],
)
def test_a_200_can_be_a_failure(body: Any, code: str, shown: str) -> None:
    """Each way in which a 200 is no answer has its code, and the provider's words are kept."""
    failure = failed(body)
    assert (failure.code, failure.http_status) == (code, 200)
    assert shown in failure.message


@pytest.mark.parametrize(
    "body", [incomplete("max_output_tokens"), response(message(refusal())), error("server_error")]
)
def test_an_unusable_answer_keeps_its_price(body: Any) -> None:
    """A14: usage, model and request ID of an unusable answer are charged and recorded."""
    failure = failed(body, headers={"x-request-id": "req-9"})
    assert failure.usage is not None
    assert (failure.usage.output_tokens, failure.usage.reasoning_tokens) == (12, 5)
    assert (failure.model_returned, failure.request_id) == ("gpt-x-2026-01-01", "req-9")


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "m"}}, "quota_exhausted"),
        (429, {"error": {"code": "rate_limit_exceeded", "message": "m"}}, "rate_limited"),
        (400, {"error": {"code": "unsupported_value", "param": "temperature"}}, "invalid_request"),
        (404, b"", "model_not_found"),
        (502, b"<html>Bad Gateway</html>", "provider_error"),
    ],
)
def test_errors_are_judged_by_code_before_status(status: int, body: Any, code: str) -> None:
    """The errors of both OpenAI dialects are the same."""
    failure = failed(body, status)
    assert (failure.code, failure.http_status) == (code, status)


def test_the_hint_of_a_failed_response_is_read() -> None:
    """A rate limit inside a 200 keeps the wish of the response's headers."""
    assert failed(error("rate_limit_exceeded"), headers={"retry-after": "7"}).hint_seconds == 7


def test_a25_no_key_in_what_is_kept() -> None:
    """A server that echoes the key cannot put it into answers, model names or messages."""
    for output in (message(text(f"key {KEY}")), message(refusal(KEY))):
        assert KEY not in str(read(response(output, model=KEY), headers={"x-request-id": KEY}))
    assert KEY not in str(read(error("server_error", f"key {KEY}")))


def test_usage_is_counted_only_from_numbers() -> None:
    """Odd, negative, boolean, absurd or missing counts make all unknown: no cost is too low."""
    assert responses.read_usage(None) is None
    assert responses.read_usage({"input_tokens": "40"}) is None
    assert responses.read_usage({"input_tokens": True, "output_tokens": 10**30}) is None
    assert responses.read_usage({"input_tokens": 4, "output_tokens": -1}) is None
    assert responses.read_usage({"output_tokens": 4}) is None
    whole = responses.read_usage({"input_tokens": 12.0, "output_tokens": 5.0})
    assert whole == Usage(input_tokens=12, output_tokens=5)
