"""What every ledger promises about reads, commits, preconditions and the server's time."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any

import pytest

from functions.core.errors import WriteConflict
from functions.core.ports import DELETE, SERVER_TIME, Create, Ledger, Snapshot, Update

MILLISECOND = timedelta(milliseconds=1)


class Colour(StrEnum):
    """A word as the records use them."""

    RED = "red"


async def read(ledger: Ledger, path: str) -> Snapshot:
    """Read one document."""
    [snapshot] = await ledger.get(path)
    return snapshot


async def test_get_keeps_the_order_and_tells_what_is_missing(ledger: Ledger) -> None:
    """Snapshots come in the order asked for, missing and repeated documents included."""
    await ledger.commit(Create(path="a/1", data={"n": 1}), Create(path="a/2", data={"n": 2}))
    found = await ledger.get("a/2", "a/none", "a/1", "a/2")
    assert [(s.path, s.id, s.exists) for s in found] == [
        ("a/2", "2", True),
        ("a/none", "none", False),
        ("a/1", "1", True),
        ("a/2", "2", True),
    ]
    assert [s.data for s in found] == [{"n": 2}, None, {"n": 1}, {"n": 2}]
    assert found[1].update_time is None
    assert {s.read_time.utcoffset() for s in found} == {timedelta(0)}


async def test_get_of_nothing_is_nothing(ledger: Ledger) -> None:
    """Reading no paths returns no snapshots."""
    assert await ledger.get() == []


async def test_create_never_replaces(ledger: Ledger) -> None:
    """A second create of a document is a conflict and changes nothing."""
    await ledger.commit(Create(path="a/1", data={"n": 1}))
    with pytest.raises(WriteConflict):
        await ledger.commit(Create(path="a/1", data={"n": 2}))
    assert (await read(ledger, "a/1")).data == {"n": 1}


async def test_racing_creates_have_one_winner(ledger: Ledger) -> None:
    """Of 20 concurrent creates of one document one wins, and its data are what is stored."""

    async def create(n: int) -> int | None:
        try:
            await ledger.commit(Create(path="a/1", data={"n": n}))
        except WriteConflict:
            return None
        return n

    winners = [n for n in await asyncio.gather(*map(create, range(20))) if n is not None]
    assert [(await read(ledger, "a/1")).data] == [{"n": n} for n in winners]


async def test_update_sets_only_what_it_names(ledger: Ledger) -> None:
    """An update sets and deletes the named fields and keeps all the others."""
    await ledger.commit(Create(path="a/1", data={"keep": 1, "set": {"x": 1}, "drop": 3}))
    await ledger.commit(Update(path="a/1", fields={"set": {"y": 2}, "drop": DELETE, "new": 4}))
    assert (await read(ledger, "a/1")).data == {"keep": 1, "set": {"y": 2}, "new": 4}


async def test_update_only_by_server_time_keeps_the_rest(ledger: Ledger) -> None:
    """An update that names nothing but a server time keeps all the other fields."""
    await ledger.commit(Create(path="a/1", data={"keep": 1}))
    await ledger.commit(Update(path="a/1", fields={"at": SERVER_TIME}))
    data = (await read(ledger, "a/1")).data
    assert data is not None
    assert data.keys() == {"keep", "at"}


async def test_update_needs_the_document(ledger: Ledger) -> None:
    """An update of a missing document is a conflict and creates nothing."""
    with pytest.raises(WriteConflict):
        await ledger.commit(Update(path="a/1", fields={"n": 1}))
    with pytest.raises(WriteConflict):
        await ledger.commit(
            Update(path="a/1", fields={"n": 1}, if_updated_at=datetime(2026, 1, 1, tzinfo=UTC))
        )
    assert not (await read(ledger, "a/1")).exists


async def test_update_holds_only_at_the_time_that_was_read(ledger: Ledger) -> None:
    """An update with a stale `update_time` is a conflict; with the current one it holds."""
    created = await ledger.commit(Create(path="a/1", data={"n": 1}))
    updated = await ledger.commit(Update(path="a/1", fields={"n": 2}, if_updated_at=created))
    with pytest.raises(WriteConflict):
        await ledger.commit(Update(path="a/1", fields={"n": 3}, if_updated_at=created))
    snapshot = await read(ledger, "a/1")
    assert (snapshot.data, snapshot.update_time) == ({"n": 2}, updated)


async def test_preconditioned_increments_lose_nothing(ledger: Ledger) -> None:
    """20 writers that read, increment with a precondition and repeat on conflict count to 20."""
    await ledger.commit(Create(path="a/1", data={"n": 0}))

    async def increment() -> None:
        while True:
            snapshot = await read(ledger, "a/1")
            assert snapshot.data is not None
            fields = {"n": snapshot.data["n"] + 1}
            try:
                await ledger.commit(
                    Update(path="a/1", fields=fields, if_updated_at=snapshot.update_time)
                )
            except WriteConflict:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(20)))
    assert (await read(ledger, "a/1")).data == {"n": 20}


async def test_a_commit_is_applied_whole_or_not_at_all(ledger: Ledger) -> None:
    """One precondition that does not hold undoes every write of its commit."""
    await ledger.commit(Create(path="a/1", data={"n": 1}), Create(path="a/2", data={"n": 1}))
    with pytest.raises(WriteConflict):
        await ledger.commit(
            Update(path="a/1", fields={"n": 2}),
            Create(path="a/3", data={}),
            Create(path="a/2", data={"n": 2}),
        )
    assert [s.data for s in await ledger.get("a/1", "a/2", "a/3")] == [{"n": 1}, {"n": 1}, None]


async def test_the_commit_time_is_the_update_time_of_all_its_documents(ledger: Ledger) -> None:
    """Each changed document carries the commit's time, which later commits and reads exceed."""
    first = await ledger.commit(Create(path="a/1", data={}), Create(path="b/1", data={}))
    found = await ledger.get("a/1", "b/1", "a/none")
    assert [s.update_time for s in found] == [first, first, None]
    assert all(s.read_time >= first for s in found)
    second = await ledger.commit(Update(path="a/1", fields={"n": 1}))
    assert second > first
    assert [s.update_time for s in await ledger.get("a/1", "b/1")] == [second, first]


