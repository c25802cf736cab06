"""Repair under load: what fails or waits at the head of a page hides nothing behind it."""

from datetime import timedelta
from typing import Any

import pytest

from functions import reconciliation
from functions.core.documents import evaluation_path
from functions.core.errors import ObjectsUnavailable
from functions.core.jobs import JobState
from functions.core.ports import Update
from functions.notification import redeliver
from functions.purging import purge
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld, failed
from tests.faults.world import TOPIC, World, submission


async def lost_job(world: World, key: str) -> Any:
    """Return a job whose message is lost, in the shard of all others here."""
    job = await world.submit(submission(question=key, key=key))
    world.drop_messages()
    await world.ledger.commit(Update(path=f"jobs/{job.id}", fields={"shard": 0}))
    return job


@pytest.mark.parametrize("kind", ["purged", "unreadable", "closed twice", "no such seat"])
async def test_records_that_fail_hide_no_other(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page full of records that cannot be repaired stands back, and the next ones have a turn."""
    assert reconciliation._due.__kwdefaults__ is not None
    monkeypatch.setitem(reconciliation._due.__kwdefaults__, "limit", 3)
    world = World()
    for number in range(4):
        job = await lost_job(world, f"bad{number}")
        await spoil(world, kind, job)
    good = await lost_job(world, "good")
    last = {"check_at": world.clock.now() + timedelta(seconds=3600)}
    await world.ledger.commit(Update(path=f"jobs/{good.id}", fields=last))
    world.clock.advance(3700.0)
    for _ in range(6):
        await world.repair()
    assert world.ledger.stored()[f"jobs/{good.id}"]["state"] == JobState.EXPIRED


async def spoil(world: World, kind: str, job: Any) -> None:
    """Let repair fail over a job, each time it looks at it."""
    stored = world.ledger.stored()
    if kind == "purged":
        await world.cancel(job)
        await world.repair()
        await purge(world.api.services, world.jobs()[job.id], by="operator")

        async def refused(*_: object) -> Any:
            raise ObjectsUnavailable("403")

        left = {"purged_inputs": [{"name": "inputs/x", "generation": 1}]}
        await world.ledger.commit(Update(path=f"jobs/{job.id}", fields=left))
        world.objects.delete = refused  # type: ignore[method-assign, assignment]
    elif kind == "unreadable":
        del stored[f"jobs/{job.id}"]["seats"]
    elif kind == "closed twice":  # a terminal record, and a head that was restored from before
        head = dict(stored[f"jobs/{job.id}"])
        await world.cancel(job)
        await world.ledger.commit(Update(path=f"jobs/{job.id}", fields=head))
    else:
        head = {"deadline_at": world.clock.now() + timedelta(days=1), "seats": []}
        await world.ledger.commit(Update(path=f"jobs/{job.id}", fields=head))


async def test_a_backlog_of_due_retries_is_published_ever_more_rarely() -> None:
    """With no worker for four hours a due retry is published a dozen times, not every minute."""
    world = World()
    world.provider.script = lambda request, number: failure(
        "overloaded", http_status=529, hint_seconds=600.0
    )
    job = await world.submit(submission(deadline_seconds=86_400))
    await world.deliver_all()
    before = len(world.topics.messages(TOPIC))
    for _ in range(14_400 // 20):
        world.clock.advance(20.0)
        await world.repair()
    assert 3 <= len(world.topics.messages(TOPIC)) - before <= 30
    state = world.ledger.stored()[evaluation_path(job.seats[0].work_key)]
    assert (state["wake_at"] - world.clock.now()).total_seconds() <= 900.0


async def test_a_redelivery_during_a_try_that_fails_waits_no_day() -> None:
    """Asked for again while a call is under way, and that fails: the next try is soon."""
    world = NotifyingWorld()
    await world.ended()
    name = world.notification().id

    class Asked:
        async def send(self, _: object) -> Any:
            assert await redeliver(world.api.services, "tenant", name, by="me") is not None
            return failed()

    world.webhooks = Asked()
    world.notifier = world.new_process("notify")
    [message] = world.announcements()
    await world.deliver_notification(message)
    due_at = world.notification().due_at
    assert due_at is not None
    assert (due_at - world.clock.now()).total_seconds() < 60
