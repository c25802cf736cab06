"""Topics in memory: keeps what was published and, on request, delivers it at least once."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from functions.core.ports import Clock, Message

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One message on its way to one subscriber; `attempt` counts its deliveries from 1."""

    message: Message
    message_id: str
    published_at: datetime
    attempt: int = 1


Subscriber = Callable[[Delivery], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class _Subscription:
    subscriber: Subscriber
    slots: asyncio.Semaphore


@dataclass(slots=True)
class _Topic:
    messages: list[Message] = field(default_factory=list)
    subscriptions: list[_Subscription] = field(default_factory=list)


class MemoryPublisher:
    """A `Publisher` of one process, with the subscriptions that Pub/Sub would push to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = defaultdict(_Topic)
        self._tasks: set[asyncio.Task[None]] = set()
        self._published = 0

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Keep the messages and hand them to the topic's subscribers, in tasks of their own."""
        await asyncio.sleep(0)
        for message in messages:
            self._publish(self._topics[topic], message)

    async def check(self, topic: str) -> None:
        """Return: a topic in memory is there as soon as it is named."""
        await asyncio.sleep(0)

    def subscribe(self, topic: str, subscriber: Subscriber, *, at_once: int = 100) -> None:
        """Deliver what is published from now on: until `subscriber` returns True.

        False or an exception brings the message back after 1 s, doubling up to 60 s. At most
        `at_once` calls of this subscriber run at the same time.
        """
        slots = asyncio.Semaphore(at_once)
        self._topics[topic].subscriptions.append(_Subscription(subscriber, slots))

    def messages(self, topic: str) -> list[Message]:
        """Return everything published to `topic` so far, in order."""
        return list(self._topics[topic].messages)

    async def drained(self) -> None:
        """Return once no delivery is under way or waiting to be repeated."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Cancel all deliveries and wait until they have ended; what was not acked is lost."""
        for task in self._tasks:
            task.cancel()
        await self.drained()

    def _publish(self, topic: _Topic, message: Message) -> None:
        self._published += 1
        copy = Message(data=bytes(message.data), attributes=dict(message.attributes))
        topic.messages.append(copy)
        delivery = Delivery(
            message=copy, message_id=str(self._published), published_at=self._clock.now()
        )
        for subscription in topic.subscriptions:
            task = asyncio.create_task(self._deliver(subscription, delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, subscription: _Subscription, delivery: Delivery) -> None:
        wait_seconds = _FIRST_WAIT_SECONDS
        while not await _is_acked(subscription, delivery):
            await self._clock.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, _LONGEST_WAIT_SECONDS)
            delivery = replace(delivery, attempt=delivery.attempt + 1)


async def _is_acked(subscription: _Subscription, delivery: Delivery) -> bool:
    async with subscription.slots:
        try:
            return await subscription.subscriber(delivery)
        except Exception:  # noqa: BLE001 - logged, and a nack, as an answer of 500 would be
            _LOG.exception("delivery %d of message %s", delivery.attempt, delivery.message_id)
            return False
