"""Records to documents and back: nothing is lost, and what cannot be read says where."""

import traceback
from dataclasses import replace
from typing import Any

import pytest

from functions.adapters.values import normalize_document
from functions.core.documents import changes, from_document, from_snapshot, to_document
from functions.core.errors import UnreadableRecord
from functions.core.jobs import Evaluation, Job, Outcome, SeatRecord, Terminal
from functions.core.ports import DELETE, Snapshot
from tests.unit.records import at, attempt, evaluation, every_record, job

KINDS = (Job, Evaluation, SeatRecord, Terminal)
FULL = every_record()
BARE = (
    job(check_at=None),
    evaluation(),
    replace(FULL[2], started_at=None, output=None, error=None, due_at=None, attempts=()),
    replace(FULL[3], seats=()),
)


@pytest.mark.parametrize(("kind", "record"), [*zip(KINDS, FULL, strict=True)])
def test_a_full_record_survives_the_round_trip(kind: type[Any], record: Any) -> None:
    """Each field of each record comes back as it was, types included."""
    back: Any = from_document(kind, to_document(record), "path")
    assert back == record
    assert type(back) is kind


@pytest.mark.parametrize(("kind", "record"), [*zip(KINDS, BARE, strict=True)])
def test_a_bare_record_survives_the_round_trip(kind: type[Any], record: Any) -> None:
    """Absent fields come back as None or as their defaults."""
    assert from_document(kind, to_document(record), "path") == record


@pytest.mark.parametrize("record", FULL + BARE)
def test_documents_hold_only_what_the_ledger_takes(record: Any) -> None:
    """Every document passes the store's own check of values."""
    normalize_document(to_document(record))


@pytest.mark.parametrize("record", FULL + BARE)
def test_no_document_holds_a_none(record: Any) -> None:
    """What is None is absent, at any depth, so that timers leave their index."""

    def nones(value: Any) -> bool:
        if isinstance(value, dict):
            return any(map(nones, value.values()))
        if isinstance(value, list):
            return any(map(nones, value))
        return value is None

    assert not nones(to_document(record))


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_an_unknown_version_is_not_guessed_at(version: object) -> None:
    """A document of another version, or of none, is unreadable, and the text names its path."""
    document = to_document(job()) | {"v": version}
    with pytest.raises(UnreadableRecord, match=r"jobs/x: schema version .* is unknown"):
        from_document(Job, document, "jobs/x")


@pytest.mark.parametrize(
    ("kind", "record", "field", "value"),
    [
        (Job, FULL[0], "state", "sleeping"),
        (Job, FULL[0], "run", "first"),
        (Job, FULL[0], "deadline_at", "soon"),
        (Job, FULL[0], "seats", [{"seat": "only a name"}]),
        (Evaluation, FULL[1], "token", None),
        (Evaluation, FULL[1], "attempts", [{"job": 1}]),
        (SeatRecord, FULL[2], "output", {"uri": "gs://b/o"}),
        (Terminal, FULL[3], "totals", []),
    ],
)
def test_a_malformed_field_is_named(kind: type[Any], record: Any, field: str, value: Any) -> None:
    """A field of the wrong form makes the record unreadable; the text names path and field."""
    with pytest.raises(UnreadableRecord, match=f"some/path: unreadable field .*{field}"):
        from_document(kind, to_document(record) | {field: value}, "some/path")


@pytest.mark.parametrize("field", ["tenant", "seats", "policy", "run_at", "digests"])
def test_a_missing_field_is_named(field: str) -> None:
    """A document without a field that its version promises is unreadable."""
    document = to_document(job())
    del document[field]
    with pytest.raises(UnreadableRecord, match=field):
        from_document(Job, document, "jobs/x")


def test_what_a_malformed_field_holds_is_in_no_log() -> None:
    """The stack of the error, which is logged as a whole, names places and no values."""
    document = to_document(job()) | {"inputs": {"facts": ["planted"], "rubric": "planted"}}
    with pytest.raises(UnreadableRecord) as caught:
        from_document(Job, document, "jobs/x")
    assert "planted" not in "".join(traceback.format_exception(caught.value))


def test_a_document_that_does_not_exist_is_no_record() -> None:
    """Absence is None, not an error."""
    assert from_snapshot(Job, Snapshot(path="jobs/x", data=None, read_time=at(0))) is None


def test_changes_name_only_what_differs() -> None:
    """The update from one record to another sets what changed and deletes what went."""
    before = evaluation(attempt(1, Outcome.RUNNING), holder="h", lease_until=at(30), wake_at=at(30))
    after = replace(before, holder=None, lease_until=at(40), wake_at=None)
    assert changes(before, after) == {"holder": DELETE, "lease_until": at(40), "wake_at": DELETE}
    assert changes(before, before) == {}


def test_changes_lead_from_one_document_to_the_other() -> None:
    """Applied to the document of the first, the changes give the document of the second."""
    before, after = evaluation(), FULL[1]
    document = to_document(before)
    for name, value in changes(before, after).items():
        if value is DELETE:
            del document[name]
        else:
            document[name] = value
    assert document == to_document(after)
