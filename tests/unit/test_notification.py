"""Deliveries of notifications: the ack table, claims, busy hosts, sending again."""

import asyncio
import json

import pytest

from functions.core.documents import notification_path
from functions.core.notifications import NotificationState
from functions.core.ports import Create, Message, Update
from functions.core.webhooks import WebhookAnswer, WebhookCall
from functions.incidents import resolve
from functions.notification import BUSY_AGAIN_SECONDS, Notified, find, notify, redeliver
from functions.web.notify_push import STATUS_OF
from tests.cases.scenes import strike_next
from tests.faults.invariants import broken
from tests.faults.notifying import DELIVERED, NotifyingWorld, failed
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import TENANT


def announcement(name: object, **changes: object) -> Message:
    return Message(data=json.dumps({"v": 1, "notification": name, **changes}).encode())


def test_every_outcome_is_acknowledged() -> None:
    """No outcome of a delivery is answered with an error: the ledger has the next try."""
    assert {outcome: STATUS_OF[outcome] for outcome in Notified} == dict.fromkeys(Notified, 204)


@pytest.mark.parametrize(
    "message",
    [
        Message(data=b"no JSON"),
        Message(data=b"[]"),
        announcement("dec_x.1", v=99),
        announcement(5),
        announcement("dec_x"),
        announcement("../jobs.1"),
        announcement("dec_unknown.1"),
    ],
)
async def test_what_nobody_can_deliver_is_recorded(message: Message) -> None:
    """An unreadable or unknown message is acked once its incident is on record."""
    world = NotifyingWorld()
    assert await world.deliver_notification(message) == 204
    assert [incident["kind"] for incident in world.incidents()] == ["unreadable_message"]


async def test_an_unreadable_record_is_an_incident() -> None:
    """A notification that lost its body is acked, and an operator is told."""
    world = NotifyingWorld()
    path = notification_path("dec_x", 1)
    await world.ledger.commit(Create(path=path, data={"v": 1, "state": "pending"}))
    assert await world.deliver_notification(announcement("dec_x.1")) == 204
    assert [incident["kind"] for incident in world.incidents()] == ["unreadable_record"]


@pytest.mark.parametrize("call", ["get notifications", "commit update notifications"])
@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
async def test_an_outage_of_the_ledger_is_nacked(call: str, moment: Moment) -> None:
    """503 brings the message back; the notification arrives in the end, under one ID."""
    world = NotifyingWorld()
    await world.ended()
    strike_next(world, f"notify: {call}", Strike(fate=Fate.FAIL, moment=moment))
    assert await world.deliver_notifications() == [503]
    await world.settle()
    assert world.notification().state is NotificationState.DELIVERED
    assert len({c.id for c in world.calls}) == 1
    assert broken(world) == {}


async def test_two_reconcilers_announce_once() -> None:
    """Of two repairs at once, one announces a lost notification, and records it."""
    world = NotifyingWorld()
    await world.ended()
    assert len(world.announcements()) == 1  # lost
    world.clock.advance(70.0)
    await asyncio.gather(world.repair(), world.repair())
    assert len(world.announcements()) == 1
    kinds = [d["kind"] for p, d in world.ledger.stored().items() if p.startswith("repairs/")]
    assert kinds == ["announced"]


async def test_an_event_that_fails_holds_up_no_webhook() -> None:
    """The webhook is called though the topic is away; the event follows, the call does not."""
    world = NotifyingWorld()
    job = await world.ended()
    strike_next(world, "notify: publish 1", Strike(fate=Fate.FAIL, moment=Moment.BEFORE), times=2)
    await world.deliver_notifications()
    found = world.notification()
    assert (found.state, found.webhook, found.event_published) == ("pending", "delivered", False)
    await world.settle()
    assert (len(world.calls), len(world.events())) == (1, 1)
    assert world.notification().delivered
    assert world.events()[0].attributes["ce-id"] == f"{job.decision_id}.1"


async def test_a_hint_is_kept_to() -> None:
    """`Retry-After` moves the next try; a delivery before it sends nothing."""
    world = NotifyingWorld()
    await world.ended()
    world.answers(failed(429, hint_seconds=1000.0))
    [message] = world.announcements()
    await world.deliver_notification(message)
    due_at = world.notification().due_at
    assert due_at is not None
    assert 995 <= (due_at - world.clock.now()).total_seconds() <= 1000
    assert await world.deliver_notification(message) == 204
    assert len(world.calls) == 1


