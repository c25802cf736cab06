"""The stub provider itself: what the other tests conclude from it rests on these promises."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from tests.stub import Rule, ScriptedResponse, StubProvider, StubRefusedError
from tests.stub.answers import UnsupportedSchemaError, instance_for
from tests.stub.book import Arrival, Book
from tests.stub.question import read_question
from tests.stub.server import Settings, drawn_latency_seconds

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string"},
        "criteria": {
            "type": "object",
            "properties": {
                "value": {"type": "number", "minimum": 1, "maximum": 5},
                "portability": {"type": "number", "minimum": 1, "maximum": 5},
            },
            "required": ["value", "portability"],
            "additionalProperties": False,
        },
        "score": {"type": "number", "minimum": 1, "maximum": 5},
    },
    "required": ["rationale", "criteria", "score"],
    "additionalProperties": False,
}
SLOW_DOWN = ScriptedResponse(status=429, headers={"Retry-After": "7"})
OVERLOADED = ScriptedResponse(status=503)
NEVER = ScriptedResponse(fault="never_answer")


def body_of(label: str, *, model: str = "stub-a", **fields: Any) -> dict[str, Any]:
    """A request body whose facts carry ``label``."""
    facts = json.dumps({"name": "Aurora 14", "stub-key": label})
    return {"model": model, "messages": [{"role": "user", "content": facts}], **fields}


class Caller:
    """A client of the stub, with the right key."""

    def __init__(self, stub: StubProvider) -> None:
        headers = {"authorization": f"Bearer {stub.api_key}"}
        limits = httpx.Limits(max_connections=100)
        self.http = httpx.AsyncClient(
            base_url=stub.base_url, headers=headers, limits=limits, timeout=10
        )

    async def ask(self, label: str, **fields: Any) -> httpx.Response:
        """Send one request."""
        return await self.http.post("/chat/completions", json=body_of(label, **fields))

    async def statuses(self, label: str, times: int, **fields: Any) -> list[int]:
        """Send one request after the other and return the statuses."""
        return [(await self.ask(label, **fields)).status_code for _ in range(times)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_stub() -> AsyncIterator[StubProvider]:
    """One process for the module."""
    async with StubProvider() as stub:
        yield stub


@pytest_asyncio.fixture(loop_scope="module")
async def stub(running_stub: StubProvider) -> StubProvider:
    """The stub as if it had just been started."""
    await running_stub.script(latency_seconds=0, jitter=0, seed=0)
    await running_stub.reset()
    return running_stub


@pytest_asyncio.fixture(loop_scope="module")
async def caller(stub: StubProvider) -> AsyncIterator[Caller]:
    """A client whose connections end with the test."""
    caller = Caller(stub)
    async with caller.http:
        yield caller


def content_of(response: httpx.Response) -> str:
    """The assistant's text."""
    return str(response.json()["choices"][0]["message"]["content"])


# Normal answers


async def test_a_normal_answer_is_a_completion_that_fits_the_schema(caller: Caller) -> None:
    """The content satisfies the request's schema, and the fields a client reads are there."""
    wanted = {"type": "json_schema", "json_schema": {"name": "grade", "schema": SCHEMA}}
    response = await caller.ask("item-1", response_format=wanted)
    completion = response.json()
    Draft202012Validator(SCHEMA).validate(json.loads(content_of(response)))
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["model"] == "stub-a-2026-01-01"
    assert completion["usage"]["prompt_tokens"] > 0
    assert response.headers["x-request-id"].startswith("req_")


async def test_equal_questions_get_equal_answers_in_every_process(caller: Caller) -> None:
    """The answer depends on the question alone: not on the occurrence, the time or the process."""
    async with StubProvider() as other_stub:
        other = Caller(other_stub)
        async with other.http:
            answers = [await caller.ask("item-1"), await caller.ask("item-1")]
            answers.append(await other.ask("item-1"))
    assert len({content_of(answer) for answer in answers}) == 1
    assert content_of(await caller.ask("item-2")) != content_of(answers[0])


