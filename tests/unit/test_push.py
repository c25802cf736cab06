"""The push target: envelopes, callers, and the one table of acknowledgements."""

import asyncio
import base64
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from functions.core.errors import (
    CallerRefused,
    LedgerUnavailable,
    ObjectsUnavailable,
    PublishFailed,
    UnreadableRecord,
)
from functions.dispatch import SeatMessage, decode, encode
from functions.evaluation import Delivery
from functions.services import Services
from functions.web import push
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.push import ACK, NACK, STATUS_OF, answer_evaluate, read_envelope
from tests.faults.world import AnyCaller, World, request, submission

SEAT = SeatMessage(job="job_1", run=1, seat=0, work_key="a" * 64, traceparent="00-1-2-01")


class NoCaller(AnyCaller):
    """Refuses every token."""

    async def verify(self, token: str) -> str:
        """Refuse.

        Raises:
            CallerRefused: always.
        """
        raise CallerRefused("not you")


def application(world: World, callers: AnyCaller | None = None) -> Application:
    services = world.evaluator.services
    return Application(
        services=services, keys=KeyRing(services.ledger), callers=callers or AnyCaller()
    )


def envelope(message: Any) -> bytes:
    return json.dumps({"message": message, "subscription": "s"}).encode()


def valid(seat: SeatMessage = SEAT) -> bytes:
    message = encode(seat)
    data = base64.b64encode(message.data).decode()
    return envelope({"data": data, "attributes": dict(message.attributes), "messageId": "7"})


async def pushed(world: World, body: bytes) -> Response:
    return await answer_evaluate(application(world), request(body))


def test_a_message_survives_the_envelope() -> None:
    """What dispatch encodes is what a delivery decodes, trace context included."""
    assert decode(read_envelope(valid())) == SEAT


def test_the_envelope_may_lack_attributes() -> None:
    """A message without attributes is read; its trace context is absent."""
    data = base64.b64encode(encode(SEAT).data).decode()
    assert decode(read_envelope(envelope({"data": data}))).traceparent is None


BAD_BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b"\xff\xfe{",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "no message": b"{}",
    "message is text": envelope("data"),
    "data is a number": envelope({"data": 7}),
    "data is no base64": envelope({"data": "?"}),
    "attributes are a list": envelope({"data": "", "attributes": ["a"]}),
    "data is empty": envelope({"data": ""}),
    "data is no JSON": envelope({"data": base64.b64encode(b"hello").decode()}),
    "data is a list": envelope({"data": base64.b64encode(b"[]").decode()}),
}
FIELDS: dict[str, Any] = {"v": 1, "job": "job_1", "run": 1, "seat": 0, "work_key": "a" * 64}
BAD_FIELDS = [
    {"v": 2},
    {"job": "../other"},
    {"job": "jöb"},
    {"job": ""},
    {"job": None},
    {"run": 0},
    {"run": True},
    {"run": 1.5},
    {"seat": -1},
    {"seat": "0"},
    {"work_key": 7},
    {"work_key": "a/b"},
]


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_an_unreadable_message_is_recorded_and_acked(body: bytes) -> None:
    """A message that nobody can read is one incident, however often it comes, and is acked."""
    world = World()
    for _ in range(2):
        assert (await pushed(world, body)).status_code == ACK
    [incident] = world.incidents()
    assert incident["kind"] == "unreadable_message"
    assert len(incident["digest"]) == 64
    assert incident["detail"]


@pytest.mark.parametrize("change", BAD_FIELDS, ids=str)
def test_a_message_with_a_bad_field_is_unreadable(change: dict[str, Any]) -> None:
    """No field of a message is taken as it comes: paths are made from them."""
    data = base64.b64encode(json.dumps(FIELDS | change).encode()).decode()
    with pytest.raises(UnreadableRecord):
        decode(read_envelope(envelope({"data": data})))


async def test_a_message_for_an_unknown_seat_is_recorded_and_acked() -> None:
    """A message of no job we know is an incident that names the message, and is acked."""
    world = World()
    assert (await pushed(world, valid())).status_code == ACK
    [incident] = world.incidents()
    assert (incident["kind"], incident["message_id"]) == ("unreadable_message", "7")


async def test_an_unreadable_message_is_not_acked_while_it_cannot_be_recorded() -> None:
    """Without the ledger even a broken message comes again: nothing is lost in silence."""
    world = World()

    async def no_commit(*writes: object) -> None:
        raise LedgerUnavailable("down")

    world.ledger.commit = no_commit  # type: ignore[method-assign, assignment]
    assert (await pushed(world, b"{")).status_code == NACK


def test_every_outcome_of_a_delivery_has_its_status() -> None:
    """The table is complete, and everything that is on record is acked."""
    assert set(STATUS_OF) == set(Delivery)
    assert set(STATUS_OF.values()) == {ACK}


@pytest.mark.parametrize("delivery", Delivery)
async def test_an_outcome_is_answered_by_the_table(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes of a delivery is answered with the table's status."""

    async def outcome(services: Services, message: SeatMessage, *, until: float) -> Delivery:
        return delivery

    monkeypatch.setattr(push, "evaluate_seat", outcome)
    assert (await pushed(World(), valid())).status_code == STATUS_OF[delivery]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LedgerUnavailable("down"), NACK),
        (ObjectsUnavailable("down"), NACK),
        (PublishFailed("down"), NACK),
        (TimeoutError(), NACK),
        (UnreadableRecord("jobs/x: unreadable field state"), ACK),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_outage_is_nacked_and_a_broken_record_is_not(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what may go better next time comes again; a broken record calls an operator instead."""

    async def failing(services: Services, message: SeatMessage, *, until: float) -> Delivery:
        raise error

    monkeypatch.setattr(push, "evaluate_seat", failing)
    world = World()
    assert (await pushed(world, valid())).status_code == status
    kinds = [incident["kind"] for incident in world.incidents()]
    assert kinds == (["unreadable_record"] if status == ACK else [])


async def test_a_handler_that_takes_too_long_is_cut_and_nacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delivery never outlives its push deadline: it is cancelled, and comes again."""

    async def endless(services: Services, message: SeatMessage, *, until: float) -> Delivery:
        await asyncio.Event().wait()
        return Delivery.ENDED

    monkeypatch.setattr(push, "evaluate_seat", endless)
    monkeypatch.setattr(push, "CLEAN_UP_SECONDS", 0.01)
    world = World(handler_deadline_seconds=0.01)
    assert (await pushed(world, valid())).status_code == NACK


async def test_a_caller_without_a_valid_token_reaches_nothing() -> None:
    """No token is 401, a refused one 403; neither leaves a trace."""
    world = World()
    refused = await answer_evaluate(application(world, NoCaller()), request(valid()))
    bare = request(valid())
    bare.scope["headers"] = []
    assert refused.status_code == 403
    assert (await answer_evaluate(application(world), Request(bare.scope))).status_code == 401
    assert world.ledger.documents() == {}


async def test_the_scheduler_is_answered_with_what_was_repaired() -> None:
    """A repair call answers counts and reasons; an unknown mode is 400."""
    world = World()
    await world.submit(submission(["m0", "m1"]))
    world.drop_messages()
    world.clock.advance(61.0)
    asked = request(b"", query="mode=repair")
    answer = await push.answer_reconcile(application(world), asked)
    report = json.loads(bytes(answer.body))
    assert answer.status_code == 200
    assert report["counts"] == {"dispatched": 1}
    assert "m0" in report["repairs"][0]["reason"]
    unknown = await push.answer_reconcile(application(world), request(b"", query="mode=x"))
    assert unknown.status_code == 400
