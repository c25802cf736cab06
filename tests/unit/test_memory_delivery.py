"""Subscriptions in memory: delivered until acknowledged, as Pub/Sub would."""

import asyncio

import pytest

from functions.adapters.memory import Delivery, MemoryPublisher
from functions.core.ports import Message
from tests.virtual_clock import START, VirtualClock

MESSAGE = Message(data=b"{}", attributes={"a": "b"})


async def test_a_message_comes_back_until_it_is_acknowledged() -> None:
    """A nack and an exception both bring it back, after 1 s, then 2 s, with the same ID."""
    clock = VirtualClock()
    publisher = MemoryPublisher(clock)
    seen: list[tuple[int, float, str]] = []

    async def subscriber(delivery: Delivery) -> bool:
        seen.append((delivery.attempt, clock.monotonic(), delivery.message_id))
        assert (delivery.message, delivery.published_at) == (MESSAGE, START)
        if delivery.attempt == 2:
            raise RuntimeError("a handler that fails")
        return delivery.attempt == 3

    publisher.subscribe("topic", subscriber)
    await publisher.publish("topic", [MESSAGE])
    await publisher.drained()
    assert seen == [(1, 0.0, "1"), (2, 1.0, "1"), (3, 3.0, "1")]
    assert publisher.messages("topic") == [MESSAGE]


async def test_every_subscriber_gets_every_message_of_its_topic() -> None:
    """Two subscribers of a topic get each message once; other topics reach neither."""
    publisher = MemoryPublisher(VirtualClock())
    seen: list[str] = []

    async def first(delivery: Delivery) -> bool:
        seen.append(f"first {delivery.message_id}")
        return True

    async def second(delivery: Delivery) -> bool:
        seen.append(f"second {delivery.message_id}")
        return True

    publisher.subscribe("topic", first)
    publisher.subscribe("topic", second)
    await publisher.publish("topic", [MESSAGE, MESSAGE])
    await publisher.publish("other", [MESSAGE])
    await publisher.drained()
    assert sorted(seen) == ["first 1", "first 2", "second 1", "second 2"]


async def test_only_so_many_calls_run_at_once() -> None:
    """`at_once` bounds the concurrent calls of a subscriber; all messages are delivered."""
    clock = VirtualClock()
    publisher = MemoryPublisher(clock)
    running, most, done = 0, 0, 0

    async def subscriber(_: Delivery) -> bool:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await clock.sleep(1)
        running -= 1
        done += 1
        return True

    publisher.subscribe("topic", subscriber, at_once=3)
    await publisher.publish("topic", [MESSAGE] * 10)
    await publisher.drained()
    assert (most, done) == (3, 10)


async def test_closing_cancels_deliveries() -> None:
    """`aclose` cancels a subscriber's call, waits for its end and delivers nothing more."""
    publisher = MemoryPublisher(VirtualClock())
    started, ended = asyncio.Event(), asyncio.Event()

    async def subscriber(_: Delivery) -> bool:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return True

    publisher.subscribe("topic", subscriber)
    await publisher.publish("topic", [MESSAGE])
    await started.wait()
    await publisher.aclose()
    assert ended.is_set()


@pytest.mark.parametrize("messages", [0, 1])
async def test_drained_returns_when_there_is_nothing_to_do(messages: int) -> None:
    """A topic that nobody subscribes to keeps its messages and delivers none."""
    publisher = MemoryPublisher(VirtualClock())
    await publisher.publish("topic", [MESSAGE] * messages)
    await publisher.drained()
    assert len(publisher.messages("topic")) == messages
