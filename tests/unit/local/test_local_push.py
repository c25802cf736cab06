"""The bridge's view of a push delivery: ack table, envelope, backoff."""

import base64
import json
from datetime import UTC, datetime

import pytest
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from infra.local.push import PushBackoff, acknowledges, envelope

SUBSCRIPTION = "projects/p/subscriptions/s"


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_the_five_documented_statuses_acknowledge(status: int) -> None:
    """A message answered with one of Pub/Sub's ack statuses is done."""
    assert acknowledges(status)


@pytest.mark.parametrize("status", [203, 206, 301, 302, 400, 401, 404, 409, 429, 500, 503, 599])
def test_every_other_status_is_a_nack(status: int) -> None:
    """Redirects, client errors and server errors all bring the message back."""
    assert not acknowledges(status)


def _received(data: bytes = b"hello", attempt: int = 0, **attributes: str) -> ReceivedMessage:
    published = datetime(2026, 11, 29, 12, 0, 1, 123_000, tzinfo=UTC)
    message = PubsubMessage(
        data=data, attributes=attributes, message_id="7", publish_time=published
    )
    return ReceivedMessage(message=message, ack_id="a", delivery_attempt=attempt)


def test_the_envelope_carries_the_message_under_both_spellings() -> None:
    """Functions may read `messageId` or `message_id`, `publishTime` or `publish_time`."""
    body = json.loads(envelope(_received(attempt=3, traceparent="00-ab"), SUBSCRIPTION))
    assert body == {
        "message": {
            "data": base64.b64encode(b"hello").decode(),
            "attributes": {"traceparent": "00-ab"},
            "messageId": "7",
            "message_id": "7",
            "publishTime": "2026-11-29T12:00:01.123Z",
            "publish_time": "2026-11-29T12:00:01.123Z",
        },
        "subscription": SUBSCRIPTION,
        "deliveryAttempt": 3,
    }


def test_the_envelope_leaves_out_what_the_message_does_not_have() -> None:
    """No data, no attributes and no attempt count appear as absent, not as empty values."""
    body = json.loads(envelope(_received(data=b""), SUBSCRIPTION))
    assert "deliveryAttempt" not in body
    assert not {"data", "attributes"} & set(body["message"])


def test_the_pause_doubles_from_a_tenth_of_a_second_up_to_ten_seconds() -> None:
    """Repeated nacks slow the subscription down exponentially, within the documented bounds."""
    backoff, pauses, now = PushBackoff(), [], 100.0
    for _ in range(9):
        backoff = backoff.after_nack(now)
        pauses.append(backoff.pause_seconds)
        now = backoff.open_at
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_nacks_during_a_pause_do_not_lengthen_it() -> None:
    """Forty messages refused at once count as one bad moment."""
    once = PushBackoff().after_nack(100.0)
    assert once.after_nack(100.05) == once
    assert once.remaining_seconds(100.05) == pytest.approx(0.05)


def test_acks_bring_the_pause_back_to_nothing() -> None:
    """A subscription that is answered well again is soon at full speed."""
    backoff = PushBackoff(pause_seconds=0.3)
    assert backoff.after_ack().pause_seconds == pytest.approx(0.15)
    assert backoff.after_ack().after_ack().pause_seconds == 0
