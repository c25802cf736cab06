"""The connection to Firestore: one channel per process and event loop, made at the first call.

Calls go through the generated client with `retry=None`, a timeout, and the protobuf messages
underneath its wrappers.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
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
    loop: asyncio.AbstractEventLoop
    channel: grpc.aio.Channel
    client: FirestoreAsyncClient


class Connection:
    """Sends RPCs and returns raw messages; `FIRESTORE_EMULATOR_HOST` leads to an emulator.

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
        metadata = [("google-cloud-resource-prefix", self.database)]
        if self._emulator_host:
            metadata.append(("authorization", "Bearer owner"))  # what the emulator expects
        self._options: dict[str, Any] = {
            "retry": None,
            "timeout": timeout_seconds,
            "metadata": metadata,
        }

    async def commit(self, request: CommitRequest) -> Any:
        """Commit once."""
        response = await self._client().commit(request=request, **self._options)
        return CommitResponse.pb(response)

    async def batch_get(self, request: BatchGetDocumentsRequest) -> AsyncIterator[Any]:
        """Read documents; the answers come in any order."""
        call = self._client().batch_get_documents(request=request, **self._options)
        async for response in await call:
            yield BatchGetDocumentsResponse.pb(response)

    async def run_query(self, request: RunQueryRequest) -> AsyncIterator[Any]:
        """Read the documents of a query, in its order."""
        async for response in await self._client().run_query(request=request, **self._options):
            yield RunQueryResponse.pb(response)

    async def run_aggregation(self, request: RunAggregationQueryRequest) -> AsyncIterator[Any]:
        """Read the results of an aggregation."""
        call = self._client().run_aggregation_query(request=request, **self._options)
        async for response in await call:
            yield RunAggregationQueryResponse.pb(response)

    def _client(self) -> FirestoreAsyncClient:
        loop = asyncio.get_running_loop()
        if self._opened is None or self._opened.loop is not loop:
            channel = self._channel()
            transport = FirestoreGrpcAsyncIOTransport(channel=channel)
            self._opened = _Opened(loop, channel, FirestoreAsyncClient(transport=transport))
        return self._opened.client

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
