"""The clock of the tests: time moves only by sleeping and by `advance`."""

import asyncio

from tests.virtual_clock import START, VirtualClock


async def test_concurrent_sleepers_wake_in_order_at_their_time() -> None:
    """Each sleeper sees exactly its own time, in the order of the times."""
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    await asyncio.gather(sleep("c", 30), sleep("a", 10), sleep("b1", 20), sleep("b2", 20))
    assert woken == [("a", 10), ("b1", 20), ("b2", 20), ("c", 30)]
    assert (clock.now() - START).total_seconds() == 30


async def test_time_stands_still_while_work_goes_on() -> None:
    """A sleeper does not wake before a task that never sleeps has nothing left to do."""
    clock = VirtualClock()
    heartbeat = asyncio.create_task(clock.sleep(5))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert clock.monotonic() == 0
    await heartbeat
    assert clock.monotonic() == 5


async def test_advance_wakes_those_who_are_due() -> None:
    """`advance` moves time and wakes the sleepers that are due, and only those."""
    clock = VirtualClock()
    first, second = (asyncio.create_task(clock.sleep(s)) for s in (10, 20))
    await asyncio.sleep(0)
    clock.advance(10)
    await first
    assert (clock.monotonic(), second.done()) == (10, False)
    await second
    assert clock.monotonic() == 20


async def test_a_cancelled_sleeper_moves_no_time() -> None:
    """A sleep that is cancelled ends, and time does not jump to its end."""
    clock = VirtualClock()
    cancelled = asyncio.create_task(clock.sleep(100))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await clock.sleep(1)
    assert cancelled.cancelled()
    assert clock.monotonic() == 1
