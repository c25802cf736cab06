"""A collector on loopback: takes OTLP over HTTP, keeps what it got, and can be slow or silent."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.receiver import OK, Received, _read


@dataclass(kw_only=True)
class Told:
    """A span as it came in, with the service that sent it."""

    service: str
    instance: str
    span: Span

    @property
    def trace(self) -> str:
        """The trace in hex."""
        return self.span.trace_id.hex()

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes as texts."""
        return texts(self.span.attributes)


def texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Return attributes as texts."""
    found: dict[str, str] = {}
    for pair in attributes:
        kind = pair.value.WhichOneof("value")
        found[pair.key] = str(getattr(pair.value, kind)) if kind else ""
    return found


@dataclass(kw_only=True)
class Collector:
    """What came in. While `silent` is set it reads requests and never answers."""

    port: int = 0
    silent: bool = False
    requests: list[Received] = field(default_factory=list)
    spans: list[Told] = field(default_factory=list)
    metrics: dict[str, list[Metric]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The endpoint for all signals."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which may carry many requests."""
        try:
            while True:
                request = await _read(reader)
                self.requests.append(request)
                if self.silent:
                    await reader.read()  # until the other side gives up
                    return
                self._take(request)
                writer.write(OK)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _take(self, request: Received) -> None:
        body = request.body
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if "/v1/traces" in request.line:
            for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = texts(sent.resource.attributes)
                self.spans += [
                    Told(
                        service=resource["service.name"],
                        instance=resource["service.instance.id"],
                        span=span,
                    )
                    for scope in sent.scope_spans
                    for span in scope.spans
                ]
        else:
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                service = texts(measured.resource.attributes)["service.name"]
                found = [metric for scope in measured.scope_metrics for metric in scope.metrics]
                self.metrics[service] = found


@asynccontextmanager
async def collecting(*, silent: bool = False) -> AsyncIterator[Collector]:
    """A collector for the length of the block."""
    collector = Collector(silent=silent)
    server = await asyncio.start_server(collector.handle, "127.0.0.1", 0)
    collector.port = server.sockets[0].getsockname()[1]
    try:
        yield collector
    finally:
        server.close()
