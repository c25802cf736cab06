"""What every publisher promises: a confirmed message arrives, a lost confirmation is told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from functions.adapters.pubsub import PubsubPublisher
from functions.core.errors import PublishFailed
from functions.core.ports import Message
from infra.local.emulators import EmulatorHosts
from tests.contract.topics import MemoryTopics, PubsubTopics, Topics, pubsub_topics
from tests.faults.proxy import Fault, GrpcProxy, Moment


@pytest.fixture(params=["memory", "pubsub"])
def pubsub_host(request: Any) -> str | None:
    """The emulator's address, or None for memory."""
    if request.param == "memory":
        return None
    hosts: EmulatorHosts = request.getfixturevalue("emulator_hosts")
    return hosts.pubsub


@pytest.fixture
async def topics(pubsub_host: str | None, project: str) -> AsyncIterator[Topics]:
    """Two topics of each kind, `first` and `second`."""
    if pubsub_host is None:
        yield MemoryTopics()
        return
    async with pubsub_topics(pubsub_host, project, "first", "second") as real:
        yield real


@pytest.fixture
async def proxy(emulator_hosts: EmulatorHosts) -> AsyncIterator[GrpcProxy]:
    """A proxy in front of the Pub/Sub emulator."""
    async with GrpcProxy(emulator_hosts.pubsub) as running:
        yield running


@pytest.fixture
async def proxied(
    emulator_hosts: EmulatorHosts, proxy: GrpcProxy, project: str
) -> AsyncIterator[PubsubTopics]:
    """The real topics with a publisher that passes the proxy."""
    async with pubsub_topics(
        emulator_hosts.pubsub, project, "first", publish_host=proxy.host
    ) as real:
        yield real


def numbered(count: int) -> list[Message]:
    """Messages that can be told apart."""
    return [Message(data=b"%d" % n, attributes={"n": str(n), "word": "ü"}) for n in range(count)]


def by_number(messages: list[Message]) -> list[Message]:
    """In the order of their numbers."""
    return sorted(messages, key=lambda message: int(message.data))


async def test_messages_arrive_whole_at_their_topic(topics: Topics) -> None:
    """Data and attributes arrive as they were sent, at the topic they were sent to."""
    sent = numbered(3)
    await topics.publisher.publish("first", sent[:2])
    await topics.publisher.publish("second", sent[2:])
    assert by_number(await topics.arrived("first", 2)) == sent[:2]
    assert await topics.arrived("second", 1) == sent[2:]


async def test_publishing_nothing_is_done_at_once(topics: Topics) -> None:
    """No messages need no confirmation."""
    await topics.publisher.publish("first", [])


async def test_many_messages_of_one_call_arrive(topics: Topics) -> None:
    """More messages than one request takes arrive all, each once."""
    sent = numbered(2_100)
    await topics.publisher.publish("first", sent)
    assert by_number(await topics.arrived("first", len(sent))) == sent


async def test_concurrent_calls_lose_nothing(topics: Topics) -> None:
    """200 callers at once get their confirmation, and all messages arrive."""
    sent = numbered(200)
    await asyncio.gather(*(topics.publisher.publish("first", [m]) for m in sent))
    assert by_number(await topics.arrived("first", len(sent))) == sent


async def test_callers_share_requests(proxied: PubsubTopics, proxy: GrpcProxy) -> None:
    """What arrives while a publish is in flight travels in the next one, together."""
    await asyncio.gather(*(proxied.publisher.publish("first", [m]) for m in numbered(200)))
    assert proxy.calls["Publish"] <= 5


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND, None])
async def test_a_lost_confirmation_is_told(
    proxied: PubsubTopics, proxy: GrpcProxy, moment: Moment, code: grpc.StatusCode | None
) -> None:
    """A failed, lost or silent publish is PublishFailed after one request; the next one works."""
    proxy.inject(Fault(method="Publish", moment=moment, code=code))
    with pytest.raises(PublishFailed):
        await proxied.publisher.publish("first", numbered(1))
    assert proxy.calls["Publish"] == 1
    await proxied.publisher.publish("first", numbered(1))
    await proxied.arrived("first", 2 if moment is Moment.AFTER else 1)


async def test_one_failed_request_fails_only_its_callers(
    proxied: PubsubTopics, proxy: GrpcProxy
) -> None:
    """Callers of a later request are confirmed although an earlier request failed."""
    proxy.inject(Fault(method="Publish", moment=Moment.BEFORE))
    first = asyncio.create_task(proxied.publisher.publish("first", numbered(1)))
    await proxy.called("Publish")
    await proxied.publisher.publish("first", numbered(1))
    with pytest.raises(PublishFailed):
        await first
    await proxied.arrived("first", 1)


async def test_a_cancelled_caller_stops_nobody_else(proxied: PubsubTopics) -> None:
    """A caller that is cancelled in a shared request leaves the others their confirmation."""
    calls = [
        asyncio.create_task(proxied.publisher.publish("first", [message]))
        for message in numbered(3)
    ]
    await asyncio.sleep(0)
    calls[1].cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        asyncio.CancelledError,
        type(None),
    ]


async def test_an_unknown_topic_is_told(emulator_hosts: EmulatorHosts, project: str) -> None:
    """A topic that does not exist confirms nothing."""
    publisher = PubsubPublisher(project, emulator_host=emulator_hosts.pubsub)
    with pytest.raises(PublishFailed):
        await publisher.publish("unknown", numbered(1))
    await publisher.aclose()


async def test_a_message_that_is_too_large_is_refused(project: str) -> None:
    """A message that no request can carry is a ValueError before anything is sent."""
    publisher = PubsubPublisher(project, emulator_host="127.0.0.1:1")
    with pytest.raises(ValueError, match="is over"):
        await publisher.publish("first", [Message(data=bytes(10_000_000))])
    await publisher.aclose()


async def test_a_topic_that_is_there_answers(topics: Topics) -> None:
    """The question publishes nothing."""
    await topics.publisher.check("first")
    await topics.publisher.publish("first", numbered(1))
    assert await topics.arrived("first", 1) == numbered(1)


async def test_a_topic_that_is_not_there_does_not(
    emulator_hosts: EmulatorHosts, project: str
) -> None:
    """A missing topic and a server that gives no answer both fail the question."""
    real = PubsubPublisher(project, emulator_host=emulator_hosts.pubsub)
    try:
        with pytest.raises(PublishFailed):
            await real.check("nowhere")
    finally:
        await real.aclose()
    deaf = PubsubPublisher(project, emulator_host="127.0.0.1:1", timeout_seconds=0.5)
    try:
        with pytest.raises(PublishFailed):
            await deaf.check("first")
    finally:
        await deaf.aclose()
