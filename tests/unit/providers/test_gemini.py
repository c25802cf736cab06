"""The `generateContent` dialect: what is sent, and what every kind of response means."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.jobs import Outcome, Usage
from functions.core.prompts import Criterion, Rubric, answer_schema
from functions.core.retries import decide, outcome_of
from functions.core.verdicts import PREVIEW_CHARACTERS, CallFailure, CallRequest, ProviderAnswer
from functions.providers import gemini
from functions.providers.base import Endpoint, WireRequest
from functions.providers.redaction import redactor
from functions.providers.sent_schema import gemini_schema

NOW = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
KEY = "AIza-test-ABCDEFGH12345678"
ENDPOINT = Endpoint(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com",
    dialect="gemini",
    api_key=KEY,
    auth_header="x-goog-api-key",
)
SCHEMA = answer_schema(Rubric(instructions="x", criteria=(Criterion(name="a"),)))
VERDICT = '{"score": 71, "rationale": "ok"}'

BLOCKED_PROMPTS = [
    "SAFETY",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "IMAGE_SAFETY",
    "MODEL_ARMOR",
    "JAILBREAK",
    "BLOCKED_REASON_OF_TOMORROW",
]
BLOCKED_ANSWERS = [
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
    "ESCALATION",
    "PUP_LIMITED_DISABLED",
]
UNACCEPTED = [
    "MALFORMED_RESPONSE",
    "OTHER",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "IMAGE_SAFETY",
    "NO_IMAGE",
    "FINISH_REASON_UNSPECIFIED",
    "REASON_OF_TOMORROW",
]


def request(model: str = "gemini-x", **parameters: Any) -> CallRequest:
    """Return a question with these seat parameters."""
    return CallRequest(model=model, system="s", user="u", schema=SCHEMA, parameters=parameters)


def sent(endpoint: Endpoint, question: CallRequest) -> tuple[WireRequest, dict[str, Any]]:
    """Return the request as built, and its body parsed."""
    wire = gemini.build(endpoint, question)
    assert isinstance(wire, WireRequest)
    return wire, json.loads(wire.body)


def refused(question: CallRequest, endpoint: Endpoint = ENDPOINT) -> CallFailure:
    """Return the failure of a request that cannot be said."""
    result = gemini.build(endpoint, question)
    assert isinstance(result, CallFailure)
    assert (result.code, result.sent) == ("invalid_request", False)
    return result


def generated(
    *parts: dict[str, Any], finish: Any = "STOP", candidate: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a generated content with one candidate."""
    content = {"role": "model", "parts": list(parts or ({"text": VERDICT},))}
    return {
        "candidates": [
            {"index": 0, "finishReason": finish, "content": content, **(candidate or {})}
        ],
        "usageMetadata": {
            "promptTokenCount": 40,
            "cachedContentTokenCount": 30,
            "candidatesTokenCount": 12,
            "thoughtsTokenCount": 5,
            "totalTokenCount": 57,
        },
        "modelVersion": "gemini-x-001",
        "responseId": "resp-1",
    }


def google_error(status: int, name: str, message: str = "m", **details: Any) -> dict[str, Any]:
    """Return an error body."""
    return {"error": {"code": status, "status": name, "message": message, **details}}


def read(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> ProviderAnswer | CallFailure:
    """Return what the dialect makes of a response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return gemini.read(status, headers or {}, data, NOW, redactor([KEY]))


def failed(body: Any, status: int = 200) -> CallFailure:
    """Return the failure a response means."""
    result = read(body, status)
    assert isinstance(result, CallFailure)
    assert len(result.message) <= PREVIEW_CHARACTERS
    assert (result.http_status, result.sent) == (status, True)
    return result


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    """A29: without parameters the request has the texts and the answer's form alone."""
    wire, body = sent(ENDPOINT, request())
    assert body == {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [{"role": "user", "parts": [{"text": "u"}]}],
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseJsonSchema": gemini_schema(SCHEMA),
        },
    }
    assert wire.path == "/v1beta/models/gemini-x:generateContent"