async def test_models_are_listed(caller: Caller) -> None:
    """The model list has the shape that the SDK reads."""
    listed = (await caller.http.get("/models")).json()
    assert [model["id"] for model in listed["data"]] == ["stub-a", "stub-b"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
        {"type": "number", "minimum": 0.1, "maximum": 0.1001},
        {"type": "number", "minimum": 1, "maximum": 5, "multipleOf": 0.5},
        {"type": "number", "maximum": -3},
        {"enum": ["low", "high"]},
        {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 60, "maxLength": 70}]},
        {"type": ["null", "boolean"]},
        {"type": "array", "items": {"const": 4}, "minItems": 3},
        {"type": "string", "format": "date-time"},
        {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
        {
            "$defs": {"tree": {"properties": {"kids": {"items": {"$ref": "#/$defs/tree"}}}}},
            "$ref": "#/$defs/tree",
        },
    ],
)
async def test_instances_satisfy_their_schema(schema: dict[str, Any]) -> None:
    """Whatever schema is understood, the instance is valid and the same each time."""
    value = instance_for(schema, "key")
    Draft202012Validator(schema).validate(value)
    assert instance_for(schema, "key") == value


async def test_a_schema_beyond_the_stub_is_an_error_and_no_wrong_answer(caller: Caller) -> None:
    """The stub refuses a schema that it cannot satisfy, as the real API does."""
    impossible = {"type": "string", "pattern": "^[0-9]{4}$"}
    with pytest.raises(UnsupportedSchemaError):
        instance_for(impossible, "key")
    wanted = {"type": "json_schema", "json_schema": {"name": "grade", "schema": impossible}}
    assert (await caller.ask("item-1", response_format=wanted)).status_code == 400


# Names and counts


@pytest.mark.parametrize(
    "content",
    [
        "Facts: stub-key: item-7. Score it.",
        '{"stub-key": "item-7", "x": 1}',
        json.dumps({"facts": json.dumps({"stub-key": "item-7"})}),
        [{"type": "text", "text": "stub-key: item-7\nmore"}],
    ],
)
async def test_the_label_is_found_in_text_and_in_json(content: Any) -> None:
    """A marker names the request wherever it stands in the user's message."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    question = read_question(json.dumps(body).encode())
    assert (question.label, question.label_number) == ("item-7", 7)


async def test_only_the_users_message_gives_a_label() -> None:
    """A marker in the system message, the same for all requests, names none of them."""
    messages = [{"role": "system", "content": "stub-key: all"}, {"role": "user", "content": "x"}]
    assert read_question(json.dumps({"model": "m", "messages": messages}).encode()).label is None


async def test_the_key_is_model_messages_and_sampling(stub: StubProvider, caller: Caller) -> None:
    """Requests count together exactly when model, messages and sampling parameters are equal."""
    await caller.ask("item-1", response_format={"type": "json_object"})
    await caller.ask("item-1", store=False)
    await caller.ask("item-1", model="stub-b")
    await caller.ask("item-1", temperature=0.5)
    await caller.ask("item-2")
    stats = await stub.stats()
    assert sorted(counts.requests for counts in stats.keys.values()) == [1, 1, 1, 2]
    assert {label: counts.requests for label, counts in stats.labels.items()} == {
        "item-1": 4,
        "item-2": 1,
    }
    assert {model: counts.answered for model, counts in stats.models.items()} == {
        "stub-a": 4,
        "stub-b": 1,
    }


async def test_a_record_tells_one_requests_story(stub: StubProvider, caller: Caller) -> None:
    """Times, header names, the check of the key and the body are there; no header value is."""
    await caller.ask("item-1")
    await caller.http.post(
        "/chat/completions", json=body_of("item-2"), headers={"authorization": "Bearer other"}
    )
    stats = await stub.stats(bodies=True)
    right, wrong = stats.requests
    assert (right.authorization_right, wrong.authorization_right) == (True, False)
    assert stats.totals.wrong_authorization == 1
    assert "authorization" in right.header_names
    assert right.ended_monotonic is not None
    assert right.arrived_monotonic <= right.ended_monotonic <= wrong.arrived_monotonic
    assert right.arrived_at.tzinfo is not None
    assert stats.bodies[0].body == body_of("item-1")


@pytest.mark.parametrize("payload", [b"{", b"[]", b"{}", b'{"model":"m","messages":[]}', b"\xff"])
async def test_what_is_no_request_is_rejected(
    stub: StubProvider, caller: Caller, payload: bytes
) -> None:
    """A malformed body is a 400 in the provider's words and counts as rejected only."""
    response = await caller.http.post("/chat/completions", content=payload)
    totals = (await stub.stats()).totals
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert (totals.requests, totals.rejected) == (0, 1)


