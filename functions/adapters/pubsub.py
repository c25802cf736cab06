"""Topics on Pub/Sub: one publish in flight per topic, carrying all that arrived during the last.

So a single message waits for nothing, and under load requests grow instead of queues. Nothing is
retried here: whoever publishes has a durable record from which repair publishes again.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1 import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.types import PublishRequest

from functions.core.errors import PublishFailed
from functions.core.ports import Message

# Pub/Sub takes 1,000 messages and 10 MB a request; the rest of the 10 MB is room for framing.
_MOST_MESSAGES = 1_000
_MOST_BYTES = 9_000_000
_FRAME_BYTES = 64
_PUBLISH = "pubsub.topics.publish"
_OPTIONS = (("grpc.max_reconnect_backoff_ms", 5_000), ("grpc.keepalive_time_ms", 60_000))
_LOCAL_OPTIONS = (*_OPTIONS, ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Messages of one caller that travel in the same request, and the caller's answer."""

    messages: list[Message]
    size: int
    sent: asyncio.Future[None]


@dataclass(slots=True)
class _Topic:
    path: str
    waiting: deque[_Parcel] = field(default_factory=deque)
    sender: asyncio.Task[None] | None = None


class PubsubPublisher:
    """A `Publisher` on the topics of a project; `PUBSUB_EMULATOR_HOST` leads to an emulator.

    The connection is made at the first call, for the running event loop. A publish ends within
    twice `timeout_seconds`: the request in flight, then its own.
    """

    def __init__(
        self, project: str, *, emulator_host: str | None = None, timeout_seconds: float = 10.0
    ) -> None:
        self._project = project
        self._emulator_host = emulator_host or os.environ.get("PUBSUB_EMULATOR_HOST")
        self._timeout_seconds = timeout_seconds
        self._channel: grpc.aio.Channel | None = None
        self._client: PublisherAsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._topics: dict[str, _Topic] = {}

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once the topic has confirmed every message.

        A caller that is cancelled may have published.

        Raises:
            PublishFailed: at least one message was not confirmed.
            ValueError: a message over 9 MB.
        """
        self._connect()
        target = self._topics.setdefault(
            topic, _Topic(path=f"projects/{self._project}/topics/{topic}")
        )
        parcels = list(_parcels(messages))
        target.waiting.extend(parcels)
        if parcels and (target.sender is None or target.sender.done()):
            target.sender = asyncio.create_task(self._send_waiting(target))
        for outcome in await asyncio.gather(*(p.sent for p in parcels), return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def check(self, topic: str) -> None:
        """Return when the topic answers and would take messages; nothing is published.

        Asked is what this account may do there: the one question that needs no permission, and that
        finds nothing allowed on a topic that is not there. The emulator knows no permissions and is
        asked for the topic.

        Raises:
            PublishFailed: it does not answer, is not there, or may not be published to.
        """
        self._connect()
        path = f"projects/{self._project}/topics/{topic}"
        try:
            if self._emulator_host:
                request = {"topic": path}
                await self._publisher().get_topic(
                    request=request, retry=None, timeout=self._timeout_seconds
                )
                return
            answer = await self._publisher().test_iam_permissions(
                request={"resource": path, "permissions": [_PUBLISH]},
                timeout=self._timeout_seconds,
            )
        except (GoogleAPICallError, GoogleAuthError) as exc:
            raise PublishFailed(f"Pub/Sub: {exc}") from exc
        if _PUBLISH not in answer.permissions:
            raise PublishFailed(f"{path}: not there, or not to be published to")

    async def aclose(self) -> None:
        """Wait until everything that was handed over has been sent, then close the connection."""
        for topic in self._topics.values():
            if topic.sender is not None:
                await asyncio.wait([topic.sender])
        channel, self._channel, self._client, self._loop = self._channel, None, None, None
        self._topics.clear()
        if channel is not None:
            await channel.close()

    def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop, self._topics = loop, {}
        self._channel, self._client = None, None

    def _publisher(self) -> PublisherAsyncClient:
        if self._client is None:
            self._channel = self._open_channel()
            transport = PublisherGrpcAsyncIOTransport(channel=self._channel)
            self._client = PublisherAsyncClient(transport=transport)
        return self._client

    def _open_channel(self) -> grpc.aio.Channel:
        if self._emulator_host:
            return grpc.aio.insecure_channel(self._emulator_host, options=_LOCAL_OPTIONS)
        return PublisherGrpcAsyncIOTransport.create_channel(
            PublisherGrpcAsyncIOTransport.DEFAULT_HOST, options=_OPTIONS
        )

    async def _send_waiting(self, topic: _Topic) -> None:
        while topic.waiting:
            parcels = _next_request(topic.waiting)
            try:
                await self._send(topic.path, parcels)
            except (GoogleAPICallError, GoogleAuthError) as exc:
                _answer(parcels, f"Pub/Sub: {exc}")
            except BaseException as exc:
                _answer([*parcels, *topic.waiting], f"not confirmed: {exc!r}")
                topic.waiting.clear()
                raise
            else:
                _answer(parcels, None)

    async def _send(self, path: str, parcels: list[_Parcel]) -> None:
        request = PublishRequest.pb()(topic=path)
        for parcel in parcels:
            for message in parcel.messages:
                request.messages.add(data=message.data, attributes=dict(message.attributes))
        await self._publisher().publish(
            request=PublishRequest.wrap(request), retry=None, timeout=self._timeout_seconds
        )


def _parcels(messages: Sequence[Message]) -> Iterator[_Parcel]:
    """Cut one caller's messages into parcels that fit a request."""
    loop = asyncio.get_running_loop()
    batch: list[Message] = []
    size = 0
    for message, message_bytes in [(message, _size(message)) for message in messages]:
        if batch and (len(batch) == _MOST_MESSAGES or size + message_bytes > _MOST_BYTES):
            yield _Parcel(batch, size, loop.create_future())
            batch, size = [], 0
        batch.append(message)
        size += message_bytes
    if batch:
        yield _Parcel(batch, size, loop.create_future())


def _next_request(waiting: deque[_Parcel]) -> list[_Parcel]:
    """Take the parcels that fit one request, at least one."""
    taken = [waiting.popleft()]
    count, size = len(taken[0].messages), taken[0].size
    while waiting:
        count += len(waiting[0].messages)
        size += waiting[0].size
        if count > _MOST_MESSAGES or size > _MOST_BYTES:
            break
        taken.append(waiting.popleft())
    return taken


def _size(message: Message) -> int:
    attributes = sum(len(k.encode()) + len(v.encode()) for k, v in message.attributes.items())
    size = len(message.data) + attributes + _FRAME_BYTES * (1 + len(message.attributes))
    if size > _MOST_BYTES:
        raise ValueError(f"a message of about {size} bytes is over {_MOST_BYTES}")
    return size


def _answer(parcels: Sequence[_Parcel], failure: str | None) -> None:
    for parcel in parcels:
        if parcel.sent.done():
            continue  # its caller was cancelled
        if failure is None:
            parcel.sent.set_result(None)
        else:
            parcel.sent.set_exception(PublishFailed(failure))
