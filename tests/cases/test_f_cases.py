"""Cases F: notifications that get lost, lie, or open a door."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.adapters.webhook import HttpWebhooks
from functions.core.jobs import JobState
from functions.core.notifications import NotificationState
from functions.core.webhooks import WebhookAnswer, WebhookCall, WebhookOutcome
from functions.notification import notification_view
from functions.reports import build_report
from functions.statuses import job_view, read_status
from tests.cases.scenes import strike_next
from tests.contract.test_webhooks import connections
from tests.faults.invariants import broken
from tests.faults.notifying import DELIVERED, NotifyingWorld, failed
from tests.faults.processes import Fate, Moment, Strike
from tests.receiver import receiving, status

V1, V2 = ("whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"1", b"2"))
DIE_BEFORE = Strike(fate=Fate.DIE, moment=Moment.BEFORE)
DIE_AFTER = Strike(fate=Fate.DIE, moment=Moment.AFTER)


def real(world: NotifyingWorld, *secrets: str, **options: Any) -> None:
    """Let the world's processes call real receivers."""
    world.webhooks = HttpWebhooks(secrets or (V1,), **{"allow_loopback": True} | options)
    world.notifier = world.new_process("notify")


async def test_f01_rebinding_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """F01: a name that turns to the metadata server is blocked, and the job is as it was."""
    answers: list[Sequence[str]] = [["203.0.114.7"], ["169.254.169.254"]]

    async def resolve(_: str, __: int) -> Sequence[str]:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    tried = connections(monkeypatch)
    world = NotifyingWorld()
    real(world, resolve=resolve)
    job = await world.ended("https://rebind.example/hook")
    await world.settle()
    found = world.notification()
    assert (found.state, found.delivered) == (NotificationState.FAILED, False)
    assert [d.outcome for d in found.deliveries] == ["retryable", "blocked"]
    assert tried == ["203.0.114.7"]
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    [incident] = world.incidents()
    assert (incident["kind"], incident["job"]) == ("notification_lost", job.id)


async def test_f03_nothing_of_the_answer_is_kept() -> None:
    """F03: of 5 MB with a secret the ledger, the log of deliveries and the job show nothing."""
    async with receiving(status(500, body=b"SECRET" * 900_000)) as receiver:
        world = NotifyingWorld()
        real(world)
        job = await world.ended(receiver.url)
        await world.deliver_notifications()
    services = world.api.services
    shown = job_view(await read_status(services, job)), notification_view(world.notification())
    assert "SECRET" not in json.dumps(shown)
    assert "SECRET" not in repr(world.ledger.stored())
    [delivery] = world.notification().deliveries
    assert (delivery.http_status, delivery.reason) == (500, "server_error")


async def test_f04_every_try_has_the_same_id_and_bytes() -> None:
    """F04: 500, no answer, 200: three calls with one ID and the same bytes, each signed anew."""

    async def no_answer(*_: Any) -> None:
        return

    async with receiving(status(500), no_answer) as receiver:
        world = NotifyingWorld()
        real(world)
        job = await world.ended(receiver.url)
        await world.settle()
        first, second, third = receiver.received
    assert len({r.headers["webhook-id"] for r in (first, second, third)}) == 1
    assert first.headers["webhook-id"] == f"{job.decision_id}.1"
    assert first.body == second.body == third.body
    assert hashlib.sha256(first.body).hexdigest() == world.notification().body_sha256
    assert len({r.headers["webhook-timestamp"] for r in (first, second, third)}) == 3
    assert world.notification().state is NotificationState.DELIVERED


@pytest.mark.parametrize(
    ("call", "strike", "sent"),
    [
        ("evaluate: commit create terminals, create notifications, update jobs", DIE_AFTER, 1),
        ("evaluate: publish 1", DIE_BEFORE, 1),
        ("notify: get notifications", DIE_AFTER, 1),
        ("notify: commit update notifications", DIE_BEFORE, 1),
        ("notify: commit update notifications", DIE_AFTER, 1),
        ("notify: publish 1", DIE_BEFORE, 1),
        ("notify: publish 1", DIE_AFTER, 1),
        ("notify: webhook", DIE_BEFORE, 1),
        ("notify: webhook", DIE_AFTER, 2),
    ],
)
async def test_f05_a_crash_loses_no_notification(call: str, strike: Strike, sent: int) -> None:
    """F05: a crash at any line sends once, or after the call again under the same ID."""
    world = NotifyingWorld()
    strike_next(world, call, strike)
    job = await world.ended()
    await world.settle()
    assert [c.id for c in world.calls] == [f"{job.decision_id}.1"] * sent
    assert len({c.body for c in world.calls}) == 1
    assert world.notification().state is NotificationState.DELIVERED
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert len({event.attributes["ce-id"] for event in world.events()}) == 1
    assert broken(world) == {}
    assert [r["kind"] for r in repairs(world)].count("announced") == 1


def repairs(world: NotifyingWorld) -> list[dict[str, Any]]:
    return [d for p, d in world.ledger.stored().items() if p.startswith("repairs/")]


async def test_f05_two_at_once_send_once() -> None:
    """F05: the same announcement, delivered three times at once, is sent once."""
    world = NotifyingWorld()
    await world.ended()
    [message] = world.announcements()
    answers = await asyncio.gather(*(world.deliver_notification(message) for _ in range(3)))
    assert answers == [204, 204, 204]
    assert len(world.calls) == 1
    assert len(world.events()) == 1


