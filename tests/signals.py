"""Spans and metrics kept in memory, and how tests look at them."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from functions.core.vendors import Vendor
from functions.metrics import Metrics
from functions.tracing import Tracing

ACME = Vendor(name="acme", address="models.example.com", port=8443)
Labels = frozenset[tuple[str, Any]]


class Signals:
    """What a process, or a whole world, would have sent."""

    def __init__(self, vendors: Mapping[str, Vendor] | None = None) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.tracing = Tracing(traces.get_tracer("test"), vendors or {"fake": ACME})
        self.metrics = Metrics(meters.get_meter("test"))

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans that have ended, in that order."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def points(self, name: str) -> dict[Labels, Any]:
        """The data points of a metric by their attributes: a number, or a histogram's point."""
        data = self._reader.get_metrics_data()
        found: dict[Labels, Any] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        for point in metric.data.data_points:
                            labels = frozenset((point.attributes or {}).items())
                            histogram = isinstance(point, HistogramDataPoint)
                            found[labels] = point if histogram else getattr(point, "value", None)
        return found

    def by(self, name: str, label: str) -> dict[Any, int]:
        """The sums of a counter by one of its attributes."""
        sums: dict[Any, int] = {}
        for labels, value in self.points(name).items():
            key = dict(labels).get(label)
            sums[key] = sums.get(key, 0) + value
        return sums


def trace_id(span: ReadableSpan) -> str:
    """Return the span's trace in hex."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def parent_of(span: ReadableSpan) -> str | None:
    """Return the ID of the span's parent in hex."""
    return f"{span.parent.span_id:016x}" if span.parent is not None else None


def span_id(span: ReadableSpan) -> str:
    """Return the span's own ID in hex."""
    assert span.context is not None
    return f"{span.context.span_id:016x}"