async def test_a_busy_host_is_put_off_and_others_go_on() -> None:
    """With all slots of a host taken the delivery is put off, unclaimed, and counts as no try."""
    release = asyncio.Event()

    class Hanging:
        def __init__(self) -> None:
            self.calls: list[WebhookCall] = []

        async def send(self, call: WebhookCall) -> WebhookAnswer:
            self.calls.append(call)
            if "slow" in call.url:
                await release.wait()
            return DELIVERED

    world = NotifyingWorld(request_slots=4)
    world.webhooks = hanging = Hanging()
    world.notifier = world.new_process("notify")
    for number in range(10):
        await world.ended("https://slow.example/", key=f"slow{number}", question=f"s{number}")
    names = [n.id for n in world.notifications()]
    services = world.notifier.services
    stuck = [asyncio.create_task(notify(services, name)) for name in names[:8]]
    while len(hanging.calls) < 8:  # noqa: ASYNC110 - over steps that tell nobody
        await asyncio.sleep(0)
    waiting = asyncio.create_task(notify(services, names[8]))  # the one place to wait
    while not services.hosts._waiting:  # noqa: ASYNC110 - over steps that tell nobody
        await asyncio.sleep(0)
    assert await notify(services, names[9]) is Notified.DEFERRED
    put_off = next(n for n in world.notifications() if n.id == names[9])
    assert (put_off.tries, put_off.deliveries) == (0, ())
    assert put_off.next_at == put_off.due_at
    assert put_off.due_at is not None
    left = (put_off.due_at - world.clock.now()).total_seconds()
    assert left == pytest.approx(BUSY_AGAIN_SECONDS, abs=0.1)
    job = await world.ended("https://quick.example/", key="quick", question="quick")
    assert await notify(services, f"{job.decision_id}.1") is Notified.ENDED
    release.set()
    assert await asyncio.gather(*stuck, waiting) == [Notified.ENDED] * 9


async def test_sent_again_with_the_same_bytes() -> None:
    """An operator's redelivery sends what failed under the same ID, from the first wait on."""
    world = NotifyingWorld()
    await world.ended()
    world.answers(*[failed()] * 10)
    await world.settle()
    name = world.notification().id
    services = world.api.services
    assert await redeliver(services, "other", name, by="me") is None
    assert (await find(services, "other", name))[1] is None
    assert world.notification().state is NotificationState.FAILED
    again = await redeliver(services, TENANT, name, by="me")
    assert again is not None
    assert (again.state, again.tries) == (NotificationState.PENDING, 0)
    await world.deliver_notifications()
    found = world.notification()
    assert (found.state, found.delivered) == (NotificationState.DELIVERED, True)
    assert len({(c.id, c.body) for c in world.calls}) == 1
    assert [record.number for record in found.deliveries] == list(range(1, 12))


async def test_a_change_meanwhile_is_decided_again() -> None:
    """A record that moved while the call was made gets the call's result all the same."""
    world = NotifyingWorld()
    job = await world.ended()
    path = notification_path(job.decision_id, 1)

    class Moving:
        async def send(self, _: WebhookCall) -> WebhookAnswer:
            await world.ledger.commit(Update(path=path, fields={"owner": "another"}))
            return DELIVERED

    world.webhooks = Moving()
    world.notifier = world.new_process("notify")
    assert await world.deliver_notifications() == [204]
    found = world.notification()
    assert (found.owner, found.state) == ("another", NotificationState.DELIVERED)


async def test_a_message_that_comes_again_meanwhile_sends_nothing() -> None:
    """While a call is under way, and after it, the same message is acked without another call."""
    release, calls = asyncio.Event(), []

    class Slow:
        async def send(self, call: WebhookCall) -> WebhookAnswer:
            calls.append(call)
            await release.wait()
            return DELIVERED

    world = NotifyingWorld()
    world.webhooks = Slow()
    world.notifier = world.new_process("notify")
    await world.ended()
    [message] = world.announcements()
    first = asyncio.create_task(world.deliver_notification(message))
    while not calls:  # noqa: ASYNC110 - over steps that tell nobody
        await asyncio.sleep(0)
    assert await world.deliver_notification(message) == 204
    release.set()
    assert await first == 204
    assert await world.deliver_notification(message) == 204
    assert len(calls) == 1


async def test_a_notification_lost_again_opens_its_incident_again() -> None:
    """Resolved, sent again by an operator, and given up again: it is open, under one identity."""
    world = NotifyingWorld()
    await world.ended()
    world.answers(*[failed()] * 20)
    await world.settle()
    [path] = [path for path in world.ledger.stored() if path.startswith("incidents/")]
    services, name = world.api.services, world.notification().id
    assert await resolve(services, [TENANT], path.partition("/")[2], "mended", "me") is not None
    await redeliver(services, TENANT, name, by="me")
    assert [incident["status"] for incident in world.incidents()] == ["resolved"]
    await world.settle()
    [incident] = world.incidents()
    assert (incident["status"], incident["note"]) == ("open", "mended")
    assert incident["opened_at"] > incident["resolved_at"]
