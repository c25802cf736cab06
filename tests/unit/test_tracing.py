"""One trace from the request that brings a job to its calls, and no question or answer in it."""

import asyncio
import json
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from functions.core.jobs import JobState
from functions.core.verdicts import CallRequest, ProviderAnswer
from tests.cases.scenes import replies
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld
from tests.faults.world import World, submission
from tests.signals import Signals, parent_of, span_id, trace_id
from tests.unit.web.door import Door

SECRET = "9c1f-planted"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def body(*models: str, question: str = SECRET) -> dict[str, Any]:
    return {
        "facts": {"question": question},
        "rubric": {"instructions": f"Score it, {SECRET}."},
        "seats": [
            {"provider": "fake", "model": model, "parameters": {"temperature": 0.5}}
            for model in models or ("m0",)
        ],
    }


async def submitted(world: World, sent: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = await Door(world).call("POST", "/v1/jobs", json=sent, headers=headers)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def everything_told(signals: Signals) -> str:
    return "\n".join(span.to_json() for span in signals.spans)


async def test_a_job_is_one_trace_from_its_request_to_its_calls() -> None:
    """Server, producer, a consumer a seat with its call, and the notification's delivery."""
    signals = Signals()
    world = NotifyingWorld(tracing=signals.tracing)
    job = await submitted(world, body("m0", "m1"), traceparent=TRACEPARENT)
    await world.settle()
    assert {trace_id(span) for span in signals.spans} == {TRACE}
    [server] = signals.named("POST /v1/jobs")
    assert (server.kind, parent_of(server)) == (SpanKind.SERVER, PARENT)
    [sent] = signals.named("send empanel-evaluate")
    assert (sent.kind, parent_of(sent)) == (SpanKind.PRODUCER, span_id(server))
    processed = signals.named("process empanel-evaluate")
    assert len(processed) == 2
    assert {parent_of(span) for span in processed} == {span_id(server)}
    assert {span.kind for span in processed} == {SpanKind.CONSUMER}
    calls = [*signals.named("chat m0"), *signals.named("chat m1")]
    assert {span.kind for span in calls} == {SpanKind.CLIENT}
    assert {parent_of(span) for span in calls} == {span_id(span) for span in processed}
    assert len(signals.named("process empanel-notify")) == 1
    assert (server.attributes or {})["http.response.status_code"] == 202
    assert {(span.attributes or {})["empanel.job"] for span in calls} == {job["id"]}


async def test_a_call_is_told_in_the_words_of_the_conventions() -> None:
    """Operation, vendor, models, server, tokens and how it ended."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    await submitted(world, body())
    await world.finish()
    [call] = signals.named("chat m0")
    attributes = dict(call.attributes or {})
    assert (
        attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "acme",
            "gen_ai.request.model": "m0",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.output.type": "json",
            "gen_ai.response.model": "m0-1",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "server.address": "models.example.com",
            "server.port": 8443,
            "empanel.attempt": 1,
            "empanel.seat": "fake/m0",
        }.items()
    )
    assert "error.type" not in attributes
    assert call.status.status_code is StatusCode.UNSET


async def test_nothing_of_question_or_answer_is_in_a_span() -> None:
    """Neither from facts, rubric and answer nor from the text of an error."""
    signals = Signals()
    world = NotifyingWorld(tracing=signals.tracing)
    quoting = failure("overloaded")

    def script(request: CallRequest, number: int) -> Any:
        assert SECRET in request.user + request.system
        if number == 1:
            return type(quoting)(code="overloaded", message=f"busy: {SECRET}", http_status=529)
        text = json.dumps({"rationale": SECRET, "score": 5})
        return ProviderAnswer(text=text, model_returned="m0-1", request_id="r")

    world.provider.script = script
    await submitted(world, body())
    await world.settle()
    [job] = world.jobs().values()
    assert job.state is JobState.SUCCEEDED
    assert len(signals.named("chat m0")) == 2
    assert SECRET not in everything_told(signals)


async def test_a_failed_call_has_a_code_and_no_text() -> None:
    """`error.type` is the attempt's code; the retry that follows is in the same trace."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    replies(world, failure("truncated", http_status=200))
    await submitted(world, body())
    await world.finish()
    [call] = signals.named("chat m0")
    assert call.status.status_code is StatusCode.ERROR
    assert call.status.description is None
    attributes = dict(call.attributes or {})
    assert attributes["error.type"] == "truncated"
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)