async def test_an_update_that_changes_nothing_keeps_the_update_time(ledger: Ledger) -> None:
    """A no-op commit succeeds with a time of its own and leaves the document's."""
    created = await ledger.commit(Create(path="a/1", data={"n": 1}))
    assert await ledger.commit(Update(path="a/1", fields={"n": 1})) > created
    assert (await read(ledger, "a/1")).update_time == created


async def test_server_time_is_the_request_s_time_in_milliseconds(ledger: Ledger) -> None:
    """A server time lies between an earlier read and its commit, is whole in milliseconds, and is
    one and the same in all documents of a commit."""
    before = (await read(ledger, "a/1")).read_time
    committed = await ledger.commit(
        Create(path="a/1", data={"at": SERVER_TIME, "also": SERVER_TIME}),
        Create(path="a/2", data={"at": SERVER_TIME}),
    )
    times = {time for s in await ledger.get("a/1", "a/2") for time in (s.data or {}).values()}
    [time] = times
    assert before - MILLISECOND < time <= committed
    assert time.microsecond % 1000 == 0


async def test_values_come_back_as_plain_python(ledger: Ledger) -> None:
    """What was stored comes back: tuples as lists, words as strings, times as aware UTC."""
    at = datetime(2026, 11, 29, 13, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    data: dict[str, Any] = {
        "tuple": (1, {"x": (2,)}),
        "word": Colour.RED,
        "time": at,
        "none": None,
        "flag": True,
        "integers": [-(2**63), 2**63 - 1],
        "float": 1.0,
        "bytes": b"\x00\xff",
        "text": "ü\u2028\x00",
        "empty": {"map": {}, "list": [], "text": "", "bytes": b""},
    }
    await ledger.commit(Create(path="a/1", data=data))
    found = (await read(ledger, "a/1")).data
    assert found == data | {"tuple": [1, {"x": [2]}], "time": at.astimezone(UTC)}
    assert {name: type(found[name]) for name in ("word", "flag", "float")} == {
        "word": str,
        "flag": bool,
        "float": float,
    }
    assert found["time"].utcoffset() == timedelta(0)


async def test_any_text_can_name_a_field(ledger: Ledger) -> None:
    """Names with dots, backticks, digits in front and spaces are one field each."""
    names = ["a.b", "1a", "ü`\\", "with space", "a/b", "a[0]"]
    await ledger.commit(Create(path="a/1", data=dict.fromkeys(names, 1)))
    await ledger.commit(Update(path="a/1", fields=dict.fromkeys(names, 2) | {"x.at": SERVER_TIME}))
    data = (await read(ledger, "a/1")).data
    assert data is not None
    assert data.keys() == {*names, "x.at"}
    assert {data[name] for name in names} == {2}


REFUSED: dict[str, Any] = {
    "nested array": [[1]],
    "array in a tuple in a map": {"x": ((1,),)},
    "time without zone": datetime(2026, 1, 1),  # noqa: DTZ001 - that is the mistake
    "integer beyond 64 bits": 2**63,
    "set": {1, 2},
    "object": object(),
    "lone surrogate": "\ud800",
    "reserved name": {"__x__": 1},
    "empty name": {"": 1},
    "name that is no text": {1: 1},
    "server time in a map": {"at": SERVER_TIME},
    "too deep": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": {
        "x": {"x": {"x": {"x": {"x": {"x": {"x": {"x": 1}}}}}}}}}}}}}}}}}}}}},
}  # fmt: skip


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED.keys())
async def test_what_no_document_can_hold_is_refused(ledger: Ledger, value: Any) -> None:
    """A value against Firestore's rules is a ValueError, and nothing of the commit is applied."""
    await ledger.commit(Create(path="a/1", data={}))
    with pytest.raises(ValueError, match="field"):
        await ledger.commit(
            Create(path="a/2", data={}), Update(path="a/1", fields={"field": value})
        )
    assert [s.data for s in await ledger.get("a/1", "a/2")] == [{}, None]


