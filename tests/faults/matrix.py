"""The path of a job, struck at each of its calls in turn: one world per call and kind of strike."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from functions.core.submissions import Submission
from tests.faults.fakes import failure
from tests.faults.invariants import Broken, broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A job, and how its messages are delivered."""

    seats: int
    at_once: bool = False
    filler: int = 0
    call_seconds: float = 1.0
    story: "Story | None" = None
    policy: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        order = "at once" if self.at_once else "in turn"
        objects = ", inputs as objects" if self.filler else ""
        slow = f", calls of {self.call_seconds:g} s" if self.call_seconds > 1 else ""
        if self.story is not None:
            return self.story.__name__ + "".join(f", {k} {v}" for k, v in self.policy.items())
        return f"{self.seats} seats {order}{objects}{slow}{', capped' if self.policy else ''}"


ONE = Shape(seats=1)
THREE_IN_TURN = Shape(seats=3)
THREE_AT_ONCE = Shape(seats=3, at_once=True)
WITH_OBJECTS = Shape(seats=1, filler=40_000)
SLOW = Shape(seats=1, call_seconds=12.0)  # long enough for renewals and looks for stops
CAPPED = Shape(seats=2, at_once=True, policy={"max_requests": 2, "required_seats": 1})
PATHS = (ONE, THREE_IN_TURN, THREE_AT_ONCE, WITH_OBJECTS, SLOW)
Story = Callable[[World, Shape], Coroutine[Any, Any, None]]
MakeWorld = Callable[[dict[int, Strike]], World]


async def live(world: World, shape: Shape) -> World:
    """Submit the shape's job and let everything run until nothing is left to do."""
    world.provider.seconds = shape.call_seconds
    story = shape.story or ordinary
    await story(world, shape)
    await world.finish(at_once=shape.at_once)
    return world


async def ordinary(world: World, shape: Shape) -> None:
    """One job is submitted."""
    await world.submit(_asked(shape))


async def lost_messages(world: World, shape: Shape) -> None:
    """One job is submitted, and all its messages are lost."""
    await world.submit(_asked(shape))
    world.drop_messages()


async def canceled(world: World, shape: Shape) -> None:
    """One job is submitted, and canceled three seconds into its calls."""
    job = await world.submit(_asked(shape))
    work = asyncio.create_task(world.deliver_all(at_once=True))
    await world.clock.sleep(3.0)
    await world.cancel(job)
    await work


async def two_jobs(world: World, shape: Shape) -> None:
    """Two jobs ask the same under two keys, and are worked on at once."""
    await world.submit(_asked(shape, key="first"))
    await world.submit(_asked(shape, key="second"))


async def refused_once(world: World, shape: Shape) -> None:
    """The provider has too much to do at the first request for each question."""
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        answer(request, number) if number > 1 else failure("overloaded", http_status=529)
    )
    await world.submit(_asked(shape))


async def refused_for_long(world: World, shape: Shape) -> None:
    """The provider asks for a long wait first, so that repair has to wake the seat."""
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        answer(request, number)
        if number > 1
        else failure("rate_limited", http_status=429, hint_seconds=30.0)
    )
    await world.submit(_asked(shape))


async def refused_for_good(world: World, shape: Shape) -> None:
    """The provider refuses the first seat's question for good."""
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        failure("invalid_request", http_status=400)
        if request.model == "m0"
        else answer(request, number)
    )
    await world.submit(_asked(shape))


def _asked(shape: Shape, key: str = "key") -> Submission:
    models = [f"m{index}" for index in range(shape.seats)]
    return submission(models, key=key, filler=shape.filler, **shape.policy)


def run(shape: Shape, strikes: dict[int, Strike], make: MakeWorld = World) -> World:
    """Live through one world, in an event loop of its own, as the clock demands."""

    async def case() -> World:
        return await live(make(strikes), shape)

    return asyncio.run(case())


def path_of(shape: Shape, make: MakeWorld = World) -> list[str]:
    """Return the calls of the undisturbed path, in order."""
    world = run(shape, {}, make)
    assert not broken(world), "the undisturbed path breaks an invariant"
    return world.plan.calls


def struck(
    shape: Shape, fate: Fate, moment: Moment, make: MakeWorld = World
) -> Iterator[tuple[str, World]]:
    """Yield, for each call of the path, its description and the world in which it was struck."""
    calls = run(shape, {}, make).plan.calls
    for number, name in enumerate(calls, start=1):
        description = f"{fate.value} {moment.value} call {number} of {len(calls)} ({name})"
        yield description, run(shape, {number: Strike(fate=fate, moment=moment)}, make)


def problems(
    shape: Shape,
    fate: Fate,
    moment: Moment,
    *,
    also: Callable[[World], Broken] | None = None,
) -> list[str]:
    """Return what breaks the invariants, or `also` what is promised, over all calls of the path."""
    return [
        f"{description}: {name}: {text}"
        for description, world in struck(shape, fate, moment)
        for name, texts in broken(world, *([also] if also else [])).items()
        for text in texts
    ]


# A death at every call in `make test`; the other fates take a minute and are in `make test-long`.
FATES = [
    pytest.param(fate, id=fate.value, marks=[] if fate is Fate.DIE else pytest.mark.long)
    for fate in Fate
]

STORIES = (
    Shape(seats=2, story=lost_messages),
    Shape(seats=2, story=lost_messages, policy={"deadline_seconds": 30}),
    Shape(seats=2, story=canceled, call_seconds=12.0),
    Shape(seats=1, story=two_jobs, at_once=True),
    Shape(seats=1, story=refused_once),
    Shape(seats=1, story=refused_for_long),
    Shape(seats=2, story=refused_for_good, policy={"required_seats": 1}),
)
