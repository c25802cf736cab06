"""Every reader meets an unknown version with a clear error and one incident, and loses nothing."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from functions.audit import audit
from functions.core import versions
from functions.core.access import OPERATOR, key_hash
from functions.core.documents import (
    action_path,
    api_key_path,
    budget_path,
    evaluation_path,
    incident_path,
    job_path,
    notification_path,
    pause_path,
    run_path,
    seat_path,
    stop_path,
    tenant_day_path,
    terminal_path,
    to_document,
    window_path,
)
from functions.core.errors import UnknownVersion
from functions.core.identities import name_in_bucket, sha256_hex
from functions.core.jobs import Job, JobState
from functions.core.model_identity import alias_of
from functions.core.ports import Create, Message, Update
from functions.dispatch import encode, seat_message
from functions.incidents import incident_id, open_incident
from functions.keys import list_keys
from functions.stops import OVERLAP_SECONDS, stop_marker
from functions.tenant_caps import tenant_caps
from functions.web.dead_letter_push import answer_dead_letter
from functions.web.push import answer_evaluate
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld
from tests.faults.world import TENANT, _application, _push, submission
from tests.unit.test_pauses import pause
from tests.unit.web.asking import Answer, api_over, ask, give_key

NEWER = 99
KEY = "ek_reader"
WINDOW = "2026-11-29T12"
ACK = 204


class Library(NotifyingWorld):
    """A world whose records come to be of a later release's versions."""

    async def renumber(self, path: str) -> None:
        """Make a document one of a version that nobody knows here."""
        assert path in self.ledger.stored()
        await self.ledger.commit(Update(path=path, fields={"v": NEWER}))

    async def renumber_object(self, name: str) -> None:
        """The same for an object, whose digest stays right: it is not damaged."""
        found = self.objects._objects[name]
        data = json.dumps(json.loads(found.data) | {"v": NEWER}).encode()
        stored = replace(found.stored, metadata={"sha256": sha256_hex(data)})
        self.objects._objects[name] = replace(found, data=data, stored=stored)

    async def asked(self, method: str, path: str, **options: Any) -> Answer:
        """Ask the API as an operator; what happens to a key's record is no part of it."""
        if api_key_path(key_hash(KEY)) not in self.ledger.stored():
            await give_key(self, KEY, tenant=TENANT, role=OPERATOR)
        return await ask(api_over(self), method, path, key=KEY, **options)

    async def pushed(self, message: Message) -> int:
        """Push a message to `evaluate`."""
        application = _application(self.evaluator)
        return (await answer_evaluate(application, _push(message))).status_code


async def open_job(world: Library, **asked: Any) -> Job:
    """Return an accepted job whose message is still to come."""
    job = await world.submit(submission(**asked))
    world.drop_messages()
    return job