async def test_a_document_over_one_mebibyte_is_refused(ledger: Ledger) -> None:
    """Neither a create nor a growing update makes a document of more than 1 MiB."""
    half = "x" * (600 * 1024)
    with pytest.raises(ValueError, match=r"1 MiB|maximum"):
        await ledger.commit(Create(path="a/1", data={"one": half, "two": half}))
    await ledger.commit(Create(path="a/1", data={"one": half}))
    with pytest.raises(ValueError, match=r"1 MiB|maximum"):
        await ledger.commit(Update(path="a/1", fields={"two": half}))
    assert (await read(ledger, "a/1")).data == {"one": half}


@pytest.mark.parametrize("path", ["a", "a/1/b", "", "a//b/c", "a/", "/1", "a/.", "a/__x__"])
async def test_a_path_must_name_a_document(ledger: Ledger, path: str) -> None:
    """A path that is no document's is a ValueError for reads and writes."""
    with pytest.raises(ValueError, match="path"):
        await ledger.get(path)
    with pytest.raises(ValueError, match="path"):
        await ledger.commit(Create(path=path, data={}))


async def test_a_commit_that_means_nothing_is_refused(ledger: Ledger) -> None:
    """No writes, an update of no field, or two writes of one document are ValueErrors."""
    with pytest.raises(ValueError, match="needs a write"):
        await ledger.commit()
    with pytest.raises(ValueError, match="name a field"):
        await ledger.commit(Update(path="a/1", fields={}))
    with pytest.raises(ValueError, match="once only"):
        await ledger.commit(Create(path="a/1", data={}), Update(path="a/1", fields={"n": 1}))
    with pytest.raises(ValueError, match="delete"):
        await ledger.commit(Create(path="a/1", data={"n": DELETE}))
    assert not (await read(ledger, "a/1")).exists


async def test_the_ledger_shares_no_value_with_its_callers(ledger: Ledger) -> None:
    """Changing what was written or read changes nothing that is stored."""
    data: dict[str, Any] = {"list": [1], "map": {"x": [1]}}
    await ledger.commit(Create(path="a/1", data=data))
    data["list"].append(2)
    found = (await read(ledger, "a/1")).data
    assert found is not None
    found["map"]["x"].append(2)
    assert (await read(ledger, "a/1")).data == {"list": [1], "map": {"x": [1]}}
