"""Two reconcilers beside live traffic: each gap is repaired once, each end is told under one ID."""

import asyncio
from collections import Counter
from dataclasses import replace

from functions.core.jobs import JobState
from functions.core.notifications import NotificationState
from functions.reconciliation import RepairReport, repair_once
from tests.faults.invariants import broken
from tests.faults.notifying import URL, NotifyingWorld
from tests.faults.world import submission

LOST, LIVE, UNTOLD = 6, 6, 6


async def submit(world: NotifyingWorld, name: str) -> str:
    asked = submission(("m0", "m1"), question=name, key=name)
    return (await world.submit(replace(asked, notify_url=URL))).id


async def test_two_reconcilers_beside_live_traffic_repair_each_gap_once() -> None:
    """Lost dispatches, lost announcements and new jobs at once: one of everything in the end."""
    world = NotifyingWorld()
    world.provider.seconds = 3.0
    untold = [await submit(world, f"untold{number}") for number in range(UNTOLD)]
    await world.deliver_all(at_once=True)
    assert len(world.announcements()) == UNTOLD  # lost
    lost = [await submit(world, f"lost{number}") for number in range(LOST)]
    assert world.drop_messages() == 2 * LOST
    second = world.new_process("reconcile2")
    live: list[str] = []
    for number in range(2 * LIVE):
        world.clock.advance(20.0)
        if number < LIVE:
            live.append(await submit(world, f"live{number}"))
        await asyncio.gather(
            world.repair(),
            world.run(second, repair_once(second.services, RepairReport())),
            world.repair(),
            world.deliver_all(at_once=True),
            world.deliver_notifications(),
        )
    await world.settle()
    jobs = [*untold, *lost, *live]
    assert {job.id for job in world.jobs().values()} == set(jobs)
    assert {job.state for job in world.jobs().values()} == {JobState.SUCCEEDED}
    assert len(world.provider.sent) == 2 * len(jobs)
    stored = world.ledger.stored()
    repairs = Counter(
        (data["job"], data["kind"]) for path, data in stored.items() if path.startswith("repairs/")
    )
    assert repairs == {(job, "dispatched"): 1 for job in lost} | {
        (job, "announced"): 1 for job in untold
    }
    told = Counter(call.id for call in world.calls)
    assert told == {n.id: 1 for n in world.notifications()}
    assert Counter(event.attributes["ce-id"] for event in world.events()) == told
    assert {n.state for n in world.notifications()} == {NotificationState.DELIVERED}
    assert broken(world) == {}
