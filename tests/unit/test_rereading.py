"""A job read again shows to the byte what a whole reading shows, whatever happened in between."""

import asyncio

from functions.core.jobs import Job
from functions.core.verdicts import CallRequest
from functions.rereading import reread
from functions.services import Services
from functions.statuses import JobStatus, job_view, read_status
from tests.faults.fakes import Reply, failure
from tests.faults.world import World, submission


class Follower:
    """Reads one job again and again, and holds every reading against a whole one."""

    def __init__(self, world: World, job: Job) -> None:
        self._world = world
        self._job = job
        self._status: JobStatus | None = None
        self.states: list[str] = []

    @property
    def _services(self) -> Services:
        return self._world.api.services

    async def look(self) -> None:
        """Read again; the view must be that of a reading from nothing, just before or after."""
        before = await self._whole()
        status = await reread(self._services, self._status) if self._status else before
        assert status is not None
        assert job_view(status) in [job_view(before), job_view(await self._whole())]
        self._status = status
        self.states.append(status.state.value)

    async def _whole(self) -> JobStatus:
        return await read_status(self._services, self._world.jobs()[self._job.id])


async def followed(world: World, follower: Follower) -> None:
    """Let the world do all there is to do, and look beside it at every quarter of a second."""
    work = asyncio.create_task(world.finish())
    await follower.look()
    while not work.done():
        await world.clock.sleep(0.25)
        await follower.look()
    await work
    await follower.look()


async def test_each_step_is_seen_as_a_whole_reading_sees_it() -> None:
    """Three seats, one that is retried and one that fails: from accepted to the end."""
    world = World()
    job = await world.submit(submission(("m0", "m1", "m2"), required_seats=1, max_attempts=2))

    def scripted(request: CallRequest, number: int) -> Reply:
        if request.model == "m1" and number == 1:
            return failure("overloaded", http_status=503)
        if request.model == "m2":
            return failure("invalid_request", http_status=400)
        return world.provider.answer(request, number)

    world.provider.script = scripted
    follower = Follower(world, job)
    await followed(world, follower)
    assert follower.states[0] == "accepted"
    assert follower.states[-1] == "succeeded"
    assert len(set(follower.states)) >= 3


async def test_a_cancel_and_a_replay_are_seen() -> None:
    """The seats of a stopped run, their late records, and the seats of the next run."""
    world = World()
    job = await world.submit(submission(("m0", "m1")))
    follower = Follower(world, job)
    await follower.look()
    await world.cancel(job)
    await follower.look()
    await followed(world, follower)
    await world.replay(world.jobs()[job.id])
    await follower.look()
    await followed(world, follower)
    assert "canceled" in follower.states
    assert follower.states[-1] == "succeeded"


async def test_a_purged_job_is_still_read_and_one_that_is_gone_is_none() -> None:
    """A tombstone is a job; a deleted document is not."""
    world = World()
    job = await world.submit(submission())
    follower = Follower(world, job)
    await followed(world, follower)
    await world.purge(world.jobs()[job.id])
    await follower.look()
    status = await read_status(world.api.services, world.jobs()[job.id])
    world.ledger._documents.clear()
    assert await reread(world.api.services, status) is None
