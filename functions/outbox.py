"""The outbox: a notification is created in the commit that closes its run, and announced after it.

The message only hurries: what it does not bring to `notify` is found by repair through `next_at`.
"""

import json
from datetime import timedelta

from functions import telemetry
from functions.core.documents import notification_path, to_document
from functions.core.errors import PublishFailed, UnreadableRecord
from functions.core.identities import is_identity
from functions.core.jobs import Job, Terminal
from functions.core.notifications import Notification, new_notification
from functions.core.ports import Create, Message
from functions.core.versions import EVENT, NOTIFICATION_MESSAGE, THIS_MESSAGE
from functions.services import Services

FIRST_CHECK_SECONDS = 60.0


def notification_of(services: Services, job: Job, terminal: Terminal) -> Create:
    """Return the write that creates the notification of a run's end."""
    seconds = min(FIRST_CHECK_SECONDS, services.settings.repair_seconds)
    notification = new_notification(
        job, terminal, services.clock.now() + timedelta(seconds=seconds)
    )
    path = notification_path(notification.decision, notification.run)
    return Create(path=path, data=to_document(notification))


async def announce(services: Services, job: Job, terminal: Terminal) -> None:
    """Publish that a notification waits; a failure is left to repair."""
    await _announce(services, f"{terminal.decision_id}.{terminal.run}", job.traceparent)


async def announce_again(services: Services, notification: Notification) -> None:
    """Publish that a notification waits again; a failure is left to repair."""
    await _announce(services, notification.id, notification.traceparent)


async def _announce(services: Services, name: str, traceparent: str | None) -> None:
    try:
        await publish(services, name, traceparent)
    except PublishFailed as exc:
        telemetry.warning("notification not announced", notification=name, error=str(exc)[:300])


async def publish(services: Services, name: str, traceparent: str | None) -> None:
    """Publish the message that brings a notification to `notify`.

    Raises:
        PublishFailed: it was not confirmed.
    """
    body = json.dumps({"v": NOTIFICATION_MESSAGE.written, "notification": name}).encode()
    attributes = {"notification": name} | ({"traceparent": traceparent} if traceparent else {})
    message = Message(data=body, attributes=attributes)
    await services.publisher.publish(services.settings.notify_topic, [message])


async def publish_event(services: Services, notification: Notification) -> None:
    """Publish a notification as a CloudEvent on the events' topic.

    Raises:
        PublishFailed: it was not confirmed.
    """
    event = event_message(notification, services.settings.project)
    await services.publisher.publish(services.settings.events_topic, [event])


def event_message(notification: Notification, project: str) -> Message:
    """Return a notification as a CloudEvent: the webhook's bytes, the context as attributes.

    Source: CloudEvents 1.0, Google Cloud Pub/Sub protocol binding, binary content mode.
    """
    content = json.loads(notification.body)
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": notification.id,
        "ce-type": content["type"],
        "ce-source": f"//empanel/projects/{project}",
        "ce-dataschema": f"urn:empanel:event:{EVENT.written}",
        "ce-subject": notification.job,
        "ce-time": content["timestamp"],
        "content-type": "application/json",
    }
    if notification.traceparent:
        attributes |= {
            "ce-traceparent": notification.traceparent,
            "traceparent": notification.traceparent,
        }
    return Message(data=notification.body.encode(), attributes=attributes)


def decode(message: Message) -> str:
    """Return the name of the notification that a message is about.

    Raises:
        UnreadableRecord: it is no such message of a version that is read.
    """
    try:
        body = json.loads(message.data)
    except (ValueError, RecursionError) as exc:
        raise UnreadableRecord("the message's data is not JSON") from exc
    if not isinstance(body, dict):
        raise UnreadableRecord("the message's data is no object")
    body = NOTIFICATION_MESSAGE.read(body, THIS_MESSAGE)
    name = body.get("notification")
    decision, _, run = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if not is_identity(decision) or not run.isdigit() or not run.isascii():
        raise UnreadableRecord("the message names no notification")
    return f"{decision}.{run}"
