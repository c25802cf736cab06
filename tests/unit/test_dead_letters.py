"""A message the topic gave up is on record, and what it was for is not left hanging."""

import pytest

from functions.core.errors import LedgerUnavailable
from functions.core.jobs import JobState
from functions.core.ports import Message, Write
from functions.dead_letters import Burial, bury
from functions.dispatch import encode, seat_message
from tests.faults.fakes import failure
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, seat_of, submission


async def test_a_message_for_a_finished_job_changes_nothing() -> None:
    """Neither a record nor an incident: the work was done by another delivery."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    before = world.ledger.documents()
    burial = await bury(world.api.services, encode(seat_message(job, 0)), "m1")
    assert burial is Burial.FINISHED
    assert world.ledger.documents() == before


async def test_a_seat_that_killed_each_worker_is_ended() -> None:
    """Its tries are spent: the seat fails, the job closes, and an operator is told once."""
    world = World()
    world.plan.always = {"evaluate: call": Strike(fate=Fate.DIE, moment=Moment.BEFORE)}
    job = await world.submit(submission(max_attempts=1))
    world.collect()
    assert not await world.deliver(world.pending.popleft().message)
    world.plan.always = {}
    world.clock.advance(31.0)
    letter = encode(seat_message(job, 0))
    assert await bury(world.api.services, letter, "m1") is Burial.ENDED
    assert await bury(world.api.services, letter, "m1") is Burial.FINISHED
    error = seat_of(world, job).error
    assert error is not None
    assert error.code == "attempts_exhausted"
    assert world.jobs()[job.id].state is JobState.FAILED
    [incident] = world.incidents()
    assert (incident["kind"], incident["job"], incident["seat"]) == (
        "dead_letter",
        job.id,
        "fake/m0",
    )


async def test_an_open_seat_goes_on() -> None:
    """The operator is told, nothing is bought, and repair brings the seat to its end."""
    world = World()
    world.provider.script = lambda request, number: failure("overloaded", http_status=503)
    job = await world.submit(submission())
    world.drop_messages()
    assert await bury(world.api.services, encode(seat_message(job, 0)), "m1") is Burial.OPEN
    assert not world.provider.sent
    world.provider.script = world.provider.answer
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert [incident["kind"] for incident in world.incidents()] == ["dead_letter"]


@pytest.mark.parametrize("data", [b"", b"{}", b"not json", b'{"v": 9}', "\u20ac".encode()])
async def test_what_nobody_can_read_is_recorded_by_its_digest(data: bytes) -> None:
    """The first bytes are kept, and the same message twice is one incident."""
    world = World()
    for _ in range(2):
        assert await bury(world.api.services, Message(data=data), None) is Burial.UNKNOWN
    [incident] = world.incidents()
    assert incident["kind"] == "dead_letter"
    assert len(incident["digest"]) == 64


async def test_a_letter_that_is_not_on_record_comes_again() -> None:
    """Without a certain write the message is not acknowledged."""
    world = World()

    async def lost(*writes: Write) -> None:
        raise LedgerUnavailable("no answer")

    world.ledger.commit = lost  # type: ignore[assignment, method-assign]
    with pytest.raises(LedgerUnavailable):
        await bury(world.api.services, Message(data=b"{}"), "m1")
