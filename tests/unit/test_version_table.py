"""Everything that is stored or sent carries a version of the table; older versions are read."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import functions
from functions import dispatch, outbox
from functions.audit import audit
from functions.core import documents
from functions.core.audits import Findings, read_findings
from functions.core.documents import changes, from_document, seat_path, to_document
from functions.core.errors import UnknownVersion, UnreadableRecord
from functions.core.jobs import JobState, SeatRecord, SeatState
from functions.core.ports import DELETE, Message
from functions.core.versions import (
    EVENT,
    MESSAGES,
    NOTIFICATION_MESSAGE,
    OBJECTS,
    RECORDS,
    SEAT,
    SEAT_MESSAGE,
    Form,
    unchanged,
)
from functions.dispatch import encode, seat_message
from functions.incidents import open_incident
from functions.tenant_caps import tenant_caps
from tests.faults.fakes import failure
from tests.faults.notifying import NOTIFY_TOPIC
from tests.faults.world import TENANT, TOPIC
from tests.unit.records import every_record
from tests.unit.test_versions import Library, open_job

SOURCE = Path(functions.__file__).parent
CAPPED = tenant_caps({}, day_requests=1000, day_cost_usd=0, open_seats=0)


def collection_of(path: str) -> str:
    """Return the collection of a document, with `*` for the names in it."""
    parts = path.split("/")[:-1]
    return "/".join("*" if number % 2 else part for number, part in enumerate(parts))


def folder_of(name: str) -> str:
    """Return the folder of an object, as the table names it."""
    top, *parts = name.split("/")
    return f"audits/*/*/{parts[-1].partition('-')[0]}" if top == "audits" else top


async def lived() -> Library:
    """Return a world in which everything that is ever stored or sent has been."""
    world = Library(tenant_caps=CAPPED)
    job = await world.ended(question="large", key="large", filler=40_000, max_requests=1)
    put = f"/v1/decisions/{job.decision_id}/actions/publish"
    assert (await world.asked("PUT", put, body={"holder": "me"})).status == 201
    world.provider.script = lambda request, number: failure(
        "rate_limited" if number == 1 else "invalid_request", http_status=429, hint_seconds=30.0
    )
    failed = await world.ended(question="failing", key="failing")
    await world.settle()
    world.provider.script = world.provider.answer
    await world.replay(failed)
    await open_job(world, question="lost", key="lost")
    stopped = await open_job(world, question="stopped", key="stopped")
    await world.cancel(stopped)
    await world.settle()
    await open_incident(world.api.services, "dead_letter", "x", tenant=TENANT, detail="x")
    world.clock.advance(7200.0)
    await audit(world.reconciler.services)
    return world


async def test_every_document_carries_a_version_of_the_table() -> None:
    """No collection is missing in the table, none in it is missing here."""
    world = await lived()
    forms = {form.where: form for form in RECORDS}
    stored = world.ledger.stored()
    assert {collection_of(path) for path in stored} == forms.keys()
    for path, data in stored.items():
        assert data.get("v") == forms[collection_of(path)].written, path
        assert type(data["v"]) is int


async def test_every_object_carries_a_version_of_the_table() -> None:
    """Or it is reached through a record whose version covers it, and the table says which."""
    world = await lived()
    forms = {form.where: form for form in OBJECTS}
    names = world.objects.names()
    assert {folder_of(name) for name in names} == forms.keys()
    for name in names:
        form = forms[folder_of(name)]
        if form.covered_by is None:
            content = json.loads(world.objects._objects[name].data)
            assert content["v"] == form.written, name
        else:
            assert form.covered_by in {other.where for other in (*RECORDS, *OBJECTS)}


async def test_every_message_carries_a_version_of_the_table() -> None:
    """Those that we read in their body, the event of others in its own attribute."""
    world = await lived()
    for topic, form in ((TOPIC, SEAT_MESSAGE), (NOTIFY_TOPIC, NOTIFICATION_MESSAGE)):
        messages = world.topics.messages(topic)
        assert messages
        assert {json.loads(message.data)["v"] for message in messages} == {form.written}
    assert world.events()
    schemas = {event.attributes["ce-dataschema"] for event in world.events()}
    assert schemas == {f"urn:empanel:event:{EVENT.written}"}
    assert len(MESSAGES) == 3


def test_no_source_names_a_collection_without_its_form() -> None:
    """A new kind of document has its line in the table before anything can be stored in it."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if "adapters" in path.parts:
            continue  # they take any path
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'collection=f?"(\w+)', text))
        found |= set(re.findall(r'path=f"(\w+)/', text))
        if path.name == "documents.py":
            found |= set(re.findall(r'return f"(\w+)/', text))
    assert found >= {"jobs", "operator_log", "repairs", "providers", "decisions"}
    assert found <= {form.where.partition("/")[0] for form in RECORDS}


