"""The `dead_letter` target: who may call it, and what it acknowledges."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request

from functions.core.errors import CallerRefused, LedgerUnavailable
from functions.core.jobs import JobState
from functions.core.ports import Message, Write
from functions.dispatch import encode, seat_message
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.dead_letter_push import answer_dead_letter
from tests.cases.scenes import envelope
from tests.faults.world import AnyCaller, World, request, submission


class NoCaller(AnyCaller):
    """Refuses every token."""

    async def verify(self, token: str) -> str:
        """Refuse.

        Raises:
            CallerRefused: always.
        """
        raise CallerRefused("not you")


def application(world: World, callers: AnyCaller | None = None) -> Application:
    """Return the target's application."""
    services = world.evaluator.services
    return Application(
        services=services, keys=KeyRing(services.ledger), callers=callers or AnyCaller()
    )


async def pushed(world: World, body: bytes) -> int:
    """Push raw bytes; return the status."""
    return (await answer_dead_letter(application(world), request(body))).status_code


def forwarded(message: Message) -> bytes:
    """Return the push of a message as Pub/Sub forwards it to a dead-letter topic."""
    attributes = {
        **message.attributes,
        "CloudPubSubDeadLetterSourceDeliveryCount": "100",
        "CloudPubSubDeadLetterSourceSubscription": "empanel-evaluate-push",
    }
    return envelope(Message(data=message.data, attributes=attributes))


async def test_a_caller_without_a_valid_token_reaches_nothing() -> None:
    """No token is 401, a refused one 403; neither leaves a trace."""
    world = World()
    job = await world.submit(submission())
    before = world.ledger.documents()
    body = forwarded(encode(seat_message(job, 0)))
    refused = await answer_dead_letter(application(world, NoCaller()), request(body))
    bare = request(body)
    bare.scope["headers"] = []
    unnamed = await answer_dead_letter(application(world), Request(bare.scope))
    assert (refused.status_code, unnamed.status_code) == (403, 401)
    assert world.ledger.documents() == before


@pytest.mark.parametrize("body", [b"", b"not json", b"{}", b'{"message": {"data": "?"}}', b"[[["])
async def test_an_unreadable_envelope_is_on_record_and_acked(body: bytes) -> None:
    """One incident of no tenant holds its digest, however often it comes."""
    world = World()
    assert [await pushed(world, body) for _ in range(2)] == [204, 204]
    [incident] = world.incidents()
    assert (incident["kind"], incident["tenant"]) == ("unreadable_message", None)
    assert len(incident["digest"]) == 64


async def test_a_forwarded_message_says_where_it_comes_from() -> None:
    """The incident is the job's tenant's, and names subscription, deliveries and message."""
    world = World()
    job = await world.submit(submission())
    assert await pushed(world, forwarded(encode(seat_message(job, 0)))) == 204
    [incident] = world.incidents()
    assert (incident["tenant"], incident["job"]) == (job.tenant, job.id)
    known = {name: incident[name] for name in ("subscription", "deliveries", "message_id")}
    assert known == {
        "subscription": "empanel-evaluate-push",
        "deliveries": 100,
        "message_id": "m1",
    }
    assert "preview" not in incident


async def test_a_message_for_a_finished_job_changes_nothing() -> None:
    """Acked, and every record is as it was."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    before = world.ledger.documents()
    assert await pushed(world, forwarded(encode(seat_message(job, 0)))) == 204
    assert world.ledger.documents() == before
    assert world.jobs()[job.id].state is JobState.SUCCEEDED


OUTAGES: Mapping[str, bytes] = {
    "readable": envelope(Message(data=json.dumps({"v": 1}).encode())),
    "unreadable": b"not json",
}


@pytest.mark.parametrize("body", OUTAGES.values(), ids=OUTAGES.keys())
async def test_what_cannot_be_recorded_comes_again(body: bytes) -> None:
    """503 while the ledger gives no answer, and 204 with one incident afterwards."""
    world = World()
    commit = world.ledger.commit

    async def lost(*writes: Write) -> Any:
        raise LedgerUnavailable("no answer")

    world.ledger.commit = lost  # type: ignore[method-assign]
    assert await pushed(world, body) == 503
    assert world.incidents() == []
    world.ledger.commit = commit  # type: ignore[method-assign]
    assert await pushed(world, body) == 204
    assert len(world.incidents()) == 1


async def test_a_seat_message_is_not_acked_while_its_job_cannot_be_read() -> None:
    """An outage of the reads is no unknown job."""
    world = World()
    job = await world.submit(submission())

    async def down(*paths: str) -> Any:
        raise LedgerUnavailable("no answer")

    world.ledger.get = down  # type: ignore[method-assign]
    assert await pushed(world, forwarded(encode(seat_message(job, 0)))) == 503
    assert world.incidents() == []


async def test_the_target_answers_only_pushes_and_its_health() -> None:
    """GET / is 405, another path 404."""
    world = World()
    got = request(b"")
    got.scope["method"] = "GET"
    assert (await answer_dead_letter(application(world), got)).status_code == 405
    elsewhere = request(b"", path="/v1/jobs")
    assert (await answer_dead_letter(application(world), elsewhere)).status_code == 404