async def test_records_and_bodies_are_bounded_and_counts_are_not() -> None:
    """Old records and bodies go, what went is counted, and the totals stay exact."""
    book = Book(kept_requests=3, kept_body_bytes=500)
    arrival = Arrival(
        at=datetime.now(UTC), monotonic=0.0, header_names=(), authorization_right=True
    )
    for number in range(10):
        question = read_question(json.dumps(body_of(f"item-{number}")).encode())
        record = book.arrive(question, arrival)
        book.end(record, "answered", status=200, rule=None)
    stats = book.stats(with_requests=True, with_bodies=True)
    assert [record.number for record in stats.requests] == [8, 9, 10]
    assert stats.totals.answered == 10
    assert (stats.totals.records_dropped, stats.totals.in_flight_max) == (7, 1)
    assert stats.totals.bodies_dropped == 10 - len(stats.bodies) > 0


async def test_96_requests_are_held_side_by_side(stub: StubProvider, caller: Caller) -> None:
    """All of them are in flight at once, and each one that goes away is noted."""
    await stub.script(Rule(always=NEVER))
    asking = [asyncio.create_task(caller.ask(f"item-{n}")) for n in range(96)]
    await stub.wait_for(lambda stats: stats.totals.in_flight == 96)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    stats = await stub.wait_for(lambda stats: stats.totals.client_gone == 96)
    assert (stats.totals.in_flight_max, stats.totals.in_flight) == (96, 0)
    assert all(counts.client_gone == 1 for counts in stats.labels.values())


async def test_many_requests_at_once_are_each_answered_once(
    stub: StubProvider, caller: Caller
) -> None:
    """Counts are exact under concurrency: one request and one answer for each question."""
    await stub.script(latency_seconds=0.05, jitter=0.5)
    answers = await asyncio.gather(*(caller.ask(f"item-{n}") for n in range(96)))
    stats = await stub.stats()
    assert {answer.status_code for answer in answers} == {200}
    assert (stats.totals.requests, stats.totals.answered, stats.totals.in_flight) == (96, 96, 0)
    assert all(counts.answered == 1 for counts in stats.keys.values())


async def test_latency_repeats_with_its_seed() -> None:
    """Latency lies within the jitter, differs between requests, and is drawn from the seed."""
    settings = Settings(latency_seconds=0.2, jitter=0.5, seed=3)
    drawn = [drawn_latency_seconds(settings, f"key-{n}", 1) for n in range(200)]
    assert drawn == [drawn_latency_seconds(settings, f"key-{n}", 1) for n in range(200)]
    assert all(0.1 <= seconds <= 0.3 for seconds in drawn)
    assert len(set(drawn)) == 200
    other = settings.model_copy(update={"seed": 4})
    assert drawn_latency_seconds(other, "key-0", 1) != drawn[0]


async def test_a_request_waits_for_its_latency(stub: StubProvider, caller: Caller) -> None:
    """An answer is not given before the latency has passed."""
    await stub.script(latency_seconds=0.1)
    await caller.ask("item-1")
    record = (await stub.stats()).requests[0]
    assert record.ended_monotonic is not None
    assert record.ended_monotonic - record.arrived_monotonic >= 0.1


# Scripts