def test_records_are_read_and_written_by_the_table() -> None:
    """Each type of record has the form whose version its new records have."""
    for kind, form in documents.FORMS.items():
        assert kind.__dataclass_fields__["v"].default == form.written
        assert form in RECORDS


@pytest.mark.parametrize("version", [None, "1", True, 1.0, 2, -1, 0, [1]], ids=repr)
def test_what_is_no_known_version_is_not_guessed_at(version: object) -> None:
    """True and 1.0 equal 1 in Python, and are no versions."""
    with pytest.raises(UnknownVersion, match=r"jobs/x: schema version .* is unknown"):
        Form(where="jobs").read({"v": version}, "jobs/x")
    with pytest.raises(UnknownVersion, match="jobs/x: schema version 0 is unknown"):
        Form(where="jobs").read({}, "jobs/x")


def test_a_version_in_name_only_is_unreadable() -> None:
    """What an older version promised, and is not there, is named; nothing is made up."""
    form = Form(where="jobs", written=2, upgrades={1: lambda fields: {"new": fields["old"]}})
    assert form.read({"v": 1, "old": "a"}, "jobs/x") == {"v": 1, "new": "a"}
    with pytest.raises(UnreadableRecord, match="jobs/x: not what version 1 is"):
        form.read({"v": 1}, "jobs/x")


# A later release of ours: each kind that crosses a deploy, one version on.


def later(form: Form, upgrade: Any) -> Form:
    """Return the form as the next release would have it: it writes 2, and reads 1 as well."""
    return replace(form, written=form.written + 1, upgrades={form.written: upgrade})


def earlier(form: Form) -> Form:
    """Return the form as the release between them has it: it writes 1, and reads 2 as well."""
    return replace(form, upgrades={form.written + 1: unchanged})


async def test_a_seat_message_of_the_version_before_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old release published it, the new one reads it: the job succeeds, nobody is called."""
    world = Library()
    job = await open_job(world)
    old = encode(seat_message(job, 0))
    renamed = {"seat_index": "seat"}

    def upgrade(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {renamed.get(name, name): value for name, value in fields.items()}

    body = json.loads(old.data)
    body["seat_index"] = body.pop("seat")  # as if version 1 had called it so
    monkeypatch.setattr(dispatch, "SEAT_MESSAGE", later(SEAT_MESSAGE, upgrade))
    assert await world.pushed(replace(old, data=json.dumps(body).encode())) == 204
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert json.loads(encode(seat_message(job, 0)).data)["v"] == 2
    assert not world.incidents()


async def test_a_seat_message_of_the_version_after_is_processed_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new release published it, an instance of the old one reads it: both work at once."""
    world = Library()
    job = await open_job(world)
    new = encode(seat_message(job, 0))
    new = replace(new, data=json.dumps(json.loads(new.data) | {"v": 2, "more": "x"}).encode())
    monkeypatch.setattr(dispatch, "SEAT_MESSAGE", earlier(SEAT_MESSAGE))
    assert await world.pushed(new) == 204
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert json.loads(encode(seat_message(job, 0)).data)["v"] == 1
    assert not world.incidents()


async def test_an_announcement_of_the_version_before_is_processed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The notification goes out, whichever release announced it."""
    world = Library()
    await world.ended()
    [old] = world.announcements()
    monkeypatch.setattr(outbox, "NOTIFICATION_MESSAGE", later(NOTIFICATION_MESSAGE, unchanged))
    assert await world.deliver_notification(old) == 204
    assert world.notification().delivered
    assert not world.incidents()


async def test_a_record_of_the_version_before_is_read_and_moved_on_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps its version until it is changed; then all its fields are of the new one."""
    old = to_document(every_record()[2])
    old["place"] = old.pop("seat")  # as if version 1 had called it so

    def upgrade(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"seat" if name == "place" else name: value for name, value in fields.items()}

    monkeypatch.setitem(documents.FORMS, SeatRecord, later(SEAT, upgrade))
    record = from_document(SeatRecord, old, seat_path("job", 1, 0))
    assert (record.seat, record.v) == ("fake/m0", 1)
    assert changes(record, record) == {}
    after = replace(record, state=SeatState.SUCCEEDED, error=None)
    fields = changes(record, after)
    assert fields.pop("error") is DELETE
    assert fields == to_document(after)
    assert fields["v"] == 2


def test_a_report_from_before_reports_had_versions_is_read() -> None:
    """Their form was the one of version 1."""
    content = Findings(attempts=3)
    old = {name: value for name, value in content.full().items() if name != "v"}
    assert read_findings(old, "report") == content
    assert read_findings(content.full(), "report") == content
    with pytest.raises(UnknownVersion, match="report: schema version 2"):
        read_findings(content.full() | {"v": 2}, "report")


def test_messages_without_a_version_are_refused() -> None:
    """Nothing was ever sent without one."""
    for decode in (dispatch.decode, outbox.decode):
        with pytest.raises(UnknownVersion):
            decode(Message(data=b"{}"))
