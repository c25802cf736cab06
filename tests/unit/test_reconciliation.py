"""Repair: what it finds through timers, what it leaves alone, and what it costs."""

import asyncio
import itertools
from typing import Any

import pytest

from functions.core.documents import evaluation_path, job_path
from functions.core.errors import PublishFailed
from functions.core.jobs import Job, JobState
from functions.core.ports import Query, Update
from functions.reconciliation import LONGEST_CHECK_FACTOR, RepairReport, repair, repair_once
from tests.cases.scenes import replies
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.notifying import NotifyingWorld
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission
from tests.unit.records import at


async def lost(world: World, *seats: str, **policy: Any) -> Job:
    """Submit a job and lose its messages."""
    job = await world.submit(submission(seats or ("m0",), **policy))
    world.drop_messages()
    return job


async def test_nothing_is_due_before_its_time() -> None:
    """A job that was accepted a moment ago is left to its messages."""
    world = World()
    await lost(world)
    world.clock.advance(59.0)
    assert (await world.repair()).counts == {}
    assert world.collect() == 0


async def test_a_lost_job_is_published_once_per_check() -> None:
    """Each check publishes the open seats, and the next check is twice as far away."""
    world = World()
    job = await lost(world, "m0", "m1")
    world.clock.advance(60.0)
    report = await world.repair()
    assert report.counts == {"dispatched": 1}
    assert world.drop_messages() == 2
    await world.repair()
    assert world.collect() == 0
    head = world.jobs()[job.id]
    assert (head.check_at, head.check_seconds) == (at(120), 120)


async def test_the_check_interval_stops_doubling() -> None:
    """However long a job stays open, it is looked at every quarter of an hour."""
    world = World()
    job = await lost(world, deadline_seconds=604_800)
    for _ in range(10):
        head = world.jobs()[job.id]
        assert head.check_at is not None
        world.clock.advance((head.check_at - world.clock.now()).total_seconds())
        await world.repair()
        world.drop_messages()
    assert world.jobs()[job.id].check_seconds == 60 * LONGEST_CHECK_FACTOR


async def test_no_check_is_later_than_the_deadline() -> None:
    """The check after the last one before the deadline is at the deadline, and expires the run."""
    world = World()
    job = await lost(world, deadline_seconds=70)
    world.clock.advance(60.0)
    await world.repair()
    assert world.jobs()[job.id].check_at == at(70)
    world.drop_messages()
    world.clock.advance(10.0)
    assert (await world.repair()).counts == {"expired": 1}
    await world.finish()
    assert world.jobs()[job.id].state is JobState.EXPIRED
    assert broken(world) == {}


async def test_a_seat_that_somebody_works_on_is_left_alone() -> None:
    """While a lease is live for this very seat, its job's check publishes nothing."""
    world = World()
    world.provider.seconds = 100.0
    await world.submit(submission())
    work = asyncio.create_task(world.deliver_all())
    await world.clock.sleep(65.0)
    report = RepairReport()
    await repair_once(world.reconciler.services, report)
    assert report.counts == {}
    await work
    await world.finish()
    assert broken(world) == {}


async def test_two_passes_at_once_repair_once() -> None:
    """Of two passes that see the same gap, one repairs it; the other finds it moved."""
    world = World()
    await lost(world)
    world.clock.advance(60.0)
    reports = RepairReport(), RepairReport()
    other = world.new_process("other").services
    await asyncio.gather(
        repair_once(world.reconciler.services, reports[0]), repair_once(other, reports[1])
    )
    assert world.collect() == 1
    assert sum(report.counts["dispatched"] for report in reports) == 1


async def test_a_dead_holders_seat_is_woken_when_its_lease_has_run_out() -> None:
    """The evaluation's own timer brings the seat back, and says why."""
    world = World()
    world.plan.always = {"evaluate: call": Strike(fate=Fate.DIE, moment=Moment.BEFORE)}
    await world.submit(submission())
    world.collect()
    assert not await world.deliver(world.pending.popleft().message)
    world.plan.always = {}
    world.clock.advance(29.0)
    assert (await world.repair()).counts == {}
    world.clock.advance(1.1)
    report = await world.repair()
    assert report.counts == {"woken": 1}
    assert "lease ran out" in report.repairs[0]["reason"]
    await world.finish()
    assert broken(world) == {}


