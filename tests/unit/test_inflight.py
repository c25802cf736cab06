"""Calls in flight, slots and waiting places of one process."""

import asyncio
import time
from typing import Any

import pytest

from functions.inflight import InFlight, Slots
from tests.faults.world import World
from tests.unit.records import at
from tests.virtual_clock import VirtualClock


class Watch:
    """A watcher that notes its beginnings and ends."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    async def watch(self, inflight: InFlight) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def slots(world: World, waiting: int = 1) -> Slots:
    services = world.evaluator.services
    return Slots(services.providers, waiting=waiting, closing=services.inflight.ending)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_cut_concerns_one_run_only() -> None:
    """Calls of the run are cut, those of other runs and jobs go on."""
    inflight = InFlight(Watch().watch)
    async with (
        inflight.call("a", 1, at(0)) as one,
        inflight.call("a", 2, at(0)) as other_run,
        inflight.call("b", 1, at(0)) as other_job,
    ):
        assert inflight.cut("a", 1, "canceled") == 1
        waits = [asyncio.create_task(call.wait_cut()) for call in (one, other_run, other_job)]
        await settle()
        assert [wait.done() for wait in waits] == [True, False, False]
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        waits[0].exception()


async def test_one_watcher_runs_from_the_first_call_to_the_last() -> None:
    """Stops are looked for while calls are in flight, once a process, and not otherwise."""
    watch = Watch()
    inflight = InFlight(watch.watch)
    async with inflight.call("a", 1, at(0)):
        async with inflight.call("b", 1, at(0)):
            await settle()
        assert (watch.begun, watch.ended) == (1, 0)
    assert (watch.begun, watch.ended) == (1, 1)
    async with inflight.call("c", 1, at(0)):
        await settle()
    assert (watch.begun, watch.ended) == (2, 2)


async def test_a_shutdown_waits_for_calls_within_the_grace_time() -> None:
    """A call that ends by itself is not cut."""
    inflight = InFlight(Watch().watch)
    async with inflight.call("a", 1, at(0)) as call:
        ending = asyncio.create_task(inflight.shut_down(30.0))
        await settle()
        assert inflight.closing
        assert not ending.done()
        waiting = asyncio.create_task(call.wait_cut())
        await settle()
        assert not waiting.done()
        waiting.cancel()
    await ending


async def test_a_shutdown_cuts_what_outlives_the_grace_time() -> None:
    """After the grace time the rest is cut as interrupted."""
    inflight = InFlight(Watch().watch)
    async with inflight.call("a", 1, at(0)) as call:
        await inflight.shut_down(0.0)
        with pytest.raises(Exception, match="interrupted"):
            await call.wait_cut()


async def test_a_provider_has_so_many_slots_and_no_more() -> None:
    """The next one waits, and gets the slot when one comes free."""
    world = World()
    world.provider.concurrency = 1
    held = slots(world)
    got: list[bool] = []

    async def second() -> None:
        async with held.provider("fake", 30.0) as free:
            got.append(free)

    async with held.provider("fake", 0.0) as free:
        assert free
        task = asyncio.create_task(second())
        await settle()
        assert got == []
    await task
    assert got == [True]


async def test_waiting_for_a_slot_ends_with_its_time() -> None:
    """Who gets no slot in time is told so and holds none."""
    world = World()
    world.provider.concurrency = 1
    held = slots(world)
    async with held.provider("fake", 0.0):
        async with held.provider("fake", 0.0) as free:
            assert not free
        async with held.provider("fake", 0.01) as free:
            assert not free
    async with held.provider("fake", 0.0) as free:
        assert free


async def test_a_shutdown_ends_the_waiting_for_a_slot() -> None:
    """Nobody waits in the queue of a process that is ending."""
    world = World()
    world.provider.concurrency = 1
    held = slots(world)
    got: list[bool] = []

    async def second() -> None:
        async with held.provider("fake", 1000.0) as free:
            got.append(free)

    async with held.provider("fake", 0.0):
        task = asyncio.create_task(second())
        await settle()
        world.evaluator.services.inflight.ending.set()
        await task
    assert got == [False]


async def busy(turns: int, ended: asyncio.Event) -> None:
    """Work that fills so many turns of the loop."""
    for _ in range(turns):
        time.sleep(0.002)  # noqa: ASYNC251 - it is to block the loop
        await asyncio.sleep(0)
    ended.set()


async def test_a_claim_begins_after_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the loop is busy no claim begins; afterwards all of them do, few at a time."""
    monkeypatch.setattr("functions.inflight.CALM_PATIENCE_SECONDS", 30.0)
    world, ended, early = World(), asyncio.Event(), []
    places = slots(world)

    async def claim() -> None:
        async with places.claiming():
            early.append(not ended.is_set())

    work = asyncio.create_task(busy(20, ended))
    await asyncio.gather(*(claim() for _ in range(12)))
    await work
    assert early == [False] * 12


async def test_a_claim_begins_at_last_in_a_loop_that_is_never_calm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patience ends: a process that is always busy still takes new work."""
    monkeypatch.setattr("functions.inflight.CALM_PATIENCE_SECONDS", 0.01)
    ended = asyncio.Event()
    work = asyncio.create_task(busy(1_000_000, ended))
    async with slots(World()).claiming():
        assert not ended.is_set()
    work.cancel()
    await asyncio.wait([work])


async def test_waiting_places_are_few_and_come_back() -> None:
    """A place is taken for the block only; who finds none does not wait."""
    held = slots(World(), waiting=1)
    async with held.waiting() as first, held.waiting() as second:
        assert (first, second) == (True, False)
    async with held.waiting() as again:
        assert again


async def test_a_pause_ends_with_its_time_or_with_a_shutdown() -> None:
    """A waiting handler gives way to the end of its process."""
    world = World()
    clock: VirtualClock = world.clock
    held = slots(world)
    await held.wait(clock, 5.0)
    assert clock.monotonic() == 5.0
    long_one: asyncio.Task[Any] = asyncio.create_task(_pause_forever(held))
    await settle()
    world.evaluator.services.inflight.ending.set()
    await long_one


async def _pause_forever(held: Slots) -> None:
    class Standing(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.Event().wait()

    await held.wait(Standing(), 1.0)