def test_the_key_is_in_its_header_only() -> None:
    """A25: addresses get logged, so the key is in none."""
    wire, _ = sent(ENDPOINT, request())
    assert wire.headers["x-goog-api-key"] == KEY
    assert KEY not in wire.path
    assert KEY.encode() not in wire.body


def test_another_version_of_the_interface() -> None:
    """The version is the endpoint's to say."""
    stable = Endpoint(name="g", base_url="https://h", dialect="gemini", api_version="v1")
    assert sent(stable, request())[0].path.startswith("/v1/models/")


@pytest.mark.parametrize(
    ("model", "step"),
    [
        ("../../v1/files", "..%2F..%2Fv1%2Ffiles"),
        ("m?key=1#x", "m%3Fkey%3D1%23x"),
        ("m:countTokens", "m%3AcountTokens"),
        ("Modell ü", "Modell%20%C3%BC"),
    ],
)
def test_a_models_name_stays_in_its_place(model: str, step: str) -> None:
    """Whatever a caller names as a model, path, query and method are ours."""
    assert sent(ENDPOINT, request(model))[0].path == f"/v1beta/models/{step}:generateContent"


def test_parameters_take_the_dialects_names() -> None:
    """What the caller gave goes into generationConfig, as given."""
    _, body = sent(ENDPOINT, request(max_output_tokens=800, temperature=0, top_p=0.5, seed=7))
    config = body["generationConfig"]
    assert {name: config[name] for name in ("maxOutputTokens", "temperature", "topP", "seed")} == {
        "maxOutputTokens": 800,
        "temperature": 0,
        "topP": 0.5,
        "seed": 7,
    }
    assert "thinkingConfig" not in config


@pytest.mark.parametrize(
    ("effort", "thinking"),
    [
        ("minimal", {"thinkingLevel": "MINIMAL"}),
        ("low", {"thinkingLevel": "LOW"}),
        ("medium", {"thinkingLevel": "MEDIUM"}),
        ("high", {"thinkingLevel": "HIGH"}),
        ("xhigh", {"thinkingLevel": "XHIGH"}),
        ("none", {"thinkingBudget": 0}),
    ],
)
def test_effort_is_a_thinking_level(effort: str, thinking: dict[str, Any]) -> None:
    """Every effort that Gemini has is said in its words."""
    _, body = sent(ENDPOINT, request(reasoning_effort=effort))
    assert body["generationConfig"]["thinkingConfig"] == thinking


def test_what_cannot_be_said_is_refused_before_it_is_sent() -> None:
    """An effort, or a parameter, without a word is no silent change of the question."""
    assert "max" in refused(request(reasoning_effort="max")).message
    assert "logit_bias" in refused(request(logit_bias={})).message
    fixed = Endpoint(name="g", base_url="https://h", refused_parameters=("temperature",))
    assert "temperature" in refused(request(temperature=1), fixed).message


@pytest.mark.parametrize(
    ("mode", "config"), [("json_object", {"responseMimeType": "application/json"}), ("prompt", {})]
)
def test_weaker_schema_modes(mode: Any, config: dict[str, str]) -> None:
    """A server without schemas gets JSON mode, or nothing beside the prompt."""
    endpoint = Endpoint(name="g", base_url="https://h", schema_mode=mode)
    assert sent(endpoint, request())[1].get("generationConfig", {}) == config


def test_a_schema_that_cannot_be_expressed_leaves_json_mode() -> None:
    """The prompt names the schema all the same, and our validation holds the answer to it."""
    beyond = {"not": {"type": "object"}}
    assert gemini_schema(beyond) is None
    question = CallRequest(model="m", system="s", user="u", schema=beyond)
    config = sent(ENDPOINT, question)[1]["generationConfig"]
    assert config == {"responseMimeType": "application/json"}


def test_an_answer_with_all_it_says_about_itself() -> None:
    """Text, model, ID and usage are read; thoughts are billed as output."""
    assert read(generated()) == ProviderAnswer(
        text=VERDICT,
        model_returned="gemini-x-001",
        request_id="resp-1",
        usage=Usage(input_tokens=40, output_tokens=17, cached_tokens=30, reasoning_tokens=5),
    )


