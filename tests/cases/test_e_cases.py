"""E: the life of a process: what it owes after a response, at a signal, under a wrong clock.

| case | where else it is shown |
|---|---|
| E03 | nothing outlives its handler: `tests/faults/test_structured.py` |
| E04 | real processes and signals: `tests/e2e/test_processes.py`, `tests/e2e/test_load_kill.py` |
| E09 | any order of events under wrong clocks: `tests/faults/test_stateful.py` |
| E11 | calls cut within 2 s of a cancel: `tests/faults/test_redelivery.py` |
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from functions.core.jobs import JobState, Outcome, SeatState
from tests.cases.scenes import messages, replies, strike_next, tasks_left, total_sent
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.town import Planned, Town
from tests.faults.town_invariants import ALWAYS, IN_THE_END, demand
from tests.faults.world import World, evaluation_of, seat_of, submission
from tests.virtual_loop import LoopClock, VirtualLoop


async def test_e03_a_process_that_stops_after_any_response_loses_nothing() -> None:
    """After each response no task is left, and killing every process then loses no promise."""
    world = World()
    job = await world.submit(submission(["m0", "m1"]))
    assert await tasks_left() == set()
    world.api.alive = False
    taken = messages(world)
    for message in taken:
        assert await world.deliver(message)
        assert await tasks_left() == set()
        world.evaluator.alive = False
        world.evaluator = world.new_process("evaluate")
    await world.repair()
    assert await tasks_left() == set()
    world.reconciler.alive = False
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert broken(world) == {}


async def test_e04_a_signal_lets_a_short_call_finish() -> None:
    """A call that ends within the grace time is settled by the process that was told to end."""
    world = World()
    world.provider.seconds = 5.0
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(1.0)
    ending = asyncio.create_task(world.evaluator.services.inflight.shut_down(60.0))
    assert await work
    await ending
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert total_sent(world) == 1


async def test_e04_a_signal_hands_a_long_call_on() -> None:
    """A call that does not end in time is cut and on record, its lease free, its seat published."""
    world = World()
    world.provider.seconds = 60.0
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(1.0)
    old, world.evaluator = world.evaluator, world.new_process("evaluate")
    await old.services.inflight.shut_down(0.0)
    assert await work
    state = evaluation_of(world, job)
    assert (state.holder, state.lease_until) == (None, None)
    assert [a.outcome for a in state.attempts] == [Outcome.CANCELED]
    assert len(messages(world)) == 1
    assert await tasks_left() == set()


async def test_e04_an_ending_process_starts_no_request() -> None:
    """A message that comes after the signal is published afresh and acked, and buys nothing."""
    world = World()
    job = await world.submit(submission())
    [message] = messages(world)
    await world.evaluator.services.inflight.shut_down(0.0)
    assert await world.deliver(message)
    assert total_sent(world) == 0
    world.evaluator = world.new_process("evaluate")
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED


@pytest.mark.parametrize(
    ("call", "moment", "requests"),
    [
        ("evaluate: create object", Moment.BEFORE, 2),
        ("evaluate: create object", Moment.AFTER, 1),
        ("evaluate: commit update evaluations, create seats", Moment.BEFORE, 1),
        ("evaluate: commit update evaluations, create seats", Moment.AFTER, 1),
    ],
)
async def test_e04_death_between_answer_store_and_settlement(
    call: str, moment: Moment, requests: int
) -> None:
    """Only an answer that was not stored yet is bought again; a stored one is adopted."""
    world = World()
    strike_next(world, call, Strike(fate=Fate.DIE, moment=moment))
    job = await world.submit(submission())
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert total_sent(world) == requests
    assert broken(world) == {}


def in_town(play: Callable[[Town], Coroutine[Any, Any, None]], *skews: float) -> None:
    """Play in a town whose instances have wrong clocks; then everything ends well."""
    loop = VirtualLoop()

    async def all_of_it() -> None:
        town = Town(LoopClock(loop), skews=skews or (0.0,))
        await play(town)
        await town.settle_down()
        demand(town, (*ALWAYS, *IN_THE_END))

    try:
        loop.run_until_complete(all_of_it())
    finally:
        loop.close()


@pytest.mark.parametrize("skew", [25.0, 30.0, -30.0, 3600.0, -3600.0])
def test_e09_a_wrong_clock_takes_over_no_live_lease(skew: float) -> None:
    """An instance whose clock is off meets a live lease 5 s after its claim, and buys nothing."""

    async def play(town: Town) -> None:
        town.planned.plans.append(Planned(seconds=15.0))
        await town.knock()
        await town.submit_once(submission())
        town.collect()
        pushed = town.pending.popleft()
        town.start_delivery(pushed, 0)
        await town.go_on(5.0)
        [state] = town.evaluations().values()
        lease = (state.lease_until - town.clock.now()).total_seconds()  # type: ignore[operator]
        assert 20.0 <= lease <= 30.0
        town.start_delivery(pushed, 1)
        await town.go_on(5.0)
        assert sum(town.planned.sent.values()) == 1
        await town.go_on(30.0)
        assert sum(town.planned.sent.values()) == 1

    in_town(play, 0.0, 0.0, 0.0, skew)


async def test_e11_a_cancel_during_a_wait_lets_no_request_start() -> None:
    """Canceled 2 s into a wait of 8 s that its handler sits out: no second request, ever."""
    world = World()
    replies(world, failure("provider_error", http_status=503, hint_seconds=8.0))
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(3.0)
    assert (await world.cancel(job)).state is JobState.CANCELED
    assert await work
    await world.finish()
    assert total_sent(world) == 1
    assert seat_of(world, job).state is SeatState.CANCELED
    assert broken(world) == {}


async def test_e11_a_cancelled_handler_stays_cancelled() -> None:
    """A handler cancelled in its call ends as cancelled, its lease free and its attempt ended."""
    world = World()
    world.provider.seconds = 60.0
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(2.0)
    process = world.evaluator
    handler = next(t for t in asyncio.all_tasks() if "answer_evaluate" in repr(t.get_coro()))
    handler.cancel()
    await asyncio.wait({handler})
    assert handler.cancelled()
    state = evaluation_of(world, job)
    assert (state.holder, state.attempts[0].outcome) == (None, Outcome.CANCELED)
    assert not process.services.inflight.calls
    work.cancel()
    await asyncio.wait({work})


def test_e11_a_timeout_around_the_call_is_an_outcome_not_a_swallowed_cancellation() -> None:
    """A provider that never answers is cut at its deadline: one `unknown` attempt, then another."""

    async def play(town: Town) -> None:
        town.planned.plans.append(Planned(seconds=10_000.0))
        await town.knock()
        await town.submit_once(submission())
        town.collect()
        town.start_delivery(town.pending.popleft(), 0)
        await town.go_on(town.settings.provider_deadline_seconds + 1.5)
        [state] = town.evaluations().values()
        assert state.attempts[0].outcome is Outcome.UNKNOWN
        assert state.attempts[0].code == "timeout"
        await town.go_on(30.0)
        assert [a.outcome for a in town.evaluations()[state.work_key].attempts] == [
            Outcome.UNKNOWN,
            Outcome.SUCCEEDED,
        ]

    in_town(play)
