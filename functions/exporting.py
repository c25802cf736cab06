"""The thread that sends spans and metrics to a collector, and what waits for it: nearly nothing.

    span ends -> queue -> thread -> collector        every 5 s, or when a batch is full
    last open request ends -> flush, at most 0.5 s   Cloud Run takes the CPU away after it
    SIGTERM -> flush in what is left of the grace time

An instance whose CPU is only there during requests runs no thread in between, so what a request
left behind would be sent with the next one, or never. A collector that is slow, dead or hangs costs
one request half a second, and then none for a minute; what it did not take is dropped, with one
warning a minute. The thread is a daemon of its own: no executor and no exit waits for it.
"""

import asyncio
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from functions import telemetry
from functions.export_settings import ExportSettings
from functions.metrics import SCOPE

SPANS_SECONDS = 5.0
METRICS_SECONDS = 60.0
METRICS_AGAIN_SECONDS = 10.0  # between two exports that the ends of requests ask for
REQUEST_SECONDS = 0.5
REST_SECONDS = 60.0
MOST_SPANS = 4096
BATCH = 512


class _Asked(NamedTuple):
    done: "Future[bool]"
    everything: bool


class Exporting:
    """Sends what this process has to tell; made once per process, its thread at the first span."""

    def __init__(
        self,
        spans: SpanExporter | None,
        metrics: MetricExporter | None,
        resource: Resource,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the exporters; nothing is connected or started."""
        self._now = now
        self._span_exporter, self._metric_exporter = spans, metrics
        self._tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracer_provider.add_span_processor(_Queueing(self))
        self._reader = InMemoryMetricReader(
            preferred_temporality=metrics._preferred_temporality if metrics else None,
            preferred_aggregation=metrics._preferred_aggregation if metrics else None,
        )
        self._meter_provider = MeterProvider(
            [self._reader], resource=resource, shutdown_on_exit=False
        )
        self._waiting: deque[ReadableSpan] = deque()
        self._thread: threading.Thread | None = None
        self._starting, self._wake = threading.Lock(), threading.Event()
        self._asked: deque[_Asked] = deque()
        self._process = os.getpid()
        self._lost = 0
        self._metrics_at = now()
        self._failed_at: float | None = None
        self._told_at: float | None = None

    @property
    def tracer(self) -> Tracer | None:
        """The tracer whose spans are sent, None when none are."""
        return self._tracer_provider.get_tracer(SCOPE) if self._span_exporter else None

    @property
    def meter(self) -> Meter | None:
        """The meter whose metrics are sent, None when none are."""
        return self._meter_provider.get_meter(SCOPE) if self._metric_exporter else None

    def run(self) -> None:
        """Start the thread where it does not run: at first, and in a process that was forked."""
        if self._process != os.getpid():
            self._begin_anew()
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._work, name="telemetry export", daemon=True
                    )
                    self._thread.start()

    def put(self, span: ReadableSpan) -> None:
        """Queue an ended span; a full queue drops it."""
        self.run()
        if len(self._waiting) >= MOST_SPANS:
            self._lost += 1
            return
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self._wake.set()

    async def flush_after_request(self) -> None:
        """Give the collector a moment for what the ended requests left, unless it failed just now.

        Called when no other request is open: the next CPU may be minutes away.
        """
        resting = self._failed_at is not None and self._now() - self._failed_at < REST_SECONDS
        if not resting and (self._waiting or self._metrics_due(METRICS_AGAIN_SECONDS)):
            await self._flush(REQUEST_SECONDS, everything=False)

    async def finish(self, seconds: float) -> bool:
        """Send everything in so many seconds, at the process's end; say whether that was done."""
        return await self._flush(seconds, everything=True)

    def _flush_soon(self, *, everything: bool) -> "Future[bool]":
        done: Future[bool] = Future()
        self.run()
        self._asked.append(_Asked(done, everything))
        self._wake.set()
        return done

    async def _flush(self, seconds: float, *, everything: bool) -> bool:
        done = self._flush_soon(everything=everything)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(done)
        except TimeoutError:
            self._fail(f"the collector took longer than {seconds:g} s")
            return False

    def _begin_anew(self) -> None:
        """Leave to the parent of this process what it has seen, and take none of its locks."""
        self._process, self._thread = os.getpid(), None
        self._starting, self._wake = threading.Lock(), threading.Event()
        self._waiting.clear()
        self._asked.clear()

    def _work(self) -> None:
        while True:
            self._wake.wait(SPANS_SECONDS)
            self._wake.clear()
            asked = [self._asked.popleft() for _ in range(len(self._asked))]
            try:
                sent = self._send(asked)
            except Exception as exc:  # noqa: BLE001 - the thread must outlive any fault of an exporter
                self._fail(repr(exc)[:300])
                sent = False
            for done, _ in asked:
                if done.set_running_or_notify_cancel():
                    done.set_result(sent)

    def _send(self, asked: list[_Asked]) -> bool:
        sent = self._send_spans()
        everything = any(one.everything for one in asked)
        if everything or self._metrics_due(METRICS_AGAIN_SECONDS if asked else METRICS_SECONDS):
            sent = self._send_metrics() and sent
        if sent:
            self._failed_at = None
        return sent

    def _send_spans(self) -> bool:
        sent = True
        while self._waiting and sent:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if self._span_exporter is not None:
                sent = self._span_exporter.export(batch) is SpanExportResult.SUCCESS
            if not sent:
                self._lost += len(batch)
                self._fail("the collector took no spans")
        return sent

    def _metrics_due(self, after_seconds: float) -> bool:
        due = self._now() - self._metrics_at >= after_seconds
        return self._metric_exporter is not None and due

    def _send_metrics(self) -> bool:
        self._metrics_at = self._now()
        data = self._reader.get_metrics_data()
        if data is None or self._metric_exporter is None:
            return True
        sent = self._metric_exporter.export(data) is MetricExportResult.SUCCESS
        if not sent:
            self._fail("the collector took no metrics")
        return sent

    def _fail(self, reason: str) -> None:
        """Let requests rest from the collector, and warn once a minute with what was dropped."""
        self._failed_at = now = self._now()
        if self._told_at is None or now - self._told_at >= REST_SECONDS:
            self._told_at, lost, self._lost = now, self._lost, 0
            telemetry.warning("telemetry not exported", reason=reason, spans_dropped=lost)


class _Queueing(SpanProcessor):
    """Hands each sampled span that ends to the queue."""

    def __init__(self, exporting: Exporting) -> None:
        self._exporting = exporting

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span."""
        if span.context is not None and span.context.trace_flags.sampled:
            self._exporting.put(span)


def exporting_to(settings: ExportSettings) -> Exporting:
    """Return what sends to the collector in the settings; nothing is connected yet."""
    # The exporters log each failure themselves; `Exporting` says it once a minute.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    seconds = settings.collector_seconds
    traces, metrics = settings.traces, settings.metrics
    return Exporting(
        OTLPSpanExporter(endpoint=traces, timeout=seconds) if traces else None,
        OTLPMetricExporter(endpoint=metrics, timeout=seconds) if metrics else None,
        resource_of(settings),
    )


def resource_of(settings: ExportSettings) -> Resource:
    """Return what all signals of this process carry; the instance's ID keeps counters apart."""
    named = {"service.name": settings.service, "service.instance.id": str(uuid.uuid4())}
    if settings.version is not None:
        named["service.version"] = settings.version
    return Resource.create(named)
