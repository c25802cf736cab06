"""What aimock answers, by the model that is asked for; every dialect gets the same."""

from typing import Any

from tests.independent.asking import VERDICT


def _answer(asked: str, content: str, **more: Any) -> dict[str, Any]:
    return {"match": {"model": asked}, "response": {"content": content, **more}}


def _error(model: str, status: int, kind: str, **more: Any) -> dict[str, Any]:
    error = {"message": f"scripted {kind}", "type": kind}
    return {"match": {"model": model}, "response": {"error": error, "status": status, **more}}


def _chaos(model: str, kind: str) -> dict[str, Any]:
    return {"match": {"model": model}, "response": {"content": VERDICT}, "chaos": {kind: 1}}


# Each dialect has its own names for the same counts; aimock takes those of the one that is asked.
_USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "input_tokens": 120,
    "output_tokens": 30,
    "promptTokenCount": 120,
    "candidatesTokenCount": 30,
}

FIXTURES = [
    _answer("answers", VERDICT, usage=_USAGE),
    _answer("renamed", VERDICT, model="renamed-2026-11-01"),
    _answer("thinks", VERDICT, reasoning=f"First {VERDICT} came to mind."),
    _answer("cut", VERDICT[:30], finishReason="length"),
    _answer("filtered", "I", finishReason="content_filter"),
    _answer("refuses", "No.", finishReason="refusal"),
    _answer("novel", VERDICT, finishReason="reason_of_tomorrow"),
    _answer("empty", " "),
    {"match": {"model": "tools"}, "response": {"toolCalls": [{"name": "f", "arguments": "{}"}]}},
    _error("limited", 429, "rate_limit_error", retryAfter=7),
    _error("busy", 529, "overloaded_error"),
    _error("broken", 500, "server_error"),
    _error("wrong", 400, "invalid_request_error"),
    _error("locked", 401, "authentication_error"),
    _chaos("garbled", "malformedRate"),
    _chaos("dropped", "disconnectRate"),
]
