"""Topics to publish to, and a way to see what arrived: in memory and on the emulator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from functions.adapters.clock import SystemClock
from functions.adapters.memory import MemoryPublisher
from functions.adapters.pubsub import PubsubPublisher
from functions.core.ports import Message, Publisher
from infra.local.pubsub import open_channel, publisher, subscriber, subscription_path, topic_path

ARRIVAL_SECONDS = 10.0


class Topics(Protocol):
    """A publisher together with what arrived at its topics."""

    publisher: Publisher

    async def arrived(self, topic: str, count: int) -> list[Message]:
        """Wait for `count` messages of a topic and return them."""


class MemoryTopics:
    """Topics in memory."""

    def __init__(self) -> None:
        self._memory = MemoryPublisher(SystemClock())
        self.publisher: Publisher = self._memory

    async def arrived(self, topic: str, count: int) -> list[Message]:
        """Return what was published."""
        messages = self._memory.messages(topic)
        assert len(messages) == count
        return messages


class PubsubTopics:
    """Topics of the emulator, each with a subscription of the same name."""

    def __init__(self, host: str, project: str, real: PubsubPublisher) -> None:
        self.publisher: Publisher = real
        self._host = host
        self._project = project

    async def arrived(self, topic: str, count: int) -> list[Message]:
        """Pull until so many messages have come; acknowledges them."""
        name = subscription_path(self._project, topic)
        found: dict[str, Message] = {}
        async with asyncio.timeout(ARRIVAL_SECONDS), open_channel(self._host) as channel:
            while len(found) < count:
                pulled = await subscriber(channel).pull(subscription=name, max_messages=1000)
                for received in pulled.received_messages:
                    message = received.message
                    found[message.message_id] = Message(
                        data=message.data, attributes=dict(message.attributes)
                    )
                ack_ids = [received.ack_id for received in pulled.received_messages]
                if ack_ids:
                    await subscriber(channel).acknowledge(subscription=name, ack_ids=ack_ids)
        return list(found.values())


@asynccontextmanager
async def pubsub_topics(
    host: str, project: str, *names: str, publish_host: str | None = None
) -> AsyncIterator[PubsubTopics]:
    """Create topics on the emulator at `host`; publish at `publish_host`, if that is another."""
    async with open_channel(host) as channel:
        for name in names:
            await publisher(channel).create_topic(name=topic_path(project, name))
            await subscriber(channel).create_subscription(
                name=subscription_path(project, name), topic=topic_path(project, name)
            )
    real = PubsubPublisher(project, emulator_host=publish_host or host, timeout_seconds=2)
    try:
        yield PubsubTopics(host, project, real)
    finally:
        await real.aclose()
