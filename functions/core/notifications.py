"""Notifications: that a run ended, told to its webhook and on the events' topic. Pure.

    pending --delivered--> delivered
       |----- 410 -------> gone      the receiver wants no more
       \\--- tries spent --> failed    an incident; an operator may send it again

A notification is a hint, never the result: a receiver asks for the job. Its bytes are made once, in
the commit that closes the run, and are the same at every try.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from functions.core import versions
from functions.core.identities import shard_of
from functions.core.jobs import Job, Terminal
from functions.core.times import rfc3339

KEPT_DELIVERIES = 20


class NotificationState(StrEnum):
    """How far a notification is; all but the first are final until an operator sends it again."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRecord:
    """One try to deliver, on record before it is made: what came back, never what was in it.

    `outcome` is `running`, `unknown` (the process died over it), or a `WebhookOutcome`. `reason` is
    one of a few fixed words. `event` says whether the event was published in this try.
    """

    number: int
    at: datetime
    outcome: str
    reason: str | None = None
    http_status: int | None = None
    latency_seconds: float | None = None
    event: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """One notification, named `decision.run`.

    `next_at` is when repair looks; it is there while the notification is pending. `due_at` is until
    when no try is made: the end of a claim, or the time of the next try. `webhook` is how the
    webhook's part ended, `event_published` the event's. `delivered` stays once it was true.
    """

    tenant: str
    window: str
    job: str
    run: int
    decision: str
    owner: str
    created_at: datetime
    expire_at: datetime
    body: str
    body_sha256: str
    url: str | None = None
    state: NotificationState = NotificationState.PENDING
    delivered: bool = False
    event_published: bool = False
    webhook: str | None = None
    tries: int = 0
    next_at: datetime | None = None
    due_at: datetime | None = None
    shard: int = 0
    deliveries: tuple[DeliveryRecord, ...] = ()
    traceparent: str | None = None
    v: int = versions.NOTIFICATION.written

    @property
    def id(self) -> str:
        """The notification's ID, which receivers see as `webhook-id`."""
        return f"{self.decision}.{self.run}"


def new_notification(job: Job, terminal: Terminal, first_check: datetime) -> Notification:
    """Return the notification of a run that is being closed; repair looks at `first_check`."""
    body = notification_body(terminal)
    return Notification(
        tenant=job.tenant,
        window=terminal.window,
        job=job.id,
        run=terminal.run,
        decision=terminal.decision_id,
        owner=job.owner,
        created_at=terminal.completed_at,
        expire_at=job.expire_at,
        body=body,
        body_sha256=hashlib.sha256(body.encode()).hexdigest(),
        url=job.notify_url,
        next_at=first_check,
        shard=shard_of(terminal.decision_id),
        traceparent=job.traceparent,
    )


def notification_body(terminal: Terminal) -> str:
    """Return the JSON that a receiver gets: ASCII only, so that no reader miscounts its bytes."""
    data = {
        "job_id": terminal.job,
        "run": terminal.run,
        "decision_id": terminal.decision_id,
        "state": terminal.state.value,
    }
    content = {
        "type": f"job.{terminal.state.value}",
        "timestamp": rfc3339(terminal.completed_at),
        "data": data,
    }
    return json.dumps(content, separators=(",", ":"))
