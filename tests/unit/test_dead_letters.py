"""A message the topic gave up is on record, and what it was for is not left hanging."""

import json

import pytest

from functions.core.errors import LedgerUnavailable
from functions.core.jobs import JobState
from functions.core.ports import Message, Write
from functions.dead_letters import Addressee, record_dead_letter
from functions.dispatch import encode, seat_message
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import TENANT, TOPIC, World, seat_of, submission


async def test_a_message_for_a_finished_job_changes_nothing() -> None:
    """Neither a record nor an incident: the work was done by another delivery."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    before = world.ledger.documents()
    addressee = await record_dead_letter(world.api.services, encode(seat_message(job, 0)), "m1")
    assert addressee is Addressee.FINISHED
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
    assert await record_dead_letter(world.api.services, letter, "m1") is Addressee.ENDED
    assert await record_dead_letter(world.api.services, letter, "m1") is Addressee.FINISHED
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
    assert (
        await record_dead_letter(world.api.services, encode(seat_message(job, 0)), "m1")
        is Addressee.OPEN
    )
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
        assert (
            await record_dead_letter(world.api.services, Message(data=data), None)
            is Addressee.UNKNOWN
        )
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
        await record_dead_letter(world.api.services, Message(data=b"{}"), "m1")


def announcement_of(name: str) -> Message:
    """Return the message that brings a notification to its delivery."""
    body = json.dumps({"v": 1, "notification": name}).encode()
    return Message(data=body, attributes={"notification": name})


async def test_a_notification_that_waits_goes_on_and_its_owner_is_told() -> None:
    """A dead letter of an undelivered notification is an incident; its timer brings it back."""
    world = NotifyingWorld()
    job = await world.ended()
    message = announcement_of(world.notification().id)
    for _ in range(2):
        found = await record_dead_letter(world.api.services, message, "m1")
        assert found is Addressee.OPEN
    [incident] = world.incidents()
    assert (incident["job"], incident["owner"], incident["tenant"]) == (job.id, "owner", TENANT)
    await world.settle()
    assert world.notification().delivered


async def test_dead_letters_of_what_has_ended_change_nothing() -> None:
    """A delivered notification, and a seat of the run before a replay: nothing is touched."""
    world = NotifyingWorld()
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.ended()
    await world.settle()
    [old] = world.topics.messages(TOPIC)
    told = announcement_of(world.notification().id)
    world.provider.script = world.provider.answer
    await world.replay(job)
    before = dict(world.ledger.stored())
    for message in (told, old):
        found = await record_dead_letter(world.api.services, message, "m1")
        assert found is Addressee.FINISHED
    assert world.ledger.stored() == before