async def test_a_call_that_runs_into_its_deadline_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without an answer in time ends its span and its duration with a code of its own."""
    signals = Signals()
    world = World(tracing=signals.tracing, metrics=signals.metrics, provider_deadline_seconds=0.02)

    async def never(request: CallRequest) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(world.provider, "call", never)
    await world.submit(submission(max_attempts=1))
    await world.deliver_all()
    [call] = signals.named("chat m0")
    assert (call.attributes or {})["error.type"] == "timeout"
    assert (call.attributes or {})["gen_ai.response.finish_reasons"] == ("error",)
    [labels] = signals.points("gen_ai.client.operation.duration")
    assert dict(labels)["error.type"] == "timeout"


async def test_a_reused_answer_is_linked_to_the_attempt_that_bought_it() -> None:
    """Each job has its own trace; the second one's delivery leads to the first one's."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    await submitted(world, body(), **{"Idempotency-Key": "first"})
    await world.finish()
    await submitted(world, body(), **{"Idempotency-Key": "second"})
    await world.finish()
    bought, reused = signals.named("process empanel-evaluate")
    assert trace_id(bought) != trace_id(reused)
    assert len(signals.named("chat m0")) == 1
    assert not bought.links
    assert [
        (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") for link in reused.links
    ] == [(trace_id(bought), span_id(bought))]


async def test_a_delivery_is_linked_to_the_request_that_brought_it() -> None:
    """The platform gives each push a trace of its own; the job's stays the parent."""
    signals = Signals()
    with signals.tracing.processing(
        "t", TRACEPARENT, {"traceparent": f"00-{'a' * 32}-{PARENT}-01"}, {}
    ):
        pass
    [span] = signals.spans
    assert trace_id(span) == TRACE
    assert [f"{link.context.trace_id:032x}" for link in span.links] == ["a" * 32]


async def test_an_unsampled_trace_stays_so_and_is_carried_on() -> None:
    """Who decided that a trace is not kept decides for all processes."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    await submitted(world, body(), traceparent=f"00-{TRACE}-{PARENT}-00")
    await world.finish()
    assert signals.spans == []
    [job] = world.jobs().values()
    assert job.traceparent is not None
    assert (job.traceparent[3:35], job.traceparent[-2:]) == (TRACE, "00")


async def test_without_an_exporter_trace_contexts_pass_as_they_are() -> None:
    """No span, so no parent of ours: the caller's own context is what messages carry."""
    world = World()
    await submitted(world, body(), traceparent=TRACEPARENT)
    await world.finish()
    [job] = world.jobs().values()
    assert job.traceparent == TRACEPARENT
    assert [a.traceparent for state in world.evaluations().values() for a in state.attempts] == [
        None
    ]


async def test_a_fault_fails_the_span_of_its_request() -> None:
    """A 5xx of ours is an error there; a 4xx is the caller's."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    door = Door(world)
    assert (await door.call("GET", "/v1/jobs/unknown")).status_code == 404
    [span] = signals.named("GET /v1/jobs/{job}")
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["http.route"] == "/v1/jobs/{job}"
    await door.call("GET", "/health")
    assert len(signals.spans) == 1


async def test_what_repair_sends_again_is_in_the_job_s_trace() -> None:
    """A lost message is sent by a process that serves no request of the job's."""
    signals = Signals()
    world = World(tracing=signals.tracing)
    await submitted(world, body(), traceparent=TRACEPARENT)
    world.drop_messages()
    await world.finish()
    sent = signals.named("send empanel-evaluate")
    assert [trace_id(span) for span in sent] == [TRACE, TRACE]
    [call] = signals.named("chat m0")
    assert trace_id(call) == TRACE


async def test_an_exception_leaves_its_class_and_no_text() -> None:
    """What a driver says of a failed write may quote what was written."""
    signals = Signals()
    with (
        pytest.raises(RuntimeError),
        signals.tracing.processing("t", TRACEPARENT, {}, {}),
    ):
        raise RuntimeError(SECRET)
    [span] = signals.spans
    assert (span.attributes or {})["error.type"] == "RuntimeError"
    assert not span.events
    assert SECRET not in span.to_json()
