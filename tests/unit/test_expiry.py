"""Records that expire: what belongs to a job goes with it, and its identity can begin anew."""

from typing import Any

from functions.audit import audit
from functions.core.jobs import JobState
from tests.faults.fakes import failure
from tests.faults.world import World, submission
from tests.unit.test_audit import mark_delivered


def expire(world: World, *, days: int) -> None:
    """Let the time pass, and delete what its time to live has come for, as Firestore does."""
    world.clock.advance(days * 86_400.0)
    for path, data in list(world.ledger.stored().items()):
        expire_at = data.get("expire_at")
        if expire_at is not None and expire_at <= world.clock.now():
            del world.ledger._documents[path]


async def test_a_job_that_expired_can_be_asked_for_anew() -> None:
    """The same request 401 days later is a new job: no record of the old one ends its seats."""
    world = World()
    asked: dict[str, Any] = {"deadline_seconds": 600, "max_requests": 2}
    first = await world.submit(submission(("m0", "m1"), **asked))
    await world.finish()
    assert world.jobs()[first.id].state is JobState.SUCCEEDED
    expire(world, days=402)
    assert world.jobs() == {}
    assert [p for p in world.ledger.stored() if first.id in p] == []
    again = await world.submit(submission(("m0", "m1"), **asked))
    assert again.id == first.id
    await world.finish()
    job = world.jobs()[again.id]
    assert job.state is JobState.SUCCEEDED
    assert world.terminals(job.id)[1].completed_at > job.submitted_at
    assert all(record.ended_at > job.submitted_at for record in world.seats(job.id).values())


async def test_a_replayed_job_that_expired_is_no_change_after_the_seal() -> None:
    """The job is older than the window of its replay, and goes with its records before it."""
    world = World()
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.submit(submission())
    await world.finish()
    await mark_delivered(world)
    world.clock.advance(150 * 86_400.0)
    await world.replay(world.jobs()[job.id])
    await world.finish()
    await mark_delivered(world)
    world.clock.advance(7200.0)
    result = await audit(world.reconciler.services)
    assert len(result.sealed) == 2
    expire(world, days=255)
    assert world.jobs() == {}
    for _ in range(3):
        result = await audit(world.reconciler.services)
        assert (result.complete, len(result.sampled)) == (True, 1)
    assert world.incidents() == []
