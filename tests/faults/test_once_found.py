"""Defects that the fault tests found once, each with what must hold instead."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from functions.core.documents import from_document, to_document
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import SeatState, Terminal, Totals
from functions.core.ports import Query
from functions.inflight import Slots
from functions.reconciliation import RepairReport, repair_once
from functions.settlement import close_if_ended
from functions.web import push
from functions.web.application import Application
from functions.web.authentication import KeyRing
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import AnyCaller, World, request, seat_of, submission
from tests.unit.records import every_record
from tests.unit.test_leasing import unsteady

NO_COUNT = {"reconcile: count": Strike(fate=Fate.FAIL, moment=Moment.BEFORE)}


async def test_repair_tells_an_outage_by_its_name() -> None:
    """`repair_once` raises `LedgerUnavailable`, as it promises, not a group around it."""
    world = World()
    await world.submit(submission())
    world.drop_messages()
    world.clock.advance(60.0)
    world.plan.always = NO_COUNT
    with pytest.raises(LedgerUnavailable):
        await repair_once(world.reconciler.services, RepairReport())


async def test_the_scheduler_is_answered_503_in_an_outage() -> None:
    """An outage in the middle of a pass is 503 and no unexpected error."""
    world = World()
    await world.submit(submission())
    world.drop_messages()
    world.clock.advance(60.0)
    world.plan.always = NO_COUNT
    services = world.reconciler.services
    application = Application(services=services, keys=KeyRing(services.ledger), callers=AnyCaller())
    answer = await push.answer_reconcile(application, request(b"", query="mode=repair"))
    assert answer.status_code == 503


async def test_an_outage_for_one_record_keeps_no_other_from_repair() -> None:
    """When the ledger gives no answer for one job, the other jobs of the look are repaired."""
    world = World()
    for number in range(6):
        await world.submit(submission(question=str(number), key=str(number)))
    world.drop_messages()
    world.clock.advance(60.0)
    count, failures = world.ledger.count, iter([LedgerUnavailable("down")])

    async def unsteady_count(query: Query) -> int:
        if (error := next(failures, None)) is not None:
            raise error
        return await count(query)

    world.ledger.count = unsteady_count  # type: ignore[method-assign]
    await world.repair()
    assert world.collect() == 5


def test_an_unknown_cost_is_not_read_back_as_nothing() -> None:
    """A terminal record whose cost is unknown says so after the round trip too."""
    terminal = replace(every_record()[3], totals=Totals(requests=1, cost_usd=None))
    assert from_document(Terminal, to_document(terminal), "p") == terminal


async def test_an_ambiguous_close_that_was_applied_is_mine() -> None:
    """Reading back, a closer knows its own terminal record, also when the cost is unknown."""
    world = World()
    job = await world.submit(submission())
    stop = {"evaluate: count": Strike(fate=Fate.FREEZE, moment=Moment.BEFORE)}
    world.plan.always = stop
    world.collect()
    await world.deliver(world.pending.popleft().message)
    world.plan.always = {}
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    unsteady(world, "applied")
    assert await close_if_ended(world.evaluator.services, world.jobs()[job.id])


async def test_a_cancelled_wait_for_a_slot_keeps_none() -> None:
    """However a cancellation meets the release of a slot, the slot is not lost."""
    world = World()
    world.provider.concurrency = 1
    services = world.evaluator.services
    slots = Slots(services.providers, waiting=1, closing=services.inflight.ending)

    async def take() -> None:
        async with slots.provider("fake", 30.0):
            await asyncio.sleep(0)

    for steps in range(12):
        async with slots.provider("fake", 0.0) as free:
            assert free, f"a slot was lost by a cancellation {steps - 1} steps after the release"
            task = asyncio.create_task(take())
            for _ in range(5):
                await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


async def test_a_job_without_reuse_does_not_adopt_an_older_answer() -> None:
    """With `reuse` false an answer that was bought before the run was asked for is not used."""
    world = World()
    world.plan.always = {
        "evaluate: commit update evaluations, create seats": Strike(
            fate=Fate.DIE, moment=Moment.BEFORE
        )
    }
    await world.submit(submission(key="first"))
    world.collect()
    await world.deliver(world.pending.popleft().message)
    world.plan.always = {}
    world.clock.advance(40.0)
    job = await world.submit(submission(key="second", reuse=False))
    await world.deliver_all()
    assert not seat_of(world, job).reused
    assert sum(world.sent().values()) == 2


async def test_a_seat_that_has_ended_buys_nothing_when_its_object_is_lost() -> None:
    """A duplicate delivery of a succeeded seat in an open run sends no request."""
    world = World()
    await world.submit(submission(["m0", "m1"]))
    world.collect()
    message = world.pending[0].message
    await world.deliver(message)
    world.objects.lose(world.objects.names()[0])
    await world.deliver(message)
    assert sum(world.sent().values()) == 1


async def test_a_seat_that_found_the_budget_spent_buys_nothing_later() -> None:
    """A duplicate delivery of a seat that ended `budget_exhausted` sends no request.

    The second seat reserves and its worker dies; the first finds the budget spent and ends; another
    job brings the second's answer, so that its reservation is given back; then the first's message
    comes again.
    """
    world = World()
    capped: dict[str, Any] = {"max_requests": 1, "required_seats": 1}
    await world.submit(submission(["m0", "m1", "m2"], key="first", **capped))
    world.collect()
    first, second = [pushed.message for pushed in world.pending][:2]
    world.pending.clear()
    world.plan.always = {
        "evaluate: commit create evaluations": Strike(fate=Fate.DIE, moment=Moment.BEFORE)
    }
    assert not await world.deliver(second)
    world.plan.always = {}
    assert await world.deliver(first)
    await world.submit(submission(["m1"], key="second"))
    await world.deliver_all()
    assert await world.deliver(second)
    assert await world.deliver(first)
    assert sum(world.sent().values()) == 1
