"""How a notification moves from try to try: claimed, tried, given up, asked for again. Pure.

A try is on record before it is made, so a process that dies over one leaves it there as `unknown`,
and the next try begins when the claim has run out. Until then nobody else tries.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions.core.notifications import (
    KEPT_DELIVERIES,
    DeliveryRecord,
    Notification,
    NotificationState,
)
from functions.core.webhooks import WebhookAnswer, WebhookOutcome

MINUTE, HOUR = 60.0, 3600.0
# The schedule that the Standard Webhooks specification proposes, and a day more.
WAITS_SECONDS = (
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
MAX_TRIES = len(WAITS_SECONDS) + 1
LONGEST_HINT_SECONDS = 24 * HOUR
JITTER = 0.1  # upwards only
CLAIM_SECONDS = 30.0  # longer than a try: `EVENT_SECONDS` and the webhook's own limit together
RUNNING, UNKNOWN = "running", "unknown"
LEAST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 60.0, 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What a try came to; `webhook` is None when there was none to call."""

    webhook: WebhookAnswer | None
    event_published: bool


def is_due(notification: Notification, now: datetime) -> bool:
    """Whether a try may be made: nobody else is at one, and it is time."""
    pending = notification.state is NotificationState.PENDING
    return pending and (notification.due_at is None or notification.due_at <= now)


def calls_webhook(notification: Notification) -> bool:
    """Whether the webhook's part is still to be done."""
    return notification.url is not None and notification.webhook is None


def claimed(before: Notification, now: datetime) -> Notification:
    """Return the notification with a try begun; earlier ones that never ended are `unknown`."""
    until = now + timedelta(seconds=CLAIM_SECONDS)
    last = before.deliveries[-1].number if before.deliveries else 0
    begun = DeliveryRecord(number=last + 1, at=now, outcome=RUNNING)
    earlier = (
        replace(record, outcome=UNKNOWN) if record.outcome == RUNNING else record
        for record in before.deliveries
    )
    return replace(
        before,
        tries=before.tries + 1,
        due_at=until,
        next_at=until,
        deliveries=(*earlier, begun)[-KEPT_DELIVERIES:],
    )


def after_try(
    before: Notification, number: int, made: Made, now: datetime, jitter: float
) -> Notification | None:
    """Return the notification after try `number`; None when that try is not its last any more."""
    if not before.deliveries or before.deliveries[-1].number != number:
        return None
    webhook = _webhook_after(before, made.webhook)
    tried = replace(
        before,
        webhook=webhook,
        event_published=before.event_published or made.event_published,
        deliveries=(*before.deliveries[:-1], _ended(before.deliveries[-1], made)),
    )
    state = _state_of(tried)
    if state is not NotificationState.PENDING:
        delivered = before.delivered or state is NotificationState.DELIVERED
        return replace(tried, state=state, delivered=delivered, due_at=None, next_at=None)
    hint = made.webhook.hint_seconds if made.webhook else None
    due_at = now + timedelta(seconds=wait_seconds(before.tries, hint, jitter))
    return replace(tried, due_at=due_at, next_at=due_at)


def wait_seconds(tries: int, hint_seconds: float | None, jitter: float) -> float:
    """Return the seconds from a try that failed, the `tries`-th, to the next one.

    The receiver's hint makes it longer, never shorter. `jitter` is in [0, 1). `tries` is 0 when
    an operator asked for tries afresh while one was under way.
    """
    hint = min(hint_seconds or 0.0, LONGEST_HINT_SECONDS)
    return max(WAITS_SECONDS[max(tries, 1) - 1], hint) * (1 + JITTER * jitter)


def asked_again(before: Notification, now: datetime) -> Notification:
    """Return the notification as an operator sends it again: same ID, same bytes, tries afresh."""
    return replace(
        before,
        state=NotificationState.PENDING,
        event_published=False,
        webhook=None,
        tries=0,
        due_at=None,
        next_at=now + timedelta(seconds=LEAST_LOOK_SECONDS),
    )


def next_look(notification: Notification, now: datetime) -> datetime:
    """Return when repair looks again at one that it has just announced.

    Twice the time it has waited, within limits: a backlog is not announced again and again.
    """
    waited = (now - (notification.due_at or notification.created_at)).total_seconds()
    seconds = min(max(waited, LEAST_LOOK_SECONDS), LONGEST_LOOK_SECONDS)
    return now + timedelta(seconds=seconds)


def was_lost(notification: Notification) -> bool:
    """Whether one that is due lost its announcement or its sender: what is put off has neither."""
    last = notification.deliveries[-1] if notification.deliveries else None
    return notification.due_at is None if last is None else last.outcome == RUNNING


def _webhook_after(before: Notification, answer: WebhookAnswer | None) -> str | None:
    if answer is None or answer.outcome is WebhookOutcome.RETRYABLE:
        return before.webhook
    return answer.outcome.value


def _state_of(tried: Notification) -> NotificationState:
    if not tried.event_published or calls_webhook(tried):
        spent = tried.tries >= MAX_TRIES
        return NotificationState.FAILED if spent else NotificationState.PENDING
    if tried.webhook == WebhookOutcome.BLOCKED:
        return NotificationState.FAILED
    gone = tried.webhook == WebhookOutcome.GONE
    return NotificationState.GONE if gone else NotificationState.DELIVERED


def _ended(begun: DeliveryRecord, made: Made) -> DeliveryRecord:
    answer = made.webhook or _of_event(made.event_published)
    if not made.event_published and answer.outcome is WebhookOutcome.DELIVERED:
        answer = replace(answer, reason="event_not_published")
    return replace(
        begun,
        outcome=answer.outcome.value,
        reason=answer.reason,
        http_status=answer.http_status,
        latency_seconds=answer.latency_seconds,
        event=made.event_published,
    )


def _of_event(published: bool) -> WebhookAnswer:
    """Return what a try came to that had no webhook to call."""
    if published:
        return WebhookAnswer(outcome=WebhookOutcome.DELIVERED, reason="event_published")
    return WebhookAnswer(outcome=WebhookOutcome.RETRYABLE, reason="event_not_published")
