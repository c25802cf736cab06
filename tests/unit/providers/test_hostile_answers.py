"""Whatever a server answers becomes an answer or a failure that every store can hold."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.budgets import nano_usd
from functions.core.jobs import Usage
from functions.core.leases import MAX_INTERRUPTIONS
from functions.core.verdicts import PREVIEW_CHARACTERS, CallFailure, ProviderAnswer
from functions.providers.base import Endpoint, Prices
from functions.providers.options import MAX_USD
from functions.providers.prices import GenaiPrices
from functions.providers.reading import MAX_TOKENS_REPORTED
from functions.providers.redaction import redactor
from functions.providers.registry import DIALECTS
from functions.web.request_models import MAX_SEATS

KEY = "sk-test-ABCDEFGH12345678"
REDACT = redactor([KEY])
NOW = datetime(2026, 11, 29, tzinfo=UTC)
NAMES = ("chat", "responses", "anthropic", "gemini")
LARGEST_EXACT = 2**53 - 1  # of a number in JSON
MOST_ATTEMPTS = 10 + MAX_INTERRUPTIONS  # of a seat: `max_attempts`, and those cut by shutdowns
LARGEST_STORED = 2**63 - 1  # of an integer in Firestore

ANSWERS: Mapping[str, Any] = {
    "chat": {
        "model": "m",
        "choices": [
            {"finish_reason": "stop", "message": {"content": "{}", "refusal": None}},
        ],
        "usage": {
            "prompt_tokens": 40,
            "completion_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    },
    "responses": {
        "status": "completed",
        "model": "m",
        "output": [
            {"type": "reasoning"},
            {
                "type": "message",
                "phase": "final_answer",
                "content": [{"type": "output_text", "text": "{}"}],
            },
        ],
        "incomplete_details": {"reason": "content_filter"},
        "usage": {"input_tokens": 4, "output_tokens": 5, "input_tokens_details": {}},
    },
    "anthropic": {
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "{}"}],
        "stop_reason": "end_turn",
        "stop_details": {"category": "x", "explanation": "y"},
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 3,
        },
    },
    "gemini": {
        "candidates": [
            {"content": {"parts": [{"text": "{}", "thought": False}]}, "finishReason": "STOP"}
        ],
        "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "q"},
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2},
        "modelVersion": "m",
        "responseId": "r",
    },
}
ERRORS: tuple[Any, ...] = (
    {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "code": "insufficient_quota",
            "param": "x",
            "status": "RESOURCE_EXHAUSTED",
            "metadata": {"limit_source": "x", "resets_at": "2026-12-01T00:00:00Z"},
            "innererror": {"code": "x"},
            "details": [
                {"@type": "x.QuotaFailure", "violations": [{"quotaId": "PerDay"}]},
                {"@type": "x.RetryInfo", "retryDelay": "34s"},
            ],
        }
    },
    {"type": "error", "error": {"type": "rate_limit_error", "details": {"error_code": "x"}}},
    {"detail": [{"loc": ["body", "x"], "msg": "m"}]},
    {"object": "error", "message": "m", "code": 3},
)


def nested(levels: int) -> Any:
    """Return lists within lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    2**53,
    2**63,
    1e308,
    10**400,
    "",
    " \n",
    "12",
    KEY,
    "\ud800",
    f"a\nb\x00c/é/../{KEY}\u202e",
    "z" * 100_000,
    [],
    {},
    [None],
    [[]],
    {"a": 1},
    {"type": KEY, "@type": 1},
    nested(60),
    nested(200),
)
HEADERS: tuple[Mapping[str, str], ...] = (
    {},
    {
        "retry-after": "9" * 400,
        "retry-after-ms": "nan",
        "x-should-retry": " TRUE",
        "x-request-id": f"\x00\n{KEY}",
        "request-id": KEY,
    },
    {"retry-after": "Fri, 31 Feb 9999 23:59:60 GMT", "x-request-id": "r" * 5000},
)
BODIES = (
    b"",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    b"null",
    b"[]",
    b'"x"',
    b"5",
    b'[{"error": {"message": "x"}}]',
    b'{"error": "\x80\x81"}',
    b"1" * 5000,
    b"{" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of a value, the whole first."""
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return the value with something else at a path."""
    if not path:
        return new
    changed = copy.deepcopy(value)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = new
    return changed


def understood(name: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Read a response, and check what is kept of it."""
    result = DIALECTS[name].read(status, headers, body, NOW, REDACT)
    assert isinstance(result, ProviderAnswer | CallFailure)
    kept = json.dumps(asdict(result), default=str, ensure_ascii=False, allow_nan=False)
    assert KEY not in kept
    if isinstance(result, CallFailure):
        assert len(result.message) <= PREVIEW_CHARACTERS
        kept.encode()
    for label in (result.model_returned, result.request_id):
        assert label is None or (0 < len(label) <= 200 and label.isprintable())
    if result.usage is not None:
        assert all(0 <= tokens <= LARGEST_EXACT for tokens in asdict(result.usage).values())


@pytest.mark.parametrize("name", NAMES)
def test_anything_in_any_field_is_an_answer_or_a_failure(name: str) -> None:
    """No field, of an answer or an error, can break the reading or carry the key out."""
    for base in (ANSWERS[name], *ERRORS):
        for path in places(base):
            for hostile in HOSTILE:
                body = json.dumps(put(base, path, hostile)).encode()
                for status in (200, 400, 429):
                    understood(name, status, {}, body)


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("status", [200, 400, 429, 502])
@pytest.mark.parametrize("name", NAMES)
def test_any_body_is_an_answer_or_a_failure(
    name: str, status: int, headers: Mapping[str, str]
) -> None:
    """Nor can other encodings, streams, lists, bare values, and headers of every odd form."""
    for body in BODIES:
        understood(name, status, headers, body)


@pytest.mark.parametrize("before", ['{"error": ', '{"error": {"x": ', '{"model": '])
@pytest.mark.parametrize("name", NAMES)
def test_no_depth_ends_the_reading(name: str, before: str) -> None:
    """Also not one that the parser just bears, and what comes after it does not."""
    after = "}" * before.count("{")
    for levels in range(900, 1000):
        understood(name, 400, {}, f"{before}{'[' * levels}1{']' * levels}{after}".encode())


@pytest.mark.parametrize("name", NAMES)
def test_all_counts_at_their_largest_stay_exact(name: str) -> None:
    """Sums of what a vendor counts apart stay numbers that every store holds exactly."""
    for tokens in (MAX_TOKENS_REPORTED, 2**53 - 1):
        body = copy.deepcopy(ANSWERS[name])
        usage = body["usageMetadata" if name == "gemini" else "usage"]
        for place, value in list(usage.items()):
            usage[place] = tokens if isinstance(value, int) else value
        understood(name, 200, {}, json.dumps(body).encode())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_given_twice_is_no_answer(name: str) -> None:
    """Of two texts under one name each reader takes another: neither is the verdict."""
    text = json.dumps(ANSWERS[name])
    for first in ('"text": "{}"', '"content": "{}"'):
        text = text.replace(first, f"{first}, {first}")
    result = DIALECTS[name].read(200, {}, text.encode(), NOW, REDACT)
    assert isinstance(result, CallFailure)
    assert result.code == "invalid_response"


@pytest.mark.parametrize(("name", "place"), [("chat", "choices"), ("gemini", "candidates")])
def test_two_answers_are_none(name: str, place: str) -> None:
    """Two choices fail closed, whatever stands in them, and what they cost is kept."""
    body = copy.deepcopy(ANSWERS[name])
    body[place] *= 2
    result = DIALECTS[name].read(200, {}, json.dumps(body).encode(), NOW, REDACT)
    assert isinstance(result, CallFailure)
    assert result.code == "invalid_output"
    assert result.usage is not None


def test_no_run_spends_more_than_a_document_holds() -> None:
    """All attempts of all seats at the largest counts and the highest price are still a number."""
    prices = Prices(input=MAX_USD, output=MAX_USD)
    book = GenaiPrices({"p": Endpoint(name="p", base_url="http://h", prices=prices)})
    usage = Usage(input_tokens=3 * MAX_TOKENS_REPORTED, output_tokens=2 * MAX_TOKENS_REPORTED)
    cost = book.cost_usd("p", "m", usage, NOW)
    assert cost is not None
    assert nano_usd(cost) * MAX_SEATS * MOST_ATTEMPTS < LARGEST_STORED
