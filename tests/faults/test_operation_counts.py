"""What one acceptance and one seat cost in documents read and written: measured, and compared.

Counted as Firestore bills: each path of a read, also one that does not exist; each result of a
query, at least one; one for a count of up to a thousand; each document written. A commit that fails
on a precondition bills nothing; it is counted apart, as refused.

The tables are exact on purpose: a change that costs one more read shows here first.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from functions.core.errors import WriteConflict
from functions.core.ports import Ledger, Query, Snapshot, Write
from tests.faults.invariants import broken
from tests.faults.processes import DyingLedger
from tests.faults.world import World, submission

SEATS = 4
READS_PER_SEAT, WRITES_PER_SEAT = 6, 4  # the aim of the design

ACCEPTANCE = {"written: create jobs": 1}
IN_TURN = {
    "read: get jobs, evaluations, seats": 12,
    "read: get terminals": 4,
    "read: count": 4,
    "read: get seats, seats, seats, seats": 4,
    "written: create evaluations": 4,
    "written: update jobs": 1,
    "written: update evaluations, create seats": 8,
    "written: create terminals, create notifications, update jobs": 3,
}
# Once for each name that a tenant's model answers under, not for each seat.
NAMES_MET = {"written: create sightings": 4}
AT_ONCE = IN_TURN | {"read: count": 1}  # the last call in flight counts for all


@dataclass(frozen=True, kw_only=True)
class CountingLedger:
    """Counts documents, by the call that read or wrote them."""

    inner: Ledger
    documents: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    async def get(self, *paths: str) -> list[Snapshot]:
        self.documents[f"read: get {', '.join(map(_kind, paths))}"] += len(paths)
        return await self.inner.get(*paths)

    async def commit(self, *writes: Write) -> datetime:
        name = ", ".join(f"{type(w).__name__.lower()} {_kind(w.path)}" for w in writes)
        try:
            committed = await self.inner.commit(*writes)
        except WriteConflict:
            self.refused[name] += 1
            raise
        self.documents[f"written: {name}"] += len(writes)
        return committed

    async def query(self, query: Query) -> list[Snapshot]:
        found = await self.inner.query(query)
        self.documents[f"read: query {query.collection}"] += max(1, len(found))
        return found

    async def count(self, query: Query) -> int:
        number = await self.inner.count(query)
        self.documents["read: count"] += 1 + number // 1000
        return number

    async def total(self, query: Query) -> int:
        number = await self.inner.total(query)
        self.documents["read: total"] += 1 + number // 1000
        return number


def _kind(path: str) -> str:
    return path.split("/")[-2]


def counting_world(**options: Any) -> tuple[World, CountingLedger]:
    """Return a world whose processes count what they read and write."""
    world = World(**options)
    counting = CountingLedger(inner=world.ledger)
    for process in (world.api, world.evaluator):
        ledger = process.services.ledger
        assert isinstance(ledger, DyingLedger)
        object.__setattr__(ledger, "inner", counting)
    world.provider.seconds = 0.5  # shorter than a look for stops: they are counted by themselves
    return world, counting


def without_looks(counting: CountingLedger, most: int) -> None:
    """Leave the looks for pauses out of the count: they are per process and second, not per seat.

    While calls are in flight there is one a second; else one before a claim, every two seconds.
    """
    assert 1 <= counting.documents.pop("read: query providers") <= most


def total(documents: Counter[str], what: str) -> int:
    return sum(number for name, number in documents.items() if name.startswith(what))


async def four_seats(*, at_once: bool) -> tuple[World, CountingLedger]:
    """Run a job of four seats that all succeed at first; count from after the acceptance."""
    world, counting = counting_world()
    await world.submit(submission([f"m{index}" for index in range(SEATS)]))
    counting.documents.clear()
    await world.deliver_all(at_once=at_once)
    assert broken(world) == {}
    return world, counting


async def test_an_acceptance_writes_one_document_and_reads_none() -> None:
    """Accepting a new job is one write; its identity is looked up by the create itself.

    The first job of an hour in a process also makes the hour's window.
    """
    world, counting = counting_world()
    await world.submit(submission(["first"], key="first"))
    assert dict(counting.documents) == ACCEPTANCE | {"written: create windows": 1}
    counting.documents.clear()
    await world.submit(submission([f"m{index}" for index in range(SEATS)]))
    assert dict(counting.documents) == ACCEPTANCE


async def test_a_known_identity_costs_one_read() -> None:
    """Accepting the same request again reads the job and writes nothing."""
    world, counting = counting_world()
    await world.submit(submission())
    counting.documents.clear()
    await world.submit(submission())
    assert dict(counting.documents) == {"read: get jobs": 1}


async def test_the_seats_of_a_job_in_turn_cost_what_the_table_says() -> None:
    """Four seats, one after the other: at most 6 reads and 4 writes a seat, 1 object each."""
    world, counting = await four_seats(at_once=False)
    without_looks(counting, most=2)  # four calls of half a second
    assert dict(counting.documents) == IN_TURN | NAMES_MET
    assert not counting.refused
    assert total(counting.documents, "read") <= READS_PER_SEAT * SEATS
    written = total(counting.documents, "written") - sum(NAMES_MET.values())
    assert written <= WRITES_PER_SEAT * SEATS
    assert len(world.objects.names()) == SEATS


async def test_the_seats_of_a_job_at_once_cost_what_the_table_says() -> None:
    """Four seats at the same time: at most 6 reads and 4 writes a seat, 1 object each."""
    world, counting = await four_seats(at_once=True)
    without_looks(counting, most=1)
    assert dict(counting.documents) == AT_ONCE | NAMES_MET
    assert total(counting.documents, "read") <= READS_PER_SEAT * SEATS
    written = total(counting.documents, "written") - sum(NAMES_MET.values())
    assert written <= WRITES_PER_SEAT * SEATS
    assert len(world.objects.names()) == SEATS


async def test_a_name_that_is_known_is_not_written_again() -> None:
    """Another question to the same models notes no name twice; a new process is refused once."""
    world, counting = counting_world()
    for number, refused in ((1, 0), (2, 0), (3, 1)):
        if number == 3:
            world.evaluator.services.sightings._met.clear()  # what a new process knows
        await world.submit(submission(question=f"q{number}", key=f"{number}"))
        await world.deliver_all()
        assert counting.documents["written: create sightings"] == 1
        assert counting.refused["create sightings"] == refused


async def test_a_reused_seat_costs_no_claim() -> None:
    """A seat whose answer is stored is settled with three reads, one write and its close."""
    world, counting = counting_world()
    await world.submit(submission(key="first"))
    await world.deliver_all()
    await world.submit(submission(key="second"))
    counting.documents.clear()
    await world.deliver_all()
    assert dict(counting.documents) == {
        "read: get jobs, evaluations, seats": 3,
        "written: create seats": 1,
        "read: count": 1,
        "read: get seats": 1,
        "written: create terminals, create notifications, update jobs": 3,
    }


async def test_renewals_and_looks_are_extra_and_bounded() -> None:
    """A call of 25 s renews twice at a lease of 30 s; there are two looks each second."""
    world, counting = counting_world()
    world.provider.seconds = 25.0
    await world.submit(submission())
    counting.documents.clear()
    await asyncio.wait_for(world.deliver_all(), 30)
    assert counting.documents["written: update evaluations"] == 2
    assert counting.documents["read: query stops"] <= 25
    assert 20 <= counting.documents["read: query providers"] <= 26
