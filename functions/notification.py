"""One delivery of a notification: claim, publish the event, call the webhook, record.

    read -> claim (next_at moves forward) -> event, webhook -> record

Nothing here touches the job: whatever a receiver or a topic does, the run's end stays as it is. The
claim keeps two workers from sending at once; one that dies after it is followed by another when the
claim has run out, under the same ID and with the same bytes.
"""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from functions import telemetry
from functions.core.deliveries import (
    Made,
    after_try,
    asked_again,
    calls_webhook,
    claimed,
    is_due,
)
from functions.core.documents import changes, from_snapshot
from functions.core.errors import PublishFailed, WriteConflict
from functions.core.notifications import Notification, NotificationState
from functions.core.ports import Snapshot, Update, Write
from functions.core.times import timestamp
from functions.core.webhooks import WebhookAnswer, WebhookCall, WebhookOutcome
from functions.incidents import open_incident
from functions.operator_log import log_entry
from functions.outbox import announce_again, publish_event
from functions.services import Services

EVENT_SECONDS = 5.0
HOST_WAIT_SECONDS = 5.0
BUSY_AGAIN_SECONDS = 5.0


class Notified(StrEnum):
    """What a delivery came to."""

    ENDED = "ended"  # delivered, given up, or so before this delivery
    DEFERRED = "deferred"  # due later, or another worker is at it: `next_at` has it
    UNKNOWN = "unknown"  # there is no such notification


async def notify(services: Services, name: str) -> Notified:
    """Make one try of a notification, if one is due.

    Raises:
        LedgerUnavailable: no answer, or it is not certain that the try is on record.
    """
    found, notification = await _read(services, name)
    if notification is None:
        return Notified.UNKNOWN
    if not is_due(notification, found.read_time):
        pending = notification.state is NotificationState.PENDING
        return Notified.DEFERRED if pending else Notified.ENDED
    if not calls_webhook(notification):
        return await _deliver(services, notification, found)
    host = urlsplit(notification.url or "").netloc
    async with services.hosts.slot(host, HOST_WAIT_SECONDS) as free:
        if free:
            return await _deliver(services, notification, found)
    await _put_off(services, found)
    return Notified.DEFERRED


async def redeliver(services: Services, tenant: str, name: str, *, by: str) -> Notification | None:
    """Let a tenant's notification be sent again; None when there is none.

    `by` is the name of who asked for it.

    Raises:
        LedgerUnavailable: it is not certain that it will be.
    """
    while True:
        found, notification = await find(services, tenant, name)
        if notification is None:
            return None
        after = asked_again(notification, found.read_time)
        log = log_entry(
            services,
            tenant=tenant,
            who=by,
            what="redeliver",
            job=notification.job,
            notification=name,
        )
        try:
            await _move(services, found, notification, after, log)
        except WriteConflict:
            continue
        telemetry.event("notification asked for again", notification=name)
        await announce_again(services, after)
        return after


async def find(services: Services, tenant: str, name: str) -> tuple[Snapshot, Notification | None]:
    """Return a tenant's notification; None for unknown and foreign ones alike.

    Raises:
        LedgerUnavailable: no answer.
    """
    found, notification = await _read(services, name)
    known = notification is not None and notification.tenant == tenant
    return found, notification if known else None


def notification_view(notification: Notification) -> dict[str, Any]:
    """Return a notification as the interface shows it; nothing of what a receiver answered."""
    return {
        "id": notification.id,
        "job_id": notification.job,
        "run": notification.run,
        "decision_id": notification.decision,
        "url": notification.url,
        "state": notification.state.value,
        "delivered": notification.delivered,
        "event_published": notification.event_published,
        "webhook": notification.webhook,
        "tries": notification.tries,
        "next_at": timestamp(notification.next_at),
        "created_at": timestamp(notification.created_at),
        "body": notification.body,
        "body_sha256": notification.body_sha256,
        "deliveries": [
            {
                "number": record.number,
                "at": timestamp(record.at),
                "outcome": record.outcome,
                "reason": record.reason,
                "http_status": record.http_status,
                "latency_seconds": record.latency_seconds,
                "event_published": record.event,
            }
            for record in notification.deliveries
        ],
    }


