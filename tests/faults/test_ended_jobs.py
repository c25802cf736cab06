"""Replay and purge survive a fault at every single call: what was begun is finished, once."""

import asyncio
from collections.abc import Callable

import pytest

from functions.core.jobs import JobState
from functions.purging import LONGEST_CALL_SECONDS
from tests.faults.fakes import failure
from tests.faults.invariants import Broken, broken
from tests.faults.matrix import FATES, Shape, path_of, run
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission

PANEL = ("m0", "m1")
ENDED = ("api: get jobs", "api: get seats, seats")  # the first call of a replay, a purge, a cancel


async def _partly_answered(world: World, shape: Shape) -> str:
    """Return a job that has ended with one success of two; what comes next is answered."""
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        failure("invalid_request", http_status=400)
        if request.model == "m1"
        else answer(request, number)
    )
    job = await world.submit(submission(PANEL, filler=shape.filler, **shape.policy))
    await world.finish()
    world.provider.script = answer
    return job.id


async def replayed(world: World, shape: Shape) -> None:
    """A job with a success and a failure is replayed."""
    job = await _partly_answered(world, shape)
    await world.replay(world.jobs()[job])


async def replayed_and_canceled(world: World, shape: Shape) -> None:
    """The replay is canceled before anything of it was bought."""
    job = await _partly_answered(world, shape)
    await world.replay(world.jobs()[job])
    await world.cancel(world.jobs()[job])


async def canceled_and_replayed(world: World, shape: Shape) -> None:
    """A job is canceled in the middle of its calls, and replayed as soon as that is possible."""
    job = await world.submit(submission(PANEL))
    work = asyncio.create_task(world.deliver_all(at_once=True))
    await world.clock.sleep(3.0)
    await world.cancel(job)
    await work
    for _ in range(20):  # calls of a process that died end with their leases
        if world.jobs()[job.id].check_at is None:
            break
        world.clock.advance(10.0)
        await world.repair()
    await world.replay(world.jobs()[job.id])


async def purged(world: World, shape: Shape) -> None:
    """A job that has ended is purged."""
    job = await world.submit(submission(PANEL, filler=shape.filler))
    await world.finish()
    await world.purge(world.jobs()[job.id])
    await _pass_the_last_look(world)


async def _pass_the_last_look(world: World) -> None:
    """Let repair look twice at a purged job, with no looks at nothing in between."""
    for seconds in (world.settings.repair_seconds, LONGEST_CALL_SECONDS):
        world.clock.advance(seconds + 1.0)
        await world.repair()


async def purged_and_asked_again(world: World, shape: Shape) -> None:
    """A job is purged, and another asks the same at once."""
    job = await world.submit(submission(PANEL))
    await world.finish()
    await world.purge(world.jobs()[job.id])
    await world.submit(submission(PANEL, key="later"))
    await world.deliver_all()
    await _pass_the_last_look(world)


REPLAYS = (
    Shape(seats=2, story=replayed),
    Shape(seats=2, story=replayed, policy={"max_requests": 2}),
    Shape(seats=2, story=replayed_and_canceled, policy={"required_seats": 1}),
    Shape(seats=2, story=canceled_and_replayed, call_seconds=12.0),
)
PURGES = (
    Shape(seats=2, story=purged),
    Shape(seats=2, story=purged, filler=40_000),
    Shape(seats=2, story=purged_and_asked_again),
)


def test_the_calls_of_a_replay() -> None:
    """What a replay costs before its seats are delivered: no query, one commit, one message."""
    calls = path_of(REPLAYS[0])
    first = calls.index("api: get jobs")
    assert calls[first : first + 5] == [
        "api: get jobs",
        "api: get seats, seats",
        "api: stat object",
        "api: commit update jobs, create runs, create seats, create operator_log",
        "api: publish 1",
    ]


def broken_after(shape: Shape, strike: Strike, also: Callable[[World], Broken]) -> list[str]:
    """Return what breaks when a call is struck, for each call since the first run has ended.

    The calls before are struck in the tests of every call.
    """
    calls = run(shape, {}).plan.calls
    first = next(n for n, name in enumerate(calls, start=1) if name in ENDED)
    return [
        f"{strike} call {number} of {len(calls)} ({calls[number - 1]}): {name}: {text}"
        for number in range(first, len(calls) + 1)
        for name, texts in broken(run(shape, {number: strike}), also).items()
        for text in texts
    ]


def replays_end_in_the_second_run(world: World) -> Broken:
    """One strike begins no third run, and none is lost."""
    for job in world.jobs().values():
        if job.run != 2:
            yield f"{job.id} is in run {job.run}"


def nothing_of_the_purged_is_left(world: World) -> Broken:
    """Every object that was given up is gone; what a later job bought and stored is there."""
    there = set(world.objects.names())
    for job in world.jobs().values():
        if job.purged_at is None:
            for record in world.seats(job.id).values():
                name = (
                    record.output.uri.removeprefix(world.objects.uri("")) if record.output else ""
                )
                if job.state is JobState.SUCCEEDED and name not in there:
                    yield f"{job.id}: the answer of {record.seat} is gone"
        elif job.inputs.facts is not None:
            yield f"{job.id} still has its inputs"
    for state in world.evaluations().values():
        if left := there & set(state.purged):
            yield f"purged and still there: {left}"
    if all(job.purged_at for job in world.jobs().values()) and there:
        yield f"still in the bucket: {there}"


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("shape", REPLAYS, ids=str)
def test_a_replay_survives_a_strike_at_any_call(shape: Shape, fate: Fate, moment: Moment) -> None:
    """Whichever call is struck, the replay begins one run, and no invariant breaks."""
    strike = Strike(fate=fate, moment=moment)
    assert broken_after(shape, strike, replays_end_in_the_second_run) == []


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("shape", PURGES, ids=str)
def test_a_purge_survives_a_strike_at_any_call(shape: Shape, fate: Fate, moment: Moment) -> None:
    """Whichever call is struck, everything is deleted in the end, and nothing else is."""
    strike = Strike(fate=fate, moment=moment)
    assert broken_after(shape, strike, nothing_of_the_purged_is_left) == []
