"""What a Pub/Sub push delivery is: the envelope, the ack table, the backoff (pure, no I/O).

Source: the Pub/Sub documentation, "Push subscriptions".
"""

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

from google.pubsub_v1.types import ReceivedMessage

ACK_STATUSES = frozenset({102, 200, 201, 202, 204})
"""All other statuses, and a connection that ends without one, are a nack."""


def acknowledges(status: int) -> bool:
    """Whether an HTTP status acknowledges the message."""
    return status in ACK_STATUSES


def envelope(received: ReceivedMessage, subscription: str) -> bytes:
    """The JSON body of a push request; each ID and time appears under both of its names."""
    message = received.message
    published = _rfc3339(received)
    content: dict[str, Any] = {
        "messageId": message.message_id,
        "message_id": message.message_id,
        "publishTime": published,
        "publish_time": published,
    }
    if message.data:
        content["data"] = base64.b64encode(message.data).decode()
    if message.attributes:
        content["attributes"] = dict(message.attributes)
    body: dict[str, Any] = {"message": content, "subscription": subscription}
    if received.delivery_attempt:
        body["deliveryAttempt"] = received.delivery_attempt
    return json.dumps(body).encode()


def _rfc3339(received: ReceivedMessage) -> str:
    # The message's wrapper turns its timestamps into datetimes, which its annotation does not say.
    published: Any = received.message.publish_time
    return str(published.rfc3339())


@dataclass(frozen=True, kw_only=True)
class PushBackoff:
    """How long one subscription pauses after nacks; it stops **all** its messages, as Pub/Sub does.

    Pub/Sub goes from 100 ms to 60 s; here the longest pause is 10 s, so that a person who repairs
    something locally does not wait a minute to see it work. Times are monotonic seconds.
    """

    shortest_seconds: float = 0.1
    longest_seconds: float = 10.0
    pause_seconds: float = 0.0
    open_at: float = 0.0

    def after_nack(self, now: float) -> "PushBackoff":
        """Double the pause; nacks that arrive during a pause belong to the one before it."""
        if now < self.open_at:
            return self
        pause = min(self.longest_seconds, max(self.shortest_seconds, 2 * self.pause_seconds))
        return replace(self, pause_seconds=pause, open_at=now + pause)

    def after_ack(self) -> "PushBackoff":
        """Halve the pause; one that would fall below the shortest is over."""
        if self.pause_seconds == 0:
            return self
        pause = self.pause_seconds / 2
        return replace(self, pause_seconds=pause if pause >= self.shortest_seconds else 0.0)

    def remaining_seconds(self, now: float) -> float:
        """How long the subscription stays closed from now on."""
        return max(0.0, self.open_at - now)
