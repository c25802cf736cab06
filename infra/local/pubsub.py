"""The Pub/Sub emulator's clients, topics and subscriptions."""

from datetime import timedelta

import grpc
from google.api_core.exceptions import AlreadyExists
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import DeadLetterPolicy, RetryPolicy, Subscription

from infra.local.targets import DEAD_LETTER, EVENTS_TOPIC, PUSHED, PushedTarget

ACK_DEADLINE_SECONDS = 600
MAX_DELIVERY_ATTEMPTS = 100
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)


def open_channel(host: str) -> grpc.aio.Channel:
    """A plain-text channel to the emulator; the caller closes it."""
    return grpc.aio.insecure_channel(host, options=CHANNEL_OPTIONS)


def publisher(channel: grpc.aio.Channel) -> PublisherAsyncClient:
    """A publisher on an open channel."""
    return PublisherAsyncClient(transport=PublisherGrpcAsyncIOTransport(channel=channel))


def subscriber(channel: grpc.aio.Channel) -> SubscriberAsyncClient:
    """A subscriber on an open channel."""
    return SubscriberAsyncClient(transport=SubscriberGrpcAsyncIOTransport(channel=channel))


def topic_path(project: str, topic: str) -> str:
    """The full name of a topic."""
    return f"projects/{project}/topics/{topic}"


def subscription_path(project: str, subscription: str) -> str:
    """The full name of a subscription."""
    return f"projects/{project}/subscriptions/{subscription}"


async def create_topics(host: str, project: str) -> None:
    """Create what is missing: a topic and a subscription per pushed target, and the events' topic.

    The subscriptions are pull subscriptions, for the bridge; they carry the ack deadline of the
    real push subscriptions (which is also the request's deadline) and a dead-letter policy,
    without which Pub/Sub does not count delivery attempts.
    """
    async with open_channel(host) as channel:
        await _create_topic(channel, project, EVENTS_TOPIC)
        for target in PUSHED:
            await _create_topic(channel, project, target.topic)
        for target in PUSHED:
            await _create_subscription(channel, _push_subscription(project, target))


def _push_subscription(project: str, target: PushedTarget) -> Subscription:
    """A dead letter that cannot be recorded has nowhere else to go: it comes again for ever."""
    subscription = Subscription(
        name=subscription_path(project, target.subscription),
        topic=topic_path(project, target.topic),
        ack_deadline_seconds=ACK_DEADLINE_SECONDS,
        retry_policy=RetryPolicy(
            minimum_backoff=timedelta(milliseconds=100), maximum_backoff=timedelta(seconds=10)
        ),
    )
    if target is not DEAD_LETTER:
        subscription.dead_letter_policy = DeadLetterPolicy(
            dead_letter_topic=topic_path(project, DEAD_LETTER.topic),
            max_delivery_attempts=MAX_DELIVERY_ATTEMPTS,
        )
    return subscription


async def _create_topic(channel: grpc.aio.Channel, project: str, topic: str) -> None:
    try:
        await publisher(channel).create_topic(name=topic_path(project, topic))
    except AlreadyExists:
        return  # an emulator that ran before this stack


async def _create_subscription(channel: grpc.aio.Channel, subscription: Subscription) -> None:
    try:
        await subscriber(channel).create_subscription(request=subscription)
    except AlreadyExists:
        return  # an emulator that ran before this stack