@pytest.mark.parametrize(
    "title", ["\U0001f60a r\u00e9sum\u00e9", "re\u0301sume\u0301", "\ud83d alone", "\0"]
)
async def test_f07_no_text_breaks_a_notification(title: str) -> None:
    """F07: whatever the models or the request say, the call's bytes verify and count right."""
    world = NotifyingWorld()
    answer = world.provider.answer

    def odd(request: Any, number: int) -> Any:
        reply = answer(request, number)
        text = json.dumps({"rationale": title, "score": 5})
        return type(reply)(text=text, model_returned="m0-1", usage=reply.usage)

    world.provider.script = odd
    async with receiving() as receiver:
        real(world)
        await world.ended(receiver.url)
        await world.settle()
        [received] = receiver.received
    assert int(received.headers["content-length"]) == len(received.body)
    assert received.body.isascii()
    assert is_signed_by(received, V1)
    assert received.body == world.notification().body.encode()


async def test_f08_rotation_keeps_queued_deliveries_verifiable() -> None:
    """F08: queued under v1, retried under both, then under v2 alone; each try signed afresh."""
    world = NotifyingWorld()
    async with receiving(status(500), status(500), status(500)) as receiver:
        real(world, V1)
        await world.ended(receiver.url)
        await world.deliver_notifications()
        real(world, V2, V1)
        await next_try(world)
        real(world, V2)
        await next_try(world)
    first, both, last = receiver.received
    assert [len(r.headers["webhook-signature"].split()) for r in (first, both, last)] == [1, 2, 1]
    signed_by = [
        [secret for secret in (V1, V2) if is_signed_by(r, secret)] for r in (first, both, last)
    ]
    assert signed_by == [[V1], [V1, V2], [V2]]
    stamps = [int(r.headers["webhook-timestamp"]) for r in (first, both, last)]
    tried_at = [int(d.at.timestamp()) for d in world.notification().deliveries]
    assert all(0 <= stamp - at <= 1 for stamp, at in zip(stamps, tried_at, strict=True))
    assert stamps[2] - stamps[1] >= 300
    assert V1[6:] not in repr(world.ledger.stored())


def is_signed_by(received: Any, secret: str) -> bool:
    """Whether a signature by the secret, for the time in the headers, is among those sent."""
    signer = HttpWebhooks((secret,))
    at = datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC)
    call = WebhookCall(url="", id=received.headers["webhook-id"], body=received.body, at=at)
    return signer.signature(call) in received.headers["webhook-signature"].split()


async def next_try(world: NotifyingWorld) -> None:
    """Let the time of the next try come, and make it."""
    due_at = world.notification().due_at
    assert due_at is not None
    world.clock.advance((due_at - world.clock.now() + timedelta(seconds=1)).total_seconds())
    await world.repair()
    await world.deliver_notifications()


async def test_f10_the_receiver_sees_the_end() -> None:
    """F10: whoever asks inside the webhook request sees the terminal state and the object."""
    world = NotifyingWorld()
    seen: list[tuple[str, bool, bool]] = []

    class Asking:
        async def send(self, call: WebhookCall) -> WebhookAnswer:
            services = world.api.services
            job_id = json.loads(call.body)["data"]["job_id"]
            current = await read_status(services, world.jobs()[job_id])
            view = job_view(current)
            report = await build_report(services, current)
            uri = view["seats"][0]["output"]["uri"].removeprefix(world.objects.uri(""))
            stored = uri in world.objects.names()
            seen.append((view["state"], report["complete"], stored))
            assert view["terminal"]["state"] == view["state"]
            return DELIVERED

    world.webhooks = Asking()
    world.notifier = world.new_process("notify")
    await world.ended()
    await world.settle()
    assert seen == [("succeeded", True, True)]


@pytest.mark.parametrize(
    "error",
    [ValueError("bad URL"), OSError("no such name"), RuntimeError("JSON"), KeyError("x")],
    ids=repr,
)
async def test_f11_a_notifier_that_raises_changes_no_result(error: Exception) -> None:
    """F11: the push is answered 2xx, the job stays succeeded, the try is on record."""
    world = NotifyingWorld()
    job = await world.ended()
    before = world.terminals(job.id), dict(world.objects._objects)
    world.answers(error)
    assert await world.deliver_notifications() == [204]
    found = world.notification()
    assert (found.state, found.delivered) == (NotificationState.PENDING, False)
    assert found.deliveries[-1].reason == "internal_error"
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert before == (world.terminals(job.id), dict(world.objects._objects))
    await world.settle()
    assert world.notification().state is NotificationState.DELIVERED
    assert broken(world) == {}


async def test_f11_a_receiver_that_never_takes_it_is_given_up() -> None:
    """F11: after the last try the notification has failed, with one incident; the job stands."""
    world = NotifyingWorld()
    job = await world.ended()
    world.answers(*[failed()] * 30)
    await world.settle()
    found = world.notification()
    assert (found.state, found.tries, len(world.calls)) == (NotificationState.FAILED, 10, 10)
    assert [i["kind"] for i in world.incidents()] == ["notification_lost"]
    assert world.jobs()[job.id].state is JobState.SUCCEEDED


async def test_f11_gone_ends_it_at_once() -> None:
    """A 410 stops the tries, and calls no operator."""
    world = NotifyingWorld()
    await world.ended()
    world.answers(WebhookAnswer(outcome=WebhookOutcome.GONE, reason="gone", http_status=410))
    await world.settle()
    assert world.notification().state is NotificationState.GONE
    assert len(world.calls) == 1
    assert world.incidents() == []
