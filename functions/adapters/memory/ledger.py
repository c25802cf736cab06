"""The ledger in memory: documents, server time, atomic commits and preconditions.

Each method gives way to other tasks once before it touches a document, as a round trip would, and
then works without interruption. So every interleaving that a test makes is one of whole commits,
and a cancelled call has applied nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from functions.adapters.memory.queries import matching_paths, sort_key
from functions.adapters.values import (
    check_document_path,
    check_query,
    check_size,
    check_writes,
    normalize_document,
    summed_field,
)
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.ports import (
    Clock,
    Create,
    Query,
    Sentinel,
    Snapshot,
    Update,
    Write,
)

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Stored:
    data: dict[str, Any]
    update_time: datetime


class MemoryLedger:
    """A `Ledger` of one process. Its server time comes from `clock` and never stands still.

    Commit times strictly increase; a write that changes nothing keeps the `update_time`, and
    `SERVER_TIME` is cut to milliseconds, so it is not the commit's time: both as in Firestore.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._documents: dict[str, _Stored] = {}
        self._latest = datetime.min.replace(tzinfo=UTC)

    async def get(self, *paths: str) -> list[Snapshot]:
        """Read documents at one moment, in the order asked for."""
        await asyncio.sleep(0)
        return self._read(paths)

    async def commit(self, *writes: Write) -> datetime:
        """Apply all writes or none; return the commit's time.

        Raises:
            WriteConflict: a precondition did not hold.
            ValueError: a document breaks Firestore's rules.
        """
        await asyncio.sleep(0)
        return self._apply(writes)

    async def query(self, query: Query) -> list[Snapshot]:
        """Return the documents that match, at most `limit`.

        Raises:
            ValueError: a query that Firestore would refuse.
        """
        check_query(query)
        await asyncio.sleep(0)
        return self._read(self._matches(query))

    async def count(self, query: Query) -> int:
        """Return how many documents match.

        Raises:
            ValueError: a query that Firestore would refuse.
        """
        check_query(query)
        await asyncio.sleep(0)
        return len(self._matches(query))

    async def total(self, query: Query) -> int:
        """Return the sum of the whole numbers in the field that the query is ordered by.

        Raises:
            ValueError: a query that Firestore would refuse, or one without an order.
            LedgerUnavailable: the sum is no whole number.
        """
        field = summed_field(query)
        await asyncio.sleep(0)
        found = [self._documents[path].data[field] for path in self._matches(query)]
        if any(isinstance(value, float) for value in found):
            raise LedgerUnavailable(f"{field} holds more than whole numbers")
        return sum(value for value in found if type(value) is int)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return a copy of everything stored, by path: for assertions over the whole ledger."""
        return {path: deepcopy(stored.data) for path, stored in self._documents.items()}

    def _matches(self, query: Query) -> list[str]:
        return matching_paths(query, {path: s.data for path, s in self._documents.items()})

    def _read(self, paths: Sequence[str]) -> list[Snapshot]:
        for path in paths:
            check_document_path(path)
        self._latest = max(self._clock.now(), self._latest)
        return [self._snapshot(path) for path in paths]

    def _snapshot(self, path: str) -> Snapshot:
        stored = self._documents.get(path)
        if stored is None:
            return Snapshot(path=path, data=None, read_time=self._latest)
        return Snapshot(
            path=path,
            data=deepcopy(stored.data),
            read_time=self._latest,
            update_time=stored.update_time,
        )

    def _apply(self, writes: Sequence[Write]) -> datetime:
        check_writes(writes)
        commit_time = max(self._clock.now(), self._latest + _TICK)
        staged = {write.path: self._stage(write, commit_time) for write in writes}
        self._latest = commit_time
        self._documents.update(staged)
        return commit_time

    def _stage(self, write: Write, commit_time: datetime) -> _Stored:
        before = self._documents.get(write.path)
        data = _resolve(write, before.data if before else {}, commit_time)
        check_size(write.path, data)
        _check_precondition(write, before)
        # Python's equality is quick, but takes True for 1.
        if before is not None and before.data == data and sort_key(before.data) == sort_key(data):
            return before
        return _Stored(data, commit_time)


def _resolve(write: Write, before: Mapping[str, Any], commit_time: datetime) -> dict[str, Any]:
    fields = normalize_document(write.data if isinstance(write, Create) else write.fields)
    millisecond = commit_time.replace(microsecond=commit_time.microsecond // 1000 * 1000)
    named = {k: millisecond if v is Sentinel.SERVER_TIME else v for k, v in fields.items()}
    return {k: v for k, v in {**before, **named}.items() if v is not Sentinel.DELETE}


def _check_precondition(write: Write, before: _Stored | None) -> None:
    match write, before:
        case Create(), _Stored():
            raise WriteConflict(f"{write.path} exists")
        case Update(), None:
            raise WriteConflict(f"{write.path} does not exist")
        case Update(if_updated_at=datetime() as expected), _Stored(update_time=have) if (
            have != expected
        ):
            raise WriteConflict(f"{write.path} was updated at {have}, not {expected}")