def test_thoughts_are_no_answer() -> None:
    """Parts of thinking are left out, the others joined, signatures and empty parts ignored."""
    body = generated(
        {"text": '{"score": 1}', "thought": True},
        {"text": VERDICT[:9], "thoughtSignature": "c2ln"},
        {"text": ""},
        {"text": VERDICT[9:]},
    )
    answer = read(body)
    assert isinstance(answer, ProviderAnswer)
    assert answer.text == VERDICT


@pytest.mark.parametrize("reason", BLOCKED_PROMPTS)
def test_a10_a_blocked_prompt(reason: str) -> None:
    """A 200 without candidates names the reason and is permanent; the prompt's tokens count."""
    failure = failed(
        {
            "promptFeedback": {"blockReason": reason, "blockReasonMessage": "why not"},
            "usageMetadata": {"promptTokenCount": 40},
            "modelVersion": "gemini-x-001",
        }
    )
    assert failure.code == "content_blocked"
    assert reason in failure.message
    assert "why not" in failure.message
    assert failure.usage == Usage(input_tokens=40, output_tokens=0)
    assert outcome_of(failure) is Outcome.PERMANENT


@pytest.mark.parametrize("reason", BLOCKED_ANSWERS)
@pytest.mark.parametrize("content", [None, {}, {"parts": []}, {"parts": [{"text": VERDICT}]}])
def test_a10_a_blocked_answer(reason: str, content: Any) -> None:
    """A blocked candidate is none, with parts or without, and keeps the provider's own reason."""
    failure = failed({"candidates": [{"finishReason": reason, "content": content}]})
    assert failure.code == "content_blocked"
    assert reason in failure.message
    assert outcome_of(failure) is Outcome.PERMANENT


@pytest.mark.parametrize(
    "body", [{"candidates": []}, {"usageMetadata": {"promptTokenCount": 4}}, {"promptFeedback": {}}]
)
def test_a10_no_candidates_at_all(body: dict[str, Any]) -> None:
    """Without candidates and without a reason the answer is empty."""
    assert failed(body).code == "empty_response"


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "CONTINUATION"])
@pytest.mark.parametrize("text", [VERDICT, VERDICT[:9], ""])
def test_a_truncated_answer_is_never_read(reason: str, text: str) -> None:
    """Thoughts may have eaten the cap; even text that looks whole is not taken."""
    failure = failed(generated({"text": text}, finish=reason))
    assert failure.code == "truncated"
    assert failure.usage is not None


@pytest.mark.parametrize("reason", [*UNACCEPTED, None, 7, ["STOP"]])
def test_only_stop_is_accepted(reason: Any) -> None:
    """Any other reason, also one of tomorrow, gets one more try and no verdict."""
    failure = failed(generated(finish=reason, candidate={"finishMessage": "said so"}))
    assert failure.code == "invalid_output"
    assert "said so" in failure.message
    first = decide(failure, attempt=1, max_attempts=5, invalid_outputs=0, now=NOW, jitter=0)
    second = decide(failure, attempt=2, max_attempts=5, invalid_outputs=1, now=NOW, jitter=0)
    assert (first.retry, second.retry) == (True, False)


@pytest.mark.parametrize(
    "content", [None, {}, {"parts": []}, {"parts": [{"text": " \n"}]}, {"parts": "x"}]
)
def test_a_stop_without_text_is_empty(content: Any) -> None:
    """An answer without text, or with thoughts alone, is no answer."""
    assert failed({"candidates": [{"finishReason": "STOP", "content": content}]}).code == (
        "empty_response"
    )
    assert failed(generated({"text": VERDICT, "thought": True})).code == "empty_response"


def test_two_candidates_are_no_verdict() -> None:
    """One was asked for: none of two is more the answer than the other."""
    twice = generated()
    twice["candidates"] *= 2
    assert failed(twice).code == "invalid_output"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b"7",
        b'{"candidates": 1}',
        b'{"candidates": [1]}',
        b'{"candidates": [{"content": 1}]}',
        b'{"promptFeedback": []}',
        b'{"choices": []}',
        b'[{"candidates": []}]',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_something_else(body: bytes) -> None:
    """A 200 that is no generated content is an invalid response, not an exception."""
    assert failed(body).code == "invalid_response"


