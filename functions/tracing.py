"""Spans from the request that brings a job to the provider call: one trace, whatever the process.

    POST /v1/jobs (server) -> send empanel-evaluate (producer)
        \\-- traceparent, in the job's record and its messages --\\
              process empanel-evaluate (consumer) -> chat MODEL (client)

The job's record keeps the trace context of the request that brought it, so redeliveries, repair and
replays belong to the same trace. A delivery also arrives as a request with a trace of the
platform's own: that is a link. So is the attempt, of another job, whose answer a delivery reuses.

Nothing of a question, an answer or an exception's text stands in a span: `error.type` is a code or
a class. Requests to providers carry no trace context: they are not told what belongs together.
Without a configured exporter no span is made, and callers' trace contexts pass as they are.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NoOpTracer, Span, SpanContext, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from functions.core.vendors import Vendor

ERROR_TYPE = "error.type"
Attributes = Mapping[str, str | int | bool | float]
_PROPAGATOR = TraceContextTextMapPropagator()
_NO_VENDORS: Mapping[str, Vendor] = {}


class Tracing:
    """Makes the spans of one process. `vendors` says who answers at each configured provider."""

    def __init__(
        self, tracer: Tracer | None = None, vendors: Mapping[str, Vendor] = _NO_VENDORS
    ) -> None:
        """Make spans with a tracer; without one, none."""
        self.live = tracer is not None
        self._tracer = tracer or NoOpTracer()
        self._vendors = vendors

    def vendor(self, provider: str) -> Vendor:
        """Return who answers at a provider, by its name in seats."""
        return self._vendors.get(provider) or Vendor(name=provider)

    @contextmanager
    def serving(self, method: str, path: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Span a request to the interface; its caller's trace goes on in it."""
        if not self.live:
            yield trace.INVALID_SPAN
            return
        attributes = {"http.request.method": method, "url.path": path}
        with self._spanned(method, SpanKind.SERVER, attributes, _context(headers)) as span:
            yield span

    @contextmanager
    def sending(self, topic: str, traceparent: str | None, messages: int) -> Iterator[Span]:
        """Span the publishing of messages of one job, in its trace where no span is under way."""
        if not self.live:
            yield trace.INVALID_SPAN
            return
        attributes = _messaging("send", topic) | {"messaging.batch.message_count": messages}
        under_way = trace.get_current_span().get_span_context().is_valid
        context = None if under_way else _context_of(traceparent)
        with self._spanned(f"send {topic}", SpanKind.PRODUCER, attributes, context) as span:
            yield span

    @contextmanager
    def processing(
        self,
        topic: str,
        traceparent: str | None,
        headers: Mapping[str, str],
        attributes: Attributes,
    ) -> Iterator[Span]:
        """Span one delivery of a message, in the trace of the job that it is about."""
        if not self.live:
            yield trace.INVALID_SPAN
            return
        delivered_by = _remote(headers.get("traceparent"))
        with self._spanned(
            f"process {topic}",
            SpanKind.CONSUMER,
            {**_messaging("process", topic), **attributes},
            _context_of(traceparent),
            [Link(delivered_by)] if delivered_by is not None else [],
        ) as span:
            yield span

    def own_traceparent(self) -> str | None:
        """Return the context of the current span as W3C has it, None where no spans are made."""
        if not self.live:
            return None
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get("traceparent")

    def begin_call(self, name: str, attributes: Attributes) -> Span:
        """Begin the span of a request to a provider; whoever begins it ends it."""
        return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)

    @contextmanager
    def _spanned(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: Context | None = None,
        links: list[Link] | None = None,
    ) -> Iterator[Span]:
        """Make a span the current one for the block; an exception's class goes into it."""
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,  # its text may hold anything
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as exc:
                failed(span, type(exc).__name__)
                raise


def failed(span: Span, error_type: str) -> None:
    """Mark a span as failed, for a reason out of few."""
    span.set_attribute(ERROR_TYPE, error_type)
    span.set_status(StatusCode.ERROR)


def name_request(method: str, route: str) -> None:
    """Give the current span the name of the route that its request was matched to."""
    span = trace.get_current_span()
    if span.is_recording():
        span.update_name(f"{method} {route}")
        span.set_attribute("http.route", route)


def answered(span: Span, status: int) -> None:
    """Note the status that a request was answered with; a fault of ours fails the span."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        failed(span, str(status))


def link_to(traceparent: str | None) -> None:
    """Link the current span to one of another job's trace."""
    span = trace.get_current_span()
    if span.is_recording() and (other := _remote(traceparent)) is not None:
        span.add_link(other)


def _context(headers: Mapping[str, str]) -> Context:
    """Return the context that headers bring, and never one that happens to be current."""
    return _PROPAGATOR.extract(dict(headers), Context())


def _context_of(traceparent: str | None) -> Context:
    return _context({"traceparent": traceparent} if traceparent else {})


def _remote(traceparent: str | None) -> SpanContext | None:
    context = trace.get_current_span(_context_of(traceparent)).get_span_context()
    return context if context.is_valid else None


def _messaging(operation: str, topic: str) -> dict[str, str | int | bool | float]:
    return {
        "messaging.system": "gcp_pubsub",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