async def _read(services: Services, name: str) -> tuple[Snapshot, Notification | None]:
    [found] = await services.ledger.get(f"notifications/{name}")
    services.clock.observe(found.read_time)
    return found, from_snapshot(Notification, found)


async def _deliver(services: Services, before: Notification, found: Snapshot) -> Notified:
    """Claim, try and record. Whoever made the claim fail sends, or has announced it again."""
    claim = claimed(before, found.read_time)
    try:
        held_since = await _move(services, found, before, claim)
    except WriteConflict:
        return Notified.DEFERRED
    made = Made(
        event_published=claim.event_published or await _publish(services, claim),
        webhook=await _call(services, claim) if calls_webhook(claim) else None,
    )
    return await _record(services, replace(found, update_time=held_since), claim, made)


async def _publish(services: Services, notification: Notification) -> bool:
    """Publish the event; a failure is tried again with the next try."""
    try:
        async with asyncio.timeout(EVENT_SECONDS):
            await publish_event(services, notification)
    except (PublishFailed, TimeoutError) as exc:
        telemetry.warning(
            "event not published", notification=notification.id, error=repr(exc)[:300]
        )
        return False
    return True


async def _call(services: Services, notification: Notification) -> WebhookAnswer:
    call = WebhookCall(
        url=notification.url or "",
        id=notification.id,
        body=notification.body.encode(),
        at=services.clock.now(),
    )
    try:
        return await services.webhooks.send(call)
    except Exception as exc:  # noqa: BLE001 - whatever a sender raises is a try that failed
        telemetry.error("webhook not sent", exc=exc, notification=notification.id)
        return WebhookAnswer(outcome=WebhookOutcome.RETRYABLE, reason="internal_error")


async def _record(services: Services, found: Snapshot, claim: Notification, made: Made) -> Notified:
    """Write down what the claimed try came to, unless a later one has begun meanwhile."""
    number = claim.deliveries[-1].number
    before: Notification | None = claim
    while before is not None:
        now = services.clock.now()
        after = after_try(before, number, made, now, services.jitter())
        if after is None:
            break
        try:
            await _move(services, found, before, after)
        except WriteConflict:
            found, before = await _read(services, claim.id)
            continue
        await _tell(services, after)
        pending = after.state is NotificationState.PENDING
        return Notified.DEFERRED if pending else Notified.ENDED
    return Notified.DEFERRED


async def _tell(services: Services, after: Notification) -> None:
    last = after.deliveries[-1]
    services.metrics.notification_tried(last.outcome)
    if last.number > 1 or after.state is not NotificationState.DELIVERED:  # else it is no news
        telemetry.event(
            "notification tried",
            notification=after.id,
            job=after.job,
            owner=after.owner,
            state=after.state.value,
            number=last.number,
            outcome=last.outcome,
            reason=last.reason,
            http_status=last.http_status,
        )
    if after.state is NotificationState.FAILED and not after.delivered:
        await open_incident(
            services,
            "notification_lost",
            after.id,
            job_id=after.job,
            tenant=after.tenant,
            owner=after.owner,
            again=True,
            detail=f"the notification {after.id} did not arrive: {last.outcome} ({last.reason})",
        )


async def _put_off(services: Services, found: Snapshot) -> None:
    """Let repair announce it again in a moment: too many calls to its host are under way."""
    again = found.read_time + timedelta(seconds=BUSY_AGAIN_SECONDS * (1 + services.jitter()))
    fields = {"next_at": again, "due_at": again}
    update = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        telemetry.event("notification moved meanwhile", path=found.path)


async def _move(
    services: Services,
    found: Snapshot,
    before: Notification,
    after: Notification,
    *others: Write,
) -> datetime:
    """Write what has changed since `found`, and `others` with it; return the commit's time."""
    fields = changes(before, after)
    update = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    return await services.ledger.commit(update, *others)
