"""A world that also delivers its notifications: a `notify` process, and receivers that it calls."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from functions.core.documents import from_document
from functions.core.jobs import Job
from functions.core.notifications import Notification
from functions.core.ports import Message, Webhooks
from functions.core.webhooks import WebhookAnswer, WebhookCall, WebhookOutcome
from functions.web.notify_push import answer_notify
from tests.faults.processes import Process, Strike
from tests.faults.world import World, _application, _push, submission

NOTIFY_TOPIC, EVENTS_TOPIC = "empanel-notify", "empanel-events"
URL = "https://example.com/hook"
DELIVERED = WebhookAnswer(outcome=WebhookOutcome.DELIVERED, reason="accepted", http_status=200)


def failed(http_status: int = 500, **fields: Any) -> WebhookAnswer:
    """Return a failed call that may be tried again."""
    values: dict[str, Any] = {"outcome": WebhookOutcome.RETRYABLE, "reason": "server_error"}
    return WebhookAnswer(**values | {"http_status": http_status} | fields)


class FakeWebhooks:
    """Keeps the calls that reached the receiver; answers by a script, then with success."""

    def __init__(self) -> None:
        self.calls: list[WebhookCall] = []
        self.script: list[WebhookAnswer | Exception] = []

    async def send(self, call: WebhookCall) -> WebhookAnswer:
        """Take the call."""
        self.calls.append(call)
        answer = self.script.pop(0) if self.script else DELIVERED
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True, kw_only=True)
class DyingWebhooks:
    """A process's way to the receivers."""

    process: Process
    inner: Webhooks

    async def send(self, call: WebhookCall) -> WebhookAnswer:
        return await self.process.through(
            "webhook", lambda: self.inner.send(call), lambda _: failed()
        )


class NotifyingWorld(World):
    """A world whose announcements are delivered too; see `settle`."""

    def __init__(self, strikes: Mapping[int, Strike] | None = None, **options: Any) -> None:
        self.webhooks: Webhooks = FakeWebhooks()
        self._announced = 0
        super().__init__(strikes, **options)
        self.notifier = self.new_process("notify")

    @property
    def calls(self) -> list[WebhookCall]:
        """The calls that reached the fake receiver."""
        assert isinstance(self.webhooks, FakeWebhooks)
        return self.webhooks.calls

    def answers(self, *script: WebhookAnswer | Exception) -> None:
        """Let the fake receiver give these answers in order."""
        assert isinstance(self.webhooks, FakeWebhooks)
        self.webhooks.script = list(script)

    def new_process(self, name: str) -> Process:
        """Return a fresh process whose receivers are the world's."""
        process = super().new_process(name)
        webhooks = DyingWebhooks(process=process, inner=self.webhooks)
        process.services = replace(process.services, webhooks=webhooks)
        return process

    def _replace(self, process: Process) -> None:
        super()._replace(process)
        if process is getattr(self, "notifier", None):
            self.notifier = self.new_process("notify")

    async def ended(self, url: str | None = URL, **asked: Any) -> Job:
        """Submit a job with a webhook and let it end; its notification waits."""
        job = await self.submit(replace(submission(**asked), notify_url=url))
        await self.deliver_all()
        return self.jobs()[job.id]

    def announcements(self) -> list[Message]:
        """Take what was announced since the last time."""
        published = self.topics.messages(NOTIFY_TOPIC)
        fresh, self._announced = published[self._announced :], len(published)
        return fresh

    async def deliver_notification(self, message: Message) -> int | None:
        """Push one announcement; the status, None when the process died over it."""
        work = answer_notify(_application(self.notifier), _push(message))
        task = await self.run(self.notifier, work)
        return None if task is None else task.result().status_code

    async def deliver_notifications(self) -> list[int | None]:
        """Push what was announced, all at once; what is not acked is left to repair."""
        fresh = self.announcements()
        return list(await asyncio.gather(*map(self.deliver_notification, fresh)))

    async def settle(self, rounds: int = 400, step_seconds: float = 20.0) -> None:
        """Deliver, pass the time and repair until no notification has a timer."""
        for _ in range(rounds):
            await self.finish()
            await self.deliver_notifications()
            timers = [n.next_at for n in self.notifications() if n.next_at is not None]
            if not timers:
                return
            wait = (min(timers) - self.clock.now()).total_seconds()
            self.clock.advance(max(step_seconds, wait))
            await self.repair()
        raise AssertionError("a notification is never ended")

    def notifications(self) -> list[Notification]:
        """Return all notifications."""
        return [
            from_document(Notification, data, path)
            for path, data in self.ledger.stored().items()
            if path.startswith("notifications/")
        ]

    def notification(self) -> Notification:
        """Return the only notification."""
        [found] = self.notifications()
        return found

    def events(self) -> list[Message]:
        """Return the events that were published."""
        return self.topics.messages(EVENTS_TOPIC)
