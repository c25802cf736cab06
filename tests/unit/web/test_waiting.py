"""`Prefer: wait`: the answer waits for the job's end, within its bounds."""

import asyncio

import pytest
from starlette.requests import Request

from functions.core.jobs import JobState
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.limits import Places
from functions.web.waiting import preferred_wait_seconds, wait_for_end
from tests.faults.world import World, submission


def asking(*values: str) -> Request:
    """Return a request with these `Prefer` headers."""
    headers = [(b"prefer", value.encode()) for value in values]
    return Request({"type": "http", "headers": headers})


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ((), 0),
        (("wait=20",), 20),
        (("respond-async, wait=7",), 7),
        (("respond-async", "Wait = 5"), 5),
        (('wait="9"',), 9),
        (("wait=3; foo=bar",), 3),
        (("wait=600",), 60),
        (("wait=0",), 0),
        (("wait=-1",), 0),
        (("wait=1.5",), 0),
        (("wait=soon",), 0),
        (("wait=\u0663",), 0),
        (("await=20",), 0),
    ],
)
def test_a_preference_is_read_or_left_aside(values: tuple[str, ...], seconds: int) -> None:
    """Up to 60 s; what has another form is no preference, and no error (RFC 7240)."""
    assert preferred_wait_seconds(asking(*values)) == seconds


def application(world: World, places: int = 1) -> Application:
    """Return the world's API with a number of places to wait in."""
    return Application(
        services=world.api.services,
        keys=KeyRing(world.ledger),
        callers=None,
        waits=Places(everyone=places, tenant=places),
    )


async def test_the_answer_comes_with_the_end() -> None:
    """A job that ends while its caller waits is answered as ended, long before the time is over."""
    world = World()
    job = await world.submit(submission())
    waiting = asyncio.create_task(wait_for_end(application(world), job, 60))
    await world.finish()
    world.clock.advance(2.0)
    assert (await waiting).state is JobState.SUCCEEDED
    assert world.clock.monotonic() < 60


async def test_an_open_job_is_answered_when_the_time_is_over() -> None:
    """The job goes on; its caller gets it as it is."""
    world = World()
    job = await world.submit(submission())
    assert (await wait_for_end(application(world), job, 3)).state is JobState.ACCEPTED


async def test_without_a_place_nobody_waits() -> None:
    """A process full of waiting requests answers the next one at once."""
    world = World()
    job = await world.submit(submission())
    before = world.clock.monotonic()
    assert await wait_for_end(application(world, places=0), job, 60) is job
    assert world.clock.monotonic() == before


async def test_places_are_given_back() -> None:
    """One place serves one waiting request after the other."""
    world = World()
    job = await world.submit(submission())
    api = application(world)
    for _ in range(3):
        await wait_for_end(api, job, 1)
    assert api.waits.take(job.tenant) is not None