@pytest.mark.parametrize("wrap", [False, True])
def test_an_error_inside_a_200(wrap: bool) -> None:
    """An error counts as one whatever the status says, also in a list of one."""
    body = google_error(503, "UNAVAILABLE")
    assert failed([body] if wrap else body).code == "overloaded"


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (400, "INVALID_ARGUMENT", "invalid_request"),
        (401, "UNAUTHENTICATED", "invalid_credential"),
        (402, "RESOURCE_EXHAUSTED", "quota_exhausted"),
        (403, "PERMISSION_DENIED", "permission_denied"),
        (404, "NOT_FOUND", "model_not_found"),
        (429, "RESOURCE_EXHAUSTED", "rate_limited"),
        (499, "CANCELLED", "timeout"),
        (500, "INTERNAL", "provider_error"),
        (503, "UNAVAILABLE", "overloaded"),
        (504, "DEADLINE_EXCEEDED", "timeout"),
    ],
)
def test_an_error_status(status: int, name: str, code: str, wrap: bool) -> None:
    """Each row of Google's table, as an object and in a list of one."""
    body = google_error(status, name, f"said {KEY}")
    failure = failed([body] if wrap else body, status)
    assert failure.code == code
    assert KEY not in failure.message


@pytest.mark.parametrize("wrap", [False, True])
def test_a_wrong_key_is_a_400(wrap: bool) -> None:
    """Google says 400 and names the reason in the details."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = google_error(400, "INVALID_ARGUMENT", "API key not valid.", details=[info])
    assert failed([body] if wrap else body, 400).code == "invalid_credential"


@pytest.mark.parametrize("wrap", [False, True])
def test_a07_a_days_quota_is_no_rate_limit(wrap: bool) -> None:
    """A daily quota ends the seat after one call, although RetryInfo says seven seconds."""
    quota = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
    }
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    body = google_error(429, "RESOURCE_EXHAUSTED", "daily limit 20", details=[quota, wait])
    failure = failed([body] if wrap else body, 429)
    assert failure.code == "quota_exhausted"
    assert not decide(
        failure, attempt=1, max_attempts=5, invalid_outputs=0, now=NOW, jitter=0
    ).retry


def test_a_minutes_quota_waits_as_long_as_told() -> None:
    """RetryInfo is the hint of a limit that ends by itself."""
    quota = {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}],
    }
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    failure = failed(google_error(429, "RESOURCE_EXHAUSTED", details=[quota, wait]), 429)
    assert (failure.code, failure.hint_seconds) == ("rate_limited", 34.5)


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        (None, None),
        ({}, None),
        ({"totalTokenCount": 9}, None),
        ({"promptTokenCount": True, "candidatesTokenCount": -1}, None),
        ({"promptTokenCount": 9}, Usage(input_tokens=9, output_tokens=0)),
        (
            {"promptTokenCount": 9, "toolUsePromptTokenCount": 4, "candidatesTokenCount": 2},
            Usage(input_tokens=13, output_tokens=2),
        ),
        (
            {"promptTokenCount": 9, "thoughtsTokenCount": 800},
            Usage(input_tokens=9, output_tokens=800, reasoning_tokens=800),
        ),
    ],
)
def test_usage(counts: Any, usage: Usage | None) -> None:
    """Billed output is candidates and thoughts; what is not counted stays unknown."""
    assert gemini.read_usage(counts) == usage


def test_a_request_id_of_the_server_before_it() -> None:
    """Without a response's own ID, a header that a gateway sent is kept."""
    result = read(google_error(500, "INTERNAL"), 500, {"x-request-id": "gw-1"})
    assert result.request_id == "gw-1"


def test_a25_no_key_in_an_answer() -> None:
    """A key that comes back in a text is masked before anything is kept."""
    answer = read(generated({"text": f'{{"rationale": "{KEY}"}}'}))
    assert isinstance(answer, ProviderAnswer)
    assert KEY not in answer.text