async def test_listed_responses_come_first_and_for_each_key(
    stub: StubProvider, caller: Caller
) -> None:
    """Each question that matches gets the whole list, then normal answers."""
    await stub.script(Rule(label="item-*", responses=(SLOW_DOWN, OVERLOADED)))
    assert await caller.statuses("item-1", 4) == [429, 503, 200, 200]
    assert await caller.statuses("item-2", 3) == [429, 503, 200]
    assert await caller.statuses("other", 1) == [200]


async def test_a_rule_can_count_over_all_its_requests(stub: StubProvider, caller: Caller) -> None:
    """With per="rule" the list is given once, to whoever comes first."""
    await stub.script(Rule(model="stub-a", per="rule", responses=(SLOW_DOWN,)))
    assert await caller.statuses("item-1", 2) == [429, 200]
    assert await caller.statuses("item-2", 1) == [200]


async def test_always_comes_after_the_list(stub: StubProvider, caller: Caller) -> None:
    """A response under always is repeated for ever; true repeats the last of the list."""
    await stub.script(
        Rule(label="a", responses=(SLOW_DOWN,), always=OVERLOADED),
        Rule(label="b", responses=(OVERLOADED, SLOW_DOWN), always=True),
    )
    assert await caller.statuses("a", 3) == [429, 503, 503]
    assert await caller.statuses("b", 4) == [503, 429, 429, 429]


async def test_every_picks_labels_by_their_number(stub: StubProvider, caller: Caller) -> None:
    """every=5 concerns the labels whose number 5 divides, and no label without a number."""
    await stub.script(Rule(every=5, always=OVERLOADED))
    labels = ["item-0", "item-4", "item-5", "item-6", "item-15", "item", "05"]
    broken = [label for label in labels if await caller.statuses(label, 1) == [503]]
    assert broken == ["item-5", "item-15", "05"]


async def test_the_lowest_order_goes_first_and_used_up_rules_pass(
    stub: StubProvider, caller: Caller
) -> None:
    """Several matching rules give their lists one after the other, in the explicit order."""
    await stub.script(
        Rule(name="late", order=2, responses=(OVERLOADED,)),
        Rule(name="early", order=-1, label="item-1", responses=(SLOW_DOWN,)),
    )
    assert await caller.statuses("item-1", 3) == [429, 503, 200]
    rules = [record.rule for record in (await stub.stats()).requests]
    assert rules == ["early", "late", None]


async def test_a_rule_can_look_for_a_field(stub: StubProvider, caller: Caller) -> None:
    """A parameter that a model does not take can be refused."""
    refusal = ScriptedResponse(
        status=400, error_code="unsupported_value", error_param="temperature"
    )
    await stub.script(Rule(has_field="temperature", always=refusal))
    answer = await caller.ask("item-1", temperature=0)
    assert answer.json()["error"]["param"] == "temperature"
    assert await caller.statuses("item-1", 1) == [200]


async def test_status_headers_and_error_body_follow_the_script(
    stub: StubProvider, caller: Caller
) -> None:
    """A scripted error has the provider's shape, and the code decides its type."""
    await stub.script(
        Rule(label="busy", always=SLOW_DOWN),
        Rule(label="broke", always=ScriptedResponse(status=429, error_code="insufficient_quota")),
    )
    busy, broke = await caller.ask("busy"), await caller.ask("broke")
    assert busy.headers["retry-after"] == "7"
    assert busy.json()["error"]["code"] == "rate_limit_exceeded"
    assert broke.json()["error"]["type"] == broke.json()["error"]["code"] == "insufficient_quota"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (ScriptedResponse(body={"error": {"code": 429}}), b'{"error":{"code":429}}'),
        (ScriptedResponse(text="<html>", headers={"content-type": "text/html"}), b"<html>"),
        (ScriptedResponse(body_hex="fffe7b22"), b"\xff\xfe{\x22"),
        (ScriptedResponse(status=502, text=""), b""),
        (ScriptedResponse(status=529, body=[]), b"[]"),
        (ScriptedResponse(status=307, headers={"location": "/v1/models"}), b""),
    ],
)
async def test_bodies_are_sent_as_scripted(
    stub: StubProvider, caller: Caller, response: ScriptedResponse, expected: bytes
) -> None:
    """JSON, text and raw bytes arrive unchanged, with the scripted status and headers."""
    await stub.script(Rule(always=response))
    answer = await caller.ask("item-1")
    assert (answer.status_code, answer.content) == (response.status, expected)
    assert all(answer.headers[name] == value for name, value in response.headers.items())


