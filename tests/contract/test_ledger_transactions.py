"""What every ledger promises about transactions: whole, bounded in time, never left open."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import pytest

from functions.core.errors import WriteConflict
from functions.core.ports import Create, Decision, Ledger, Snapshot, Update, Write

LOCK_TIMEOUT_SECONDS = 2.0  # of the emulator: who waits for a lock waits at least this long


class Refused(Exception):
    """What a decision raises here."""


def increment(snapshots: Sequence[Snapshot]) -> Decision[int]:
    """Count up the first document."""
    data = snapshots[0].data
    assert data is not None
    return data["n"] + 1, [Update(path=snapshots[0].path, fields={"n": data["n"] + 1})]


def refuse(snapshots: Sequence[Snapshot]) -> Decision[int]:
    """Fail after the read."""
    raise Refused(snapshots[0].path)


def _decide(writes: Sequence[Write], _: Sequence[Snapshot]) -> Decision[int]:
    return 0, writes


async def assert_unlocked(ledger: Ledger, path: str) -> None:
    """A transaction on the document gets its locks without waiting for another's to end."""
    async with asyncio.timeout(LOCK_TIMEOUT_SECONDS * 0.75):
        await ledger.transact([path], increment)


async def number(ledger: Ledger, path: str) -> int:
    """Read the document's number."""
    [snapshot] = await ledger.get(path)
    assert snapshot.data is not None
    n: int = snapshot.data["n"]
    return n


@pytest.fixture(autouse=True)
async def _document(ledger: Ledger) -> None:
    await ledger.commit(Create(path="a/1", data={"n": 0}))


async def test_a_transaction_reads_decides_and_writes(ledger: Ledger) -> None:
    """It returns the decision's value and the commit's time, which is the update time."""
    value, committed = await ledger.transact(
        ["a/none", "a/1"],
        lambda found: (
            [s.exists for s in found],
            [Create(path="a/none", data={}), Update(path="a/1", fields={"n": 5})],
        ),
    )
    assert value == [False, True]
    assert [(s.data, s.update_time) for s in await ledger.get("a/none", "a/1")] == [
        ({}, committed),
        ({"n": 5}, committed),
    ]


async def test_a_transaction_without_writes_has_no_time_and_leaves_no_lock(ledger: Ledger) -> None:
    """A decision without writes returns its value and None, and frees the documents."""
    assert await ledger.transact(["a/1"], lambda found: (found[0].data, [])) == ({"n": 0}, None)
    await assert_unlocked(ledger, "a/1")


async def test_a_transaction_keeps_preconditions(ledger: Ledger) -> None:
    """A create of an existing document, or a stale update, is a conflict and applies nothing."""
    stale = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    lost: tuple[Write, ...] = (
        Create(path="a/1", data={}),
        Update(path="a/none", fields={"n": 1}),
        Update(path="a/1", fields={"n": 9}, if_updated_at=stale),
    )
    for write in lost:
        writes = [Create(path="a/2", data={}), write]
        with pytest.raises(WriteConflict):
            await ledger.transact(["a/1"], partial(_decide, writes))
    assert await number(ledger, "a/1") == 0
    assert [s.exists for s in await ledger.get("a/2", "a/none")] == [False, False]
    await assert_unlocked(ledger, "a/1")


async def test_a_decision_that_fails_changes_nothing_and_leaves_no_lock(ledger: Ledger) -> None:
    """The decision's exception comes out, and the documents are free."""
    with pytest.raises(Refused):
        await ledger.transact(["a/1"], refuse)
    assert await number(ledger, "a/1") == 0
    await assert_unlocked(ledger, "a/1")


async def test_values_refused_in_a_transaction_leave_no_lock(ledger: Ledger) -> None:
    """A document that breaks the rules is a ValueError, and the documents are free."""
    with pytest.raises(ValueError, match="array"):
        await ledger.transact(["a/1"], lambda _: (0, [Update(path="a/1", fields={"n": [[1]]})]))
    await assert_unlocked(ledger, "a/1")


async def test_a_transaction_must_read(ledger: Ledger) -> None:
    """Without a document to lock there is nothing to decide about."""
    with pytest.raises(ValueError, match="at least one"):
        await ledger.transact([], lambda _: (0, [Create(path="a/2", data={})]))


async def test_contention_ends_in_bounded_time_and_loses_nothing(ledger: Ledger) -> None:
    """Of racing transactions each commits or has a conflict, soon, and the sum is exact."""

    async def attempt() -> int:
        try:
            await ledger.transact(["a/1"], increment)
        except WriteConflict:
            return 0
        return 1

    async with asyncio.timeout(4 * LOCK_TIMEOUT_SECONDS):
        committed = sum(await asyncio.gather(*(attempt() for _ in range(5))))
    assert await number(ledger, "a/1") == committed


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30])
async def test_a_cancelled_transaction_leaves_no_lock(ledger: Ledger, steps: int) -> None:
    """Wherever a cancellation strikes, it comes out, and the documents are free at once."""
    transaction = asyncio.create_task(ledger.transact(["a/1"], increment))
    for _ in range(steps):
        await asyncio.sleep(0.0005)  # not a wait for anything: it spreads the moments
    transaction.cancel()
    [outcome] = await asyncio.gather(transaction, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError | tuple)
    await assert_unlocked(ledger, "a/1")
    assert await number(ledger, "a/1") in (1, 2)