async def test_a_wake_up_call_for_an_ended_run_goes_out() -> None:
    """The timer of an evaluation whose run has ended is removed, and nothing is published."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    path = evaluation_path(job.seats[0].work_key)
    wake = {"wake_at": world.clock.now(), "wake": {"job": job.id, "run": 1, "seat": 0}}
    await world.ledger.commit(Update(path=path, fields=wake))
    assert (await world.repair()).counts == {}
    assert world.is_quiet()


async def test_one_broken_record_keeps_no_other_from_repair() -> None:
    """An unreadable job is an incident and an error in the report; the others are repaired."""
    world = World()
    bad = await lost(world)
    await world.submit(submission(key="good"))
    world.drop_messages()
    await world.ledger.commit(Update(path=job_path(bad.id), fields={"state": "asleep"}))
    world.clock.advance(60.0)
    report = RepairReport()
    await repair_once(world.reconciler.services, report)
    assert report.counts["dispatched"] == 1
    assert len(report.errors) == 1
    assert [incident["kind"] for incident in world.incidents()] == ["unreadable_record"]


async def test_a_failed_publish_is_in_the_report_and_comes_again() -> None:
    """The timer had moved on before the publish failed, so the next look is not at once."""
    world = World()
    await lost(world)
    world.clock.advance(60.0)
    world.plan.always = {"reconcile: publish 1": Strike(fate=Fate.FAIL, moment=Moment.BEFORE)}
    report = await world.repair()
    assert len(report.errors) == 1
    assert PublishFailed.__name__ not in report.counts
    world.plan.always = {}
    await world.finish()
    assert broken(world) == {}


@pytest.mark.parametrize("is_open", [False, True], ids=["nothing open", "a job open"])
async def test_a_pass_stays_until_the_next_one_is_near(is_open: bool) -> None:
    """It looks for all but the last seconds of its period, and at timers only with open work."""
    world = World()
    if is_open:
        await lost(world, deadline_seconds=600)
    report = await repair(world.reconciler.services)
    assert report.looks == (29 if is_open else 1)
    assert 54.0 <= world.clock.monotonic() <= 58.0


@pytest.mark.parametrize("accepted_at", [1.0, 9.0, 47.0, 53.0, 59.0])
@pytest.mark.parametrize("hint_seconds", [11.0, 27.0, 61.0])
async def test_a_long_retry_is_published_within_seconds_of_its_time(
    accepted_at: float, hint_seconds: float
) -> None:
    """Whenever in its period a job comes, its retry goes out at most five seconds late."""
    world = World()
    replies(world, failure("rate_limited", http_status=429, hint_seconds=hint_seconds))
    passes = asyncio.create_task(scheduled(world))
    await world.clock.sleep(accepted_at)
    job = await world.submit(submission())
    await world.deliver_all()
    [first] = world.evaluations().values()
    assert first.due_at is not None
    while not world.collect():
        await world.clock.sleep(0.25)
    late_seconds = (world.clock.now() - first.due_at).total_seconds()
    assert 0 <= late_seconds <= 5.0
    await world.deliver_all()
    passes.cancel()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED


async def scheduled(world: World) -> None:
    """Run repair once a minute, as the scheduler does: never two passes at once."""
    for minute in itertools.count(1):
        await repair(world.reconciler.services)
        await world.clock.sleep(60.0 * minute - world.clock.monotonic())


async def test_a_pass_publishes_a_retry_when_it_is_due() -> None:
    """A retry that falls due during a pass is sent within seconds, not in the next period."""
    world = World()
    await lost(world, deadline_seconds=600)
    world.clock.advance(30.0)
    await repair(world.reconciler.services)
    assert world.collect() == 1


@pytest.mark.parametrize("ended", [0, 30])
async def test_the_cost_of_a_look_does_not_grow_with_history(ended: int) -> None:
    """Ended jobs have no timers: a look over thirty of them reads as little as over none."""
    world = NotifyingWorld()
    for number in range(ended):
        await world.submit(submission(question=str(number), key=str(number)))
    await world.deliver_all(at_once=True)
    await world.deliver_notifications()
    read = []
    query = world.ledger.query

    async def counting(asked: Query) -> list[object]:
        found = await query(asked)
        read.append(len(found))
        return list(found)

    world.ledger.query = counting  # type: ignore[method-assign, assignment]
    world.clock.advance(3600.0)
    await world.repair()
    assert (len(read), sum(read)) == (12, 0)