async def test_fields_of_a_completion_can_be_changed(stub: StubProvider, caller: Caller) -> None:
    """Truncation and refusal are one field each; the rest stays a normal completion."""
    await stub.script(
        Rule(label="cut", always=ScriptedResponse(content='{"sco', finish_reason="length")),
        Rule(label="no", always=ScriptedResponse(refusal="I cannot help with that.")),
    )
    cut, refused = await caller.ask("cut"), await caller.ask("no")
    assert content_of(cut) == '{"sco'
    assert cut.json()["choices"][0]["finish_reason"] == "length"
    assert refused.json()["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": "I cannot help with that.",
    }


@pytest.mark.parametrize(
    ("script", "field"),
    [
        ('{"rules": [{"labell": "x", "always": {"status": 500}}]}', "rules.0.labell"),
        ('{"rules": [{"label": "x"}]}', "needs responses"),
        ('{"rules": [{"always": {"text": "a", "content": "b"}}]}', "only one of"),
        ('{"rules": [{"always": {"headers": {"Content-Length": "3"}}}]}', "use a fault"),
        ("{", "Invalid JSON"),
    ],
)
async def test_a_wrong_script_is_refused_by_name(
    stub: StubProvider, caller: Caller, script: str, field: str
) -> None:
    """A script with a mistake changes nothing and the error names the place."""
    await stub.script(Rule(always=OVERLOADED))
    with pytest.raises(StubRefusedError, match=field):
        await stub.script_json(script)
    assert await caller.statuses("item-1", 1) == [503]


async def test_reset_forgets_counts_and_can_keep_the_rules(
    stub: StubProvider, caller: Caller
) -> None:
    """After a reset nothing was seen; kept rules begin their lists again."""
    await stub.script(Rule(responses=(OVERLOADED,)))
    assert await caller.statuses("item-1", 2) == [503, 200]
    await stub.reset(keep_rules=True)
    assert (await stub.stats()).totals.requests == 0
    assert await caller.statuses("item-1", 1) == [503]
    await stub.reset()
    assert await caller.statuses("item-1", 1) == [200]


# Broken connections


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (ScriptedResponse(fault="close_before_answer"), httpx.RemoteProtocolError),
        (ScriptedResponse(fault="reset_before_answer"), httpx.ReadError),
        (ScriptedResponse(status=529, fault="close_mid_body"), httpx.RemoteProtocolError),
        (ScriptedResponse(fault="garbage"), httpx.RemoteProtocolError),
        (ScriptedResponse(fault="wrong_content_length"), httpx.RemoteProtocolError),
    ],
)
async def test_a_connection_that_the_stub_breaks_is_noted_as_broken(
    stub: StubProvider, caller: Caller, response: ScriptedResponse, error: type[Exception]
) -> None:
    """The client sees the fault, the record says broken, and the next request is served."""
    await stub.script(Rule(responses=(response,)))
    with pytest.raises(error):
        await caller.ask("item-1")
    assert await caller.statuses("item-1", 1) == [200]
    totals = (await stub.stats()).totals
    assert (totals.broken, totals.answered, totals.client_gone) == (1, 1, 0)


async def test_a_content_length_that_is_too_small_cuts_the_answer(
    stub: StubProvider, caller: Caller
) -> None:
    """A client that trusts the header reads the declared bytes only."""
    await stub.script(
        Rule(always=ScriptedResponse(text="abcdef", fault="wrong_content_length", declared_bytes=4))
    )
    assert (await caller.ask("item-1")).text == "abcd"


