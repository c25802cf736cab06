"""Spans and metrics reach a collector; one that does not take them holds and fails nothing."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import uvicorn
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from starlette.types import Message, Receive, Scope, Send
from uvicorn.lifespan.off import LifespanOff

from functions import bootstrap, export_settings
from functions.exporting import (
    MOST_SPANS,
    REQUEST_SECONDS,
    REST_SECONDS,
    Exporting,
    exporting_to,
)
from functions.metrics import Metrics
from functions.serving import SETTLE_SECONDS, Server
from functions.web.flushing import Flushing
from infra.local.processes import child_environment
from tests.faults.world import World, _application
from tests.otlp import collecting
from tests.signals import Signals

SLOW_SECONDS = 5.0  # far more than a flush may take, and than a busy machine adds to it


class Collected(SpanExporter):
    """Keeps the names of the spans it was given; fails, or stands still, when told to."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.calls = 0
        self.fails = False
        self.still = threading.Event()
        self.still.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        self.still.wait()
        if self.fails:
            return SpanExportResult.FAILURE
        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> Exporting:
    return Exporting(exporter, None, Resource.create({}), clock)


def span(exporting: Exporting, name: str) -> None:
    assert exporting.tracer is not None
    exporting.tracer.start_span(name).end()


async def test_what_a_request_left_is_sent_before_it_ends() -> None:
    """The next CPU may be minutes away."""
    exporter = Collected()
    exporting = made(exporter)
    span(exporting, "a")
    await exporting.flush_after_request()
    assert exporter.names == ["a"]


async def test_a_request_that_left_nothing_waits_for_nothing() -> None:
    """No span and no metric is due: the collector is not asked."""
    exporter = Collected()
    await made(exporter).flush_after_request()
    assert exporter.calls == 0


async def test_a_collector_that_hangs_holds_one_request_a_minute_for_half_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And is told of in one warning; when it is back, spans go out again."""
    exporter, clock = Collected(), Time()
    exporting = made(exporter, clock)
    exporter.still.clear()
    began = time.monotonic()
    for number in range(50):
        span(exporting, f"s{number}")
        await exporting.flush_after_request()
    assert time.monotonic() - began > REQUEST_SECONDS - 0.01
    assert time.monotonic() - began < REQUEST_SECONDS + SLOW_SECONDS
    assert [r.message for r in caplog.records] == ["telemetry not exported"]
    exporter.still.set()
    clock.now += REST_SECONDS
    span(exporting, "after")
    await exporting.flush_after_request()
    assert "after" in exporter.names


async def test_a_collector_that_refuses_costs_one_warning_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning counts the spans that were dropped since the last one."""
    exporter, clock = Collected(), Time()
    exporter.fails = True
    exporting = made(exporter, clock)
    for _ in range(10):
        span(exporting, "s")
        assert not await exporting.finish(SLOW_SECONDS)
    clock.now += REST_SECONDS
    span(exporting, "s")
    assert not await exporting.finish(SLOW_SECONDS)
    told = [getattr(r, "fields", {}) for r in caplog.records]
    assert [fields["spans_dropped"] for fields in told] == [1, 10]


async def test_an_exporter_that_raises_does_not_end_the_thread() -> None:
    """The next flush finds it working."""
    exporter = Collected()

    class Raising(Collected):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if self.calls == 0:
                self.calls += 1
                raise RuntimeError("no")
            return super().export(spans)

    exporter = Raising()
    exporting = made(exporter, Time())
    span(exporting, "lost")
    assert not await exporting.finish(SLOW_SECONDS)
    span(exporting, "kept")
    assert await exporting.finish(SLOW_SECONDS)
    assert exporter.names == ["kept"]


async def test_a_queue_that_is_full_drops_what_comes(caplog: pytest.LogCaptureFixture) -> None:
    """Memory is bounded whatever the collector does."""
    exporter = Collected()
    exporting = made(exporter, Time())
    exporter.still.clear()
    for _ in range(MOST_SPANS + 2000):
        span(exporting, "s")
    assert len(exporting._waiting) <= MOST_SPANS
    assert not await exporting.finish(0.05)
    [record] = caplog.records
    assert record.__dict__["fields"]["spans_dropped"] > 0
    exporter.still.set()


@pytest.mark.parametrize("silent", [False, True])
async def test_a_dead_or_hanging_collector_ends_within_the_time_given(silent: bool) -> None:
    """Over real sockets: nobody listens, or somebody who never answers."""
    async with collecting(silent=silent) as collector:
        url = collector.url if silent else "http://127.0.0.1:1"
        exporting = exporting_to(
            export_settings.load({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "FUNCTION_TARGET": "api"})
        )
        span(exporting, "s")
        began = time.monotonic()
        assert not await exporting.finish(0.3)
        assert time.monotonic() - began < SLOW_SECONDS
        await exporting.flush_after_request()
        assert time.monotonic() - began < SLOW_SECONDS


async def test_spans_and_metrics_arrive_as_they_are() -> None:
    """Read with the protocol's own messages."""
    async with collecting() as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "FUNCTION_TARGET": "evaluate"}
        exporting = exporting_to(export_settings.load(environ))
        Metrics(exporting.meter).run_ended("succeeded")
        span(exporting, "one")
        assert await exporting.finish(SLOW_SECONDS)
        [told] = collector.spans
        assert (told.service, told.span.name) == ("empanel-evaluate", "one")
        assert told.instance
        [metric] = collector.metrics["empanel-evaluate"]
        assert (metric.name, metric.unit) == ("empanel.runs.ended", "{run}")
        assert [point.as_int for point in metric.sum.data_points] == [1]