# Readers: each brings a record of its kind to be of a version nobody knows, and reads it.


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a reader answered, and what its incident must be about."""

    answer: int | Answer | None
    cause: str
    kind: str = "unreadable_record"


Reads = Callable[[], Awaitable[Read]]
Reader = Callable[[Library], Awaitable[Reads]]
READERS: dict[str, Reader] = {}
READ: set[str] = set()


def reader(form: versions.Form) -> Callable[[Reader], Reader]:
    """Put a reader of a form into the table."""

    def put(made: Reader) -> Reader:
        READERS[made.__name__] = made
        READ.add(form.where)
        return made

    return put


def asking(world: Library, cause: str, path: str, method: str = "GET", **options: Any) -> Reads:
    """Return a reader that asks for a path of the API; the incident is about `cause`."""

    async def read() -> Read:
        return Read(answer=await world.asked(method, path, **options), cause=cause)

    return read


@reader(versions.JOB)
async def job_by_push(world: Library) -> Reads:
    job = await open_job(world)
    await world.renumber(job_path(job.id))

    async def read() -> Read:
        status = await world.pushed(encode(seat_message(job, 0)))
        return Read(answer=status, cause=job_path(job.id))

    return read


@reader(versions.JOB)
async def job_by_status(world: Library) -> Reads:
    job = await open_job(world)
    await world.renumber(job_path(job.id))
    return asking(world, job_path(job.id), f"/v1/jobs/{job.id}")


@reader(versions.JOB)
async def job_by_cancel(world: Library) -> Reads:
    job = await open_job(world)
    await world.renumber(job_path(job.id))
    return asking(world, job_path(job.id), f"/v1/jobs/{job.id}/cancel", "POST")


@reader(versions.JOB)
async def job_by_repair(world: Library) -> Reads:
    job = await open_job(world)
    path = job_path(job.id)
    await world.renumber(path)

    async def read() -> Read:
        world.clock.advance(2 * 3600.0)
        report = await world.repair()
        assert any(path in error for error in report.errors)
        return Read(answer=None, cause=path)

    return read


@reader(versions.EVALUATION)
async def evaluation_by_push(world: Library) -> Reads:
    job = await world.ended()
    again = await open_job(world, key="another")
    path = evaluation_path(job.seats[0].work_key)
    await world.renumber(path)

    async def read() -> Read:
        return Read(answer=await world.pushed(encode(seat_message(again, 0))), cause=path)

    return read


@reader(versions.SEAT)
async def seat_by_status(world: Library) -> Reads:
    job = await world.ended()
    path = seat_path(job.id, 1, 0)
    await world.renumber(path)
    return asking(world, path, f"/v1/jobs/{job.id}/attempts")


@reader(versions.TERMINAL)
async def terminal_by_status(world: Library) -> Reads:
    job = await world.ended()
    path = terminal_path(job.id, 1)
    await world.renumber(path)
    return asking(world, path, f"/v1/jobs/{job.id}")


@reader(versions.NOTIFICATION)
async def notification_by_push(world: Library) -> Reads:
    await world.ended()
    [message] = world.announcements()
    path = notification_path(world.notification().decision, 1)
    await world.renumber(path)

    async def read() -> Read:
        return Read(answer=await world.deliver_notification(message), cause=path)

    return read


@reader(versions.NOTIFICATION)
async def notification_by_api(world: Library) -> Reads:
    job = await world.ended()
    path = notification_path(job.decision_id, 1)
    await world.renumber(path)
    return asking(world, path, f"/v1/{path}")


@reader(versions.BUDGET)
async def budget_by_push(world: Library) -> Reads:
    job = await open_job(world, max_requests=1)
    path = budget_path(job.id, 1)
    await world.ledger.commit(Create(path=path, data={"v": NEWER, "reservations": {}}))

    async def read() -> Read:
        return Read(answer=await world.pushed(encode(seat_message(job, 0))), cause=path)

    return read


@reader(versions.TENANT_DAY)
async def tenant_day_by_replay(world: Library) -> Reads:
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.ended()
    path = tenant_day_path(TENANT, "2026-11-29")
    await world.renumber(path)
    return asking(world, path, f"/v1/jobs/{job.id}/replay", "POST")


@reader(versions.WINDOW)
async def window_by_api(world: Library) -> Reads:
    await world.ended()
    path = window_path(TENANT, WINDOW)
    await world.renumber(path)
    return asking(world, path, f"/v1/audits/{WINDOW}")


@reader(versions.WINDOW)
async def window_by_audit(world: Library) -> Reads:
    await world.ended()
    path = window_path(TENANT, WINDOW)
    await world.renumber(path)

    async def read() -> Read:
        result = await audit(world.reconciler.services)
        assert not result.complete
        return Read(answer=None, cause=path)

    return read


@reader(versions.REPORT)
async def report_by_audit(world: Library) -> Reads:
    await world.ended()
    await audit(world.reconciler.services)
    world.clock.advance(timedelta(hours=2).total_seconds())
    stored = world.ledger.stored()[window_path(TENANT, WINDOW)]
    name = stored["report"]["name"]
    await world.ledger.commit(
        Update(path=window_path(TENANT, WINDOW), fields={"phase": "scanned", "sealed": False})
    )
    await world.renumber_object(name)
    found = world.objects._objects[name]
    report = stored["report"] | {"sha256": found.stored.metadata["sha256"]}
    await world.ledger.commit(Update(path=window_path(TENANT, WINDOW), fields={"report": report}))

    async def read() -> Read:
        await audit(world.reconciler.services)
        return Read(answer=None, cause=name)

    return read


@reader(versions.RUN)
async def run_by_audit(world: Library) -> Reads:
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.ended()
    await world.replay(job)
    path = run_path(job.id, 2)
    await world.renumber(path)

    async def read() -> Read:
        result = await audit(world.reconciler.services)
        assert result.windows[0]["population"] == 2
        return Read(answer=None, cause=path, kind="malformed_record")

    return read


@reader(versions.REPAIR)
async def repair_by_audit(world: Library) -> Reads:
    await open_job(world)
    world.clock.advance(120.0)
    await world.repair()
    [path] = [path for path in world.ledger.stored() if path.startswith("repairs/")]
    await world.renumber(path)

    async def read() -> Read:
        await audit(world.reconciler.services)
        return Read(answer=None, cause=path, kind="malformed_record")

    return read


@reader(versions.INCIDENT)
async def incident_by_resolve(world: Library) -> Reads:
    await open_incident(world.api.services, "dead_letter", "x", tenant=TENANT, detail="x")
    identity = incident_id("dead_letter", "x")
    await world.renumber(incident_path(identity))
    path = f"/v1/incidents/{identity}/resolve"
    return asking(world, incident_path(identity), path, "POST", body={"note": "a"})


@reader(versions.ACTION)
async def action_by_api(world: Library) -> Reads:
    job = await world.ended()
    put = f"/v1/decisions/{job.decision_id}/actions/publish"
    assert (await world.asked("PUT", put, body={"holder": "me"})).status == 201
    path = action_path(job.decision_id, "publish")
    await world.renumber(path)
    return asking(world, path, put, "PUT", body={"holder": "me"})


@reader(versions.API_KEY)
async def key_by_api(world: Library) -> Reads:
    await give_key(world, "ek_newer", tenant=TENANT, role=OPERATOR)
    path = api_key_path(key_hash("ek_newer"))
    await world.renumber(path)

    async def read() -> Read:
        answer = await ask(api_over(world), "GET", "/v1/jobs", key="ek_newer")
        return Read(answer=answer, cause=path)

    return read


@reader(versions.SIGHTING)
async def sighting_by_report(world: Library) -> Reads:
    job = await world.ended()
    alias = alias_of(job, 0)
    [path] = [path for path in world.ledger.stored() if path.startswith(f"sightings/{alias}")]
    await world.renumber(path)
    return asking(world, path, f"/v1/jobs/{job.id}/report")


@reader(versions.OUTPUT)
async def output_by_report(world: Library) -> Reads:
    job = await world.ended()
    record = world.seats(job.id)[(1, 0)]
    assert record.output is not None
    name = name_in_bucket(record.output.uri)
    await world.renumber_object(name)
    sha256 = world.objects._objects[name].stored.metadata["sha256"]
    document = world.ledger.stored()[seat_path(job.id, 1, 0)]["output"] | {"sha256": sha256}
    await world.ledger.commit(Update(path=seat_path(job.id, 1, 0), fields={"output": document}))
    return asking(world, record.output.uri, f"/v1/jobs/{job.id}/report")


@reader(versions.OUTPUT)
async def orphan_by_push(world: Library) -> Reads:
    """An answer of a newer release, whose holder died before it settled."""
    job = await world.ended()
    key = job.seats[0].work_key
    evaluation = world.evaluations()[key]
    assert evaluation.output is not None
    name = name_in_bucket(evaluation.output.uri)
    await world.renumber_object(name)
    document = world.ledger.stored()[evaluation_path(key)]
    again = await open_job(world, key="again")
    del document["output"]
    sent = world.sent()

    async def read() -> Read:
        status = await world.pushed(encode(seat_message(again, 0)))
        assert world.sent() == sent, "an answer that is there was bought again"
        assert name in world.objects.names()
        return Read(answer=status, cause=name)

    return read


@reader(versions.PAUSE)
async def pause_by_watch(world: Library) -> Reads:
    known = pause()
    path = pause_path(*known.key)
    data = to_document(known) | {"v": NEWER, "ends_at": world.clock.now() + timedelta(seconds=60)}
    await world.ledger.commit(Create(path=path, data=data))

    async def read() -> Read:
        await world.evaluator.services.pauses.refresh(0)
        return Read(answer=None, cause=path)

    return read


@reader(versions.STOP)
async def stop_by_watch(world: Library) -> Reads:
    job = await open_job(world)
    marker = stop_marker(job, JobState.CANCELED, world.clock.now())
    await world.ledger.commit(marker)
    path = stop_path(job.id, 1)
    await world.renumber(path)
    services = world.evaluator.services

    async def read() -> Read:
        async with services.inflight.call("other", 1, world.clock.now()):
            await world.clock.sleep(OVERLAP_SECONDS / 10)
        return Read(answer=None, cause=path)

    return read


def newer(message: Message) -> Message:
    """Return a message as a later release would send it."""
    return replace(message, data=json.dumps(json.loads(message.data) | {"v": NEWER}).encode())


@reader(versions.SEAT_MESSAGE)
async def seat_message_by_push(world: Library) -> Reads:
    job = await open_job(world)
    message = newer(encode(seat_message(job, 0)))

    async def read() -> Read:
        return Read(
            answer=await world.pushed(message),
            cause=sha256_hex(bytes(await _push(message).body())),
            kind="unreadable_message",
        )

    return read


@reader(versions.NOTIFICATION_MESSAGE)
async def announcement_by_push(world: Library) -> Reads:
    await world.ended()
    [known] = world.announcements()
    message = newer(known)

    async def read() -> Read:
        return Read(
            answer=await world.deliver_notification(message),
            cause=sha256_hex(bytes(await _push(message).body())),
            kind="unreadable_message",
        )

    return read


@reader(versions.SEAT_MESSAGE)
async def dead_letter_by_push(world: Library) -> Reads:
    job = await open_job(world)
    message = newer(encode(seat_message(job, 0)))

    async def read() -> Read:
        application = _application(world.reconciler)
        answer = await answer_dead_letter(application, _push(message))
        return Read(answer=answer.status_code, cause=sha256_hex(message.data), kind="dead_letter")

    return read


CAPPED = tenant_caps({}, day_requests=1000, day_cost_usd=0, open_seats=0)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
async def test_an_unknown_version_is_told_once_and_loses_nothing(reader: Reader) -> None:
    """A clear answer each time, one incident in all; the record is as it was."""
    world = Library(tenant_caps=CAPPED)
    read = await reader(world)
    for _ in range(3):
        seen = await read()
        if isinstance(seen.answer, Answer):
            assert seen.answer.status == 503, seen.answer.body
            assert str(NEWER) in seen.answer.body["detail"]
            assert "retry-after" in seen.answer.headers
        else:
            assert seen.answer in (None, ACK)
    identity = incident_id(seen.kind, seen.cause)
    about = [path for path in world.ledger.stored() if path == incident_path(identity)]
    assert about, world.incidents()
    others = {"aged_gap", "output_missing", "notification_lost"}
    told = [data["kind"] for path, data in world.ledger.stored().items() if path.startswith("inci")]
    assert told.count(seen.kind) == 1, world.incidents()
    assert not others & set(told)
    detail = world.ledger.stored()[incident_path(identity)]["detail"]
    assert str(NEWER) in detail or "cannot be read" in detail


def test_every_kind_that_is_read_has_a_reader_here() -> None:
    """A kind without its row in this table has no proof; what is left out is read nowhere here."""
    forms = (*versions.RECORDS, *versions.OBJECTS, *versions.MESSAGES)
    elsewhere = {versions.OPERATOR_LOG.where, versions.EVENT.where}
    assert {form.where for form in forms if form.covered_by is None} - elsewhere == READ


async def test_a_job_of_an_unknown_version_hides_no_other() -> None:
    """A list names it beside the others, and goes on behind it; one incident tells an operator."""
    world = Library()
    listed = [(await open_job(world, key=key)).id for key in ("a", "b", "c")]
    await world.renumber(job_path(listed[1]))
    seen: list[str] = []
    unreadable: list[str] = []
    cursor = ""
    for _ in listed:
        answer = await world.asked("GET", f"/v1/jobs?limit=1{cursor}")
        assert answer.status == 200, answer.body
        seen += [job["id"] for job in answer.body["jobs"]]
        unreadable += answer.body["unreadable"]
        cursor = f"&cursor={answer.body['next_cursor']}"
    assert sorted(seen) == sorted({*listed} - {listed[1]})
    assert unreadable == [listed[1]]
    assert answer.body["next_cursor"] is None
    assert incident_path(incident_id("unreadable_record", job_path(listed[1]))) in (
        world.ledger.stored()
    )


async def test_an_incident_of_an_unknown_version_hides_no_other() -> None:
    """A list shows it as what it is, among the others."""
    world = Library()
    for cause in ("a", "b"):
        await open_incident(world.api.services, "dead_letter", cause, tenant=TENANT, detail=cause)
    await world.renumber(incident_path(incident_id("dead_letter", "a")))
    answer = await world.asked("GET", "/v1/incidents?status=open")
    assert answer.status == 200
    shown = {incident["kind"]: incident["detail"] for incident in answer.body["incidents"]}
    assert shown["dead_letter"] == "b"
    assert str(NEWER) in shown["unreadable_record"]


async def test_the_command_line_says_which_key_it_cannot_read() -> None:
    """The list of keys ends with the path and the version, and no key is left out in silence."""
    world = Library()
    await give_key(world, KEY, tenant=TENANT, role=OPERATOR)
    await world.renumber(api_key_path(key_hash(KEY)))
    with pytest.raises(UnknownVersion, match=f"api_keys/.*{NEWER}"):
        await list_keys(world.ledger)
