"""Slots by host."""

import asyncio

from functions.hosts import HostSlots


async def test_a_host_that_hangs_holds_up_no_other() -> None:
    """All slots of one host are taken: another host's call goes ahead at once."""
    slots = HostSlots(waiting=4, at_once=2)
    async with (
        slots.slot("a", 1) as first,
        slots.slot("a", 1) as second,
        slots.slot("a", 0.01) as third,
        slots.slot("b", 0.01) as other,
    ):
        assert (first, second, third, other) == (True, True, False, True)
    async with slots.slot("a", 0.01) as free:
        assert free


async def test_a_slot_that_is_freed_goes_to_one_who_waits() -> None:
    """Of two who wait, one gets the slot when it is freed, the other when that one has ended."""
    slots, order = HostSlots(waiting=4, at_once=1), []

    async def call(name: str) -> None:
        async with slots.slot("a", 60) as free:
            order.append((name, free))
            await asyncio.sleep(0)

    async with slots.slot("a", 60):
        waiting = [asyncio.create_task(call(name)) for name in ("x", "y")]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert sorted(order) == [("x", True), ("y", True)]


async def test_few_may_wait() -> None:
    """Past the bound a delivery is not kept waiting: its request slot is free for others."""
    slots = HostSlots(waiting=0, at_once=1)
    async with slots.slot("a", 60), slots.slot("a", 60) as free:
        assert not free


async def test_a_cancelled_wait_leaves_no_trace() -> None:
    """Who gave up waiting takes neither a slot nor a place in the line."""
    slots = HostSlots(waiting=1, at_once=1)
    async with slots.slot("a", 60):

        async def wait() -> None:
            async with slots.slot("a", 60):
                raise AssertionError("it waited in vain")

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        async with slots.slot("a", 0.01) as free:
            assert not free
    async with slots.slot("a", 0.01) as free:
        assert free