@pytest.mark.parametrize(
    "response",
    [
        NEVER,
        ScriptedResponse(fault="stall_mid_body"),
        ScriptedResponse(fault="slow_drip", drip_seconds=0.02, drip_endless=True),
        ScriptedResponse(delay_seconds=60),
        ScriptedResponse(fault="huge_body", huge_bytes=2**40),
    ],
)
async def test_a_client_that_goes_away_is_noted(
    stub: StubProvider, caller: Caller, response: ScriptedResponse
) -> None:
    """A non-streaming client that drops its request is noticed at once, with the time."""
    await stub.script(Rule(always=response))
    asking = asyncio.create_task(caller.ask("item-1"))
    await stub.wait_for(lambda stats: stats.totals.in_flight == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    stats = await stub.wait_for(lambda stats: stats.totals.client_gone == 1, timeout_seconds=2)
    record = (await stub.stats()).requests[0]
    assert (stats.totals.answered, stats.totals.in_flight) == (0, 0)
    assert (record.outcome, record.status) == ("client_gone", None)
    assert record.ended_at is not None


async def test_a_slow_drip_ends_as_a_normal_answer(stub: StubProvider, caller: Caller) -> None:
    """A patient client gets the whole answer, byte by byte."""
    drip = ScriptedResponse(text='{"a": 1}', fault="slow_drip", drip_seconds=0.01)
    await stub.script(Rule(always=drip))
    assert (await caller.ask("item-1")).json() == {"a": 1}
    assert (await stub.stats()).totals.answered == 1


async def test_a_huge_body_is_valid_when_read_whole(stub: StubProvider, caller: Caller) -> None:
    """The answer is right but long: only a limit on its size can refuse it."""
    await stub.script(Rule(always=ScriptedResponse(fault="huge_body", huge_bytes=3 * 2**20)))
    answer = await caller.ask("item-1")
    assert len(answer.content) > 3 * 2**20
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


# The process


async def test_a_wrong_key_is_refused_on_request() -> None:
    """With require_key a wrong key is a 401 that uses up no scripted response."""
    async with StubProvider(Rule(responses=(OVERLOADED,)), require_key=True) as strict:
        caller = Caller(strict)
        async with caller.http:
            right = caller.http.headers["authorization"]
            caller.http.headers["authorization"] = "Bearer wrong"
            assert await caller.statuses("item-1", 2) == [401, 401]
            caller.http.headers["authorization"] = right
            assert await caller.statuses("item-1", 2) == [503, 200]


async def test_the_process_ends_with_the_block_even_while_it_holds_requests() -> None:
    """Nothing is left behind, and the same port can be taken again at once."""
    async with StubProvider(Rule(always=NEVER)) as first:
        caller = Caller(first)
        asking = asyncio.create_task(caller.ask("item-1"))
        await first.wait_for(lambda stats: stats.totals.in_flight == 1)
    with pytest.raises(httpx.TransportError):
        await asking
    with pytest.raises(httpx.ConnectError):
        await caller.ask("item-1")
    async with StubProvider(port=first.port) as second:
        assert second.url == first.url
        assert await caller.statuses("item-1", 1) == [200]
    await caller.http.aclose()


async def test_a_script_file_works_from_the_command_line(tmp_path: Path) -> None:
    """The command takes rules as JSON, says where it listens, and ends on SIGTERM."""
    file = tmp_path / "faults.json"
    file.write_text('{"rules": [{"label": "item-3", "responses": [{"status": 418}]}]}')
    command = (sys.executable, "-m", "tests.stub", "--port", "0", "--script", str(file))
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["url"]
        async with httpx.AsyncClient(base_url=url) as http:
            answer = await http.post("/v1/chat/completions", json=body_of("item-3"))
            stats = (await http.get("/admin/stats")).json()
    finally:
        process.terminate()
        await process.wait()
    assert answer.status_code == 418
    assert stats["requests"][0]["rule"] == "rule-1"
    assert process.returncode == 0