async def test_an_unsampled_span_is_not_sent() -> None:
    """Whoever began the trace decided so."""
    exporter = Collected()
    exporting = made(exporter)
    assert exporting.tracer is not None
    signals = Signals()
    parent = f"00-{'a' * 32}-{'b' * 16}-00"
    tracing = type(signals.tracing)(exporting.tracer)
    with tracing.processing("t", parent, {}, {}):
        pass
    assert await exporting.finish(SLOW_SECONDS)
    assert exporter.names == []


Answering = Callable[[Scope, Receive, Send], Awaitable[None]]


class Door:
    """An application whose answers wait until they are let through."""

    def __init__(self) -> None:
        self.entered, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.set()
        await self.open.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b", "more_body": False})


async def served(app: Answering, before_last: Callable[[], None]) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            before_last()

    await app({"type": "http"}, receive, send)


async def test_only_the_last_open_request_flushes_and_before_its_answer_is_whole() -> None:
    """While others are open there is CPU, and their end will flush."""
    exporter = Collected()
    exporting = made(exporter)
    first, second = Door(), Door()
    doors = iter([first, second])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        span(exporting, "s")
        await next(doors)(scope, receive, send)

    flushing = Flushing(app, lambda: exporting)
    sent_when: list[int] = []
    note = lambda: sent_when.append(len(exporter.names))  # noqa: E731
    early = asyncio.create_task(served(flushing, note))
    late = asyncio.create_task(served(flushing, note))
    await second.entered.wait()
    first.open.set()
    await early
    second.open.set()
    await late
    assert sent_when == [0, 2]


async def test_a_request_that_breaks_off_is_not_counted_as_open() -> None:
    """Else nothing would ever be flushed again."""
    exporter = Collected()
    exporting = made(exporter)
    broken = True

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if broken:
            raise ConnectionError
        span(exporting, "s")
        await send({"type": "http.response.body", "more_body": False})

    flushing = Flushing(app, lambda: exporting)
    with pytest.raises(ConnectionError):
        await served(flushing, lambda: None)
    broken = False
    await served(flushing, lambda: None)
    assert exporter.names == ["s"]


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_signal_sends_the_last_telemetry_and_waits_for_no_collector(
    monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """The server ends within its grace time, whatever the collector does."""
    exporter = Collected()
    exporting = made(exporter)
    monkeypatch.setitem(bootstrap._exporting, os.getpid(), exporting)
    bootstrap.use_application(_application(World().api))
    server = Server(uvicorn.Config(Door(), log_config=None), grace_seconds=0.2)
    server.config.load()
    server.lifespan, server.servers = LifespanOff(server.config), []
    await server.startup(sockets=[])
    if hangs:
        exporter.still.clear()
    span(exporting, "last")
    began = time.monotonic()
    server._end_calls()
    await server.shutdown()
    assert time.monotonic() - began < 0.2 + SETTLE_SECONDS + SLOW_SECONDS
    assert exporter.names == ([] if hangs else ["last"])
    exporter.still.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_sends_what_it_has_seen_itself() -> None:
    """Its thread is its own, and what the parent queued is the parent's to send."""
    code = """
import asyncio, os, sys
from tests.unit.test_exporting import Collected, made, span
exporter = Collected()
exporting = made(exporter)
exporter.still.clear()
span(exporting, "parent")
child = os.fork()
if child == 0:
    exporter.still = __import__("threading").Event()
    exporter.still.set()
    span(exporting, "child")
    asyncio.run(exporting.finish(20))
    os._exit(0 if exporter.names == ["child"] else 1)
_, status = os.waitpid(child, 0)
exporter.still.set()
asyncio.run(exporting.finish(20))
assert exporter.names == ["parent"], exporter.names
sys.exit(os.waitstatus_to_exitcode(status))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


UNCONFIGURED = """
import asyncio, json, os, socket, sys, threading
made = []
connect = socket.socket.connect
socket.socket.connect = lambda self, *where: made.append(where) or connect(self, *where)
from functions import bootstrap, serving

async def main():
    serving.create_app("api")
    application = bootstrap.build_application(os.environ)
    with application.services.tracing.serving("GET", "/", {}):
        application.services.metrics.run_ended("succeeded")

asyncio.run(main())
print(json.dumps({
    "threads": [t.name for t in threading.enumerate() if "telemetry" in t.name or "Otel" in t.name],
    "sdk": any(name.startswith("opentelemetry.exporter") for name in sys.modules),
    "exporting": bootstrap.exporting() is not None,
    "connected": made,
}))
"""


def test_unconfigured_there_is_no_exporter_no_thread_and_no_socket(tmp_path: Any) -> None:
    """A process without an endpoint does not even load what would send."""
    environment = child_environment() | {
        "GOOGLE_CLOUD_PROJECT": "p-1",
        "EMPANEL_BUCKET": "b",
        "FUNCTION_TARGET": "api",
        "FIRESTORE_EMULATOR_HOST": "127.0.0.1:1",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1",
    }
    ended = subprocess.run(
        [sys.executable, "-c", UNCONFIGURED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found == {"threads": [], "sdk": False, "exporting": False, "connected": []}


def test_the_exporters_own_complaints_do_not_reach_the_log() -> None:
    """They would come with each batch; ours comes once a minute."""
    exporting_to(export_settings.load({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}))
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    assert not logger.isEnabledFor(logging.ERROR)
