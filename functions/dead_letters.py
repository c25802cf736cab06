"""Messages that the topic gave up after many deliveries: recorded, and told to an operator.

A seat whose tries are spent is ended, so that its job closes and its notification goes out. Any
other open seat stays with its timers, which bring it back through the normal door. A message for
what has ended already changes nothing.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Any

from functions import telemetry
from functions.core.documents import from_snapshot, job_path, notification_path
from functions.core.errors import UnreadableRecord
from functions.core.jobs import Job
from functions.core.notifications import Notification
from functions.core.ports import Message
from functions.core.versions import THIS_MESSAGE
from functions.dispatch import SeatMessage
from functions.dispatch import decode as decode_seat
from functions.evaluation import Delivery, end_if_spent
from functions.incidents import open_incident, open_unreadable
from functions.outbox import decode as decode_notification
from functions.services import Services

# What Pub/Sub adds to a message that it forwards to a dead-letter topic.
SUBSCRIPTION = "CloudPubSubDeadLetterSourceSubscription"
DELIVERIES = "CloudPubSubDeadLetterSourceDeliveryCount"
PREVIEW_BYTES = 200


class Addressee(Enum):
    """What a dead letter was for, and how that stands."""

    FINISHED = "finished"  # what it was for has ended: nothing was changed
    ENDED = "ended"  # its seat could spend nothing more, and has ended now
    OPEN = "open"  # its seat or notification goes on by its timers
    UNKNOWN = "unknown"  # unreadable, or for nothing on record


@dataclass(frozen=True, kw_only=True, slots=True)
class _Letter:
    message: Message
    message_id: str | None
    digest: str

    @property
    def facts(self) -> dict[str, Any]:
        """What the incident keeps of the message: identities and how it came here."""
        attributes = self.message.attributes
        count = attributes.get(DELIVERIES, "")[:9]
        return {
            "digest": self.digest,
            "message_id": self.message_id,
            "subscription": attributes.get(SUBSCRIPTION),
            "deliveries": int(count) if count.isascii() and count.isdigit() else None,
        }


async def record_dead_letter(
    services: Services, message: Message, message_id: str | None
) -> Addressee:
    """Record one dead letter and end what it leaves spent. Safe to repeat: it may arrive twice.

    Raises:
        LedgerUnavailable: it is not certainly on record; the message must come again.
    """
    letter = _Letter(
        message=message, message_id=message_id, digest=hashlib.sha256(message.data).hexdigest()
    )
    try:
        addressee = await _take_up(services, letter)
    except UnreadableRecord as exc:
        if exc.where not in (None, THIS_MESSAGE):
            await open_unreadable(services, exc, letter.digest)
        await _record(services, letter, letter.digest, f"cannot be worked on: {exc}")
        addressee = Addressee.UNKNOWN
    telemetry.event(
        "dead letter", digest=letter.digest, addressee=addressee.value, **_names(message)
    )
    return addressee


async def _take_up(services: Services, letter: _Letter) -> Addressee:
    if "notification" in letter.message.attributes:
        return await _take_up_notification(services, letter)
    return await _take_up_seat(services, letter, decode_seat(letter.message))


async def _take_up_seat(services: Services, letter: _Letter, message: SeatMessage) -> Addressee:
    [found] = await services.ledger.get(job_path(message.job))
    job = from_snapshot(Job, found)
    already = job is None or job.run != message.run or job.state.is_terminal
    delivery = await end_if_spent(services, message)
    if job is None or delivery is Delivery.UNKNOWN_SEAT:
        await _record(services, letter, letter.digest, "there is no such job or seat")
        return Addressee.UNKNOWN
    if already:
        return Addressee.FINISHED
    cause = f"{message.job}.{message.run}.{message.seat}"
    ended = delivery is Delivery.ENDED
    detail = "its tries were spent: it has ended" if ended else "it goes on by its timers"
    seat = job.seats[message.seat].seat
    await _record(services, letter, cause, f"seat {seat}: {detail}", job=job, seat=seat)
    return Addressee.ENDED if ended else Addressee.OPEN


async def _take_up_notification(services: Services, letter: _Letter) -> Addressee:
    name = decode_notification(letter.message)
    decision, _, run = name.rpartition(".")
    [found] = await services.ledger.get(notification_path(decision, int(run)))
    notification = from_snapshot(Notification, found)
    if notification is None:
        await _record(services, letter, letter.digest, "there is no such notification")
        return Addressee.UNKNOWN
    if notification.next_at is None:
        return Addressee.FINISHED
    await open_incident(
        services,
        "dead_letter",
        name,
        tenant=notification.tenant,
        job_id=notification.job,
        owner=notification.owner,
        detail=f"notification {name}: it goes on by its timer",
        **letter.facts,
    )
    return Addressee.OPEN


async def _record(
    services: Services,
    letter: _Letter,
    cause: str,
    detail: str,
    *,
    job: Job | None = None,
    seat: str | None = None,
) -> None:
    preview = letter.message.data[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    facts = letter.facts | ({} if job else {"preview": preview})
    await open_incident(services, "dead_letter", cause, job=job, seat=seat, detail=detail, **facts)


def _names(message: Message) -> dict[str, str]:
    known = ("job", "run", "seat", "notification")
    return {name: value for name, value in message.attributes.items() if name in known}
