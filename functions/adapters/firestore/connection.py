"""The connection to Firestore: one channel per process and event loop, made at the first call.

RPCs are sent on the channel itself, each once and with a timeout. The generated client on top of it
(wrapped messages, logging interceptors, retry policies) costs about as much CPU as the RPC; what it
adds to the wire is added here: the routing header that its methods send.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.api_core.exceptions import from_grpc_error
from google.api_core.gapic_v1.routing_header import to_grpc_metadata
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport
from google.cloud.firestore_v1.types import (
    BatchGetDocumentsRequest,
    BatchGetDocumentsResponse,
    CommitRequest,
    CommitResponse,
    RunAggregationQueryRequest,
    RunAggregationQueryResponse,
    RunQueryRequest,
    RunQueryResponse,
)

# gRPC's own "transparent" retry stays on: it repeats only what provably never reached a server.
# After an outage the default reconnects within two minutes; a lease does not live that long.
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.keepalive_time_ms", 60_000),
)
_LOCAL_OPTIONS = (*_OPTIONS, ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A channel of one loop, and its RPCs on the protobuf classes underneath the wrappers."""

    loop: asyncio.AbstractEventLoop
    channel: grpc.aio.Channel
    commit: Any
    batch_get: Any
    run_query: Any
    run_aggregation: Any


class Connection:
    """Sends RPCs; requests and answers are raw messages. An emulator's host leads to it.

    Each method raises `google.api_core.exceptions.GoogleAPICallError`, or
    `google.auth.exceptions.GoogleAuthError` when there are no credentials.
    """

    def __init__(
        self, project: str, database: str, emulator_host: str | None, timeout_seconds: float
    ) -> None:
        self.database = f"projects/{project}/databases/{database}"
        self.root = f"{self.database}/documents"
        self._emulator_host = emulator_host or os.environ.get("FIRESTORE_EMULATOR_HOST")
        self._opened: _Opened | None = None
        self._timeout_seconds = timeout_seconds
        self._metadata = [("google-cloud-resource-prefix", self.database)]
        if self._emulator_host:
            self._metadata.append(("authorization", "Bearer owner"))  # what the emulator expects
        self._to_database = self._routed(database=self.database)

    async def commit(self, request: Any) -> Any:
        """Commit once."""
        with _errors():
            return await self._rpcs().commit(request, **self._to_database)

    async def batch_get(self, request: Any) -> AsyncIterator[Any]:
        """Read documents; the answers come in any order."""
        with _errors():
            async for response in self._rpcs().batch_get(request, **self._to_database):
                yield response

    async def run_query(self, request: Any) -> AsyncIterator[Any]:
        """Read the documents of a query, in its order."""
        with _errors():
            routed = self._routed(parent=request.parent)
            async for response in self._rpcs().run_query(request, **routed):
                yield response

    async def run_aggregation(self, request: Any) -> AsyncIterator[Any]:
        """Read the results of an aggregation."""
        with _errors():
            routed = self._routed(parent=request.parent)
            async for response in self._rpcs().run_aggregation(request, **routed):
                yield response

    def _routed(self, **fields: str) -> dict[str, Any]:
        """Return an RPC's options; the routing header leads it to the database's region."""
        metadata = [*self._metadata, to_grpc_metadata(fields)]  # type: ignore[no-untyped-call]
        return {"timeout": self._timeout_seconds, "metadata": metadata}

    def _rpcs(self) -> _Opened:
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened.loop is not loop:
            channel = self._channel()
            one, many = channel.unary_unary, channel.unary_stream
            self._opened = _Opened(
                loop,
                channel,
                _rpc(one, "Commit", CommitRequest, CommitResponse),
                _rpc(
                    many, "BatchGetDocuments", BatchGetDocumentsRequest, BatchGetDocumentsResponse
                ),
                _rpc(many, "RunQuery", RunQueryRequest, RunQueryResponse),
                _rpc(
                    many,
                    "RunAggregationQuery",
                    RunAggregationQueryRequest,
                    RunAggregationQueryResponse,
                ),
            )
        return self._opened

    async def aclose(self) -> None:
        """Close the channel; the next call would open another one."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.loop is asyncio.get_running_loop():
            await opened.channel.close()

    def _channel(self) -> grpc.aio.Channel:
        if self._emulator_host:
            return grpc.aio.insecure_channel(self._emulator_host, options=_LOCAL_OPTIONS)
        return FirestoreGrpcAsyncIOTransport.create_channel(
            FirestoreGrpcAsyncIOTransport.DEFAULT_HOST, options=_OPTIONS
        )


def _rpc(kind: Any, method: str, request: Any, response: Any) -> Any:
    return kind(
        f"/google.firestore.v1.Firestore/{method}",
        request_serializer=request.pb().SerializeToString,
        response_deserializer=response.pb().FromString,
    )


@contextmanager
def _errors() -> Iterator[None]:
    """Turn gRPC's errors into those of google-api-core, which tell the kinds apart."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        raise from_grpc_error(exc) from exc  # type: ignore[no-untyped-call]
