"""Acceptance: one job per identity, whatever is lost between the create and its answer."""

import asyncio

import pytest

from functions.acceptance import IdempotencyConflict, accept, find
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable, PublishFailed
from functions.core.identities import window_of
from functions.core.jobs import JobState
from functions.dispatch import decode
from functions.inputs import load_inputs
from tests.faults.world import TOPIC, World, submission
from tests.unit.records import at
from tests.unit.test_leasing import unsteady


async def test_a_job_is_recorded_whole_and_dispatched() -> None:
    """The record says what was asked, when, until when, and when repair looks first."""
    world = World()
    job = (await accept(world.api.services, submission(["m0", "m1"], deadline_seconds=600))).job
    recorded = world.jobs()[job.id]
    assert recorded.state is JobState.ACCEPTED
    assert (recorded.run, recorded.window, recorded.run_window) == (1, "2026-11-29T12", job.window)
    assert (recorded.deadline_at, recorded.check_at) == (at(600), at(60))
    assert await load_inputs(world.api.services, recorded) == (
        '{"question":"q"}',
        '{"instructions":"Score it.","scale":{"max":100,"min":0}}',
    )
    messages = [decode(message) for message in world.topics.messages(TOPIC)]
    assert [(m.job, m.run, m.seat) for m in messages] == [(job.id, 1, 0), (job.id, 1, 1)]
    assert [m.work_key for m in messages] == [seat.work_key for seat in recorded.seats]


async def test_repair_never_looks_later_than_the_deadline() -> None:
    """A short deadline brings the first check forward."""
    world = World()
    job = await world.submit(submission(deadline_seconds=5))
    assert world.jobs()[job.id].check_at == at(5)


async def test_the_same_identity_is_the_same_job() -> None:
    """A repeated key with the same body returns the job and publishes nothing more."""
    world = World()
    first = await accept(world.api.services, submission())
    world.clock.advance(7200.0)
    again = await accept(world.api.services, submission())
    assert (first.created, again.created) == (True, False)
    assert again.job.id == first.job.id
    assert again.job.submitted_at == first.job.submitted_at
    assert len(world.topics.messages(TOPIC)) == 1


async def test_another_body_under_a_key_is_a_conflict() -> None:
    """The key's job stays as it is, and the conflict names it."""
    world = World()
    first = await accept(world.api.services, submission(question="one"))
    before = world.ledger.documents()
    with pytest.raises(IdempotencyConflict) as conflict:
        await accept(world.api.services, submission(question="two"))
    assert conflict.value.job.id == first.job.id
    assert world.ledger.documents() == before


async def test_without_a_key_the_body_is_the_identity() -> None:
    """Two bodies are two jobs, the same body is one."""
    world = World()
    bodies = [submission(question=q, key=None) for q in ("one", "two", "one")]
    jobs = [(await accept(world.api.services, body)).job.id for body in bodies]
    assert jobs[0] == jobs[2] != jobs[1]


async def test_many_requests_at_once_make_one_job() -> None:
    """Of equal requests at the same time all get one job, and its seats are asked once."""
    world = World()
    services = world.api.services
    answers = await asyncio.gather(*(accept(services, submission()) for _ in range(10)))
    assert len({answer.job.id for answer in answers}) == 1
    await world.finish()
    assert sum(world.sent().values()) == 1


async def test_a_create_whose_answer_was_lost_is_mine() -> None:
    """Reading back finds the own job: it counts as created, and is dispatched."""
    world = World()
    await made_window(world)
    unsteady(world, "applied")
    acceptance = await accept(world.api.services, submission())
    assert acceptance.created
    assert len(world.topics.messages(TOPIC)) == 1


async def test_a_create_that_was_not_applied_is_an_error() -> None:
    """Nothing on record, nothing promised: the client asks again."""
    world = World()
    await made_window(world)
    unsteady(world, "lost")
    with pytest.raises(LedgerUnavailable):
        await accept(world.api.services, submission())
    assert world.jobs() == {}
    assert world.topics.messages(TOPIC) == []


async def test_a_failed_publish_is_left_to_repair_at_once() -> None:
    """The job is accepted all the same, and repair looks now instead of in a minute."""
    world = World()

    async def refuse(topic: str, messages: object) -> None:
        raise PublishFailed("down")

    publish, world.topics.publish = world.topics.publish, refuse  # type: ignore[method-assign]
    acceptance = await accept(world.api.services, submission())
    world.topics.publish = publish  # type: ignore[method-assign]
    assert acceptance.created
    assert world.jobs()[acceptance.job.id].check_at == world.clock.now()
    await world.repair()
    assert world.collect() == 1


async def test_large_inputs_are_stored_before_the_job() -> None:
    """When the bucket gives no answer, no job refers to what is not there."""
    world = World()

    async def refuse(*args: object, **kwargs: object) -> None:
        raise ObjectsUnavailable("down")

    world.objects.create = refuse  # type: ignore[method-assign]
    with pytest.raises(ObjectsUnavailable):
        await accept(world.api.services, submission(filler=40_000))
    assert world.jobs() == {}


async def test_large_inputs_are_objects_under_their_digests() -> None:
    """Inputs over 32 KiB leave the document; the same inputs are stored once."""
    world = World()
    job = await world.submit(submission(filler=40_000, key="one"))
    names = world.objects.names()
    await world.submit(submission(filler=40_000, key="two"))
    assert world.objects.names() == names
    assert job.inputs.facts is None
    assert job.inputs.facts_object == f"inputs/tenant/{job.digests.facts}"
    facts, _ = await load_inputs(world.api.services, job)
    assert len(facts) > 40_000


async def test_foreign_and_unknown_jobs_are_alike() -> None:
    """A tenant finds its own jobs and nothing of another's."""
    world = World()
    job = await world.submit(submission())
    found = await find(world.api.services, "tenant", job.id)
    assert found is not None
    assert found.id == job.id
    assert await find(world.api.services, "other", job.id) is None
    assert await find(world.api.services, "tenant", "job_unknown") is None


async def made_window(world: World) -> None:
    """Put the hour's window on record, as the first job of the hour does."""
    services = world.api.services
    now = services.clock.now()
    await services.windows.ensure(now, "tenant", window_of(now))
