"""A recording ledger over the real emulator, in the virtual time of a test.

The emulator decides every precondition and runs every query; a copy in memory remembers what was
applied. Its own times stand behind virtual ones: the two are kept apart by a table.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from functions.adapters.firestore import FirestoreLedger
from functions.adapters.memory import MemoryObjects
from functions.core.ports import SERVER_TIME, Create, Query, Snapshot, Update, Write
from tests.faults.fakes import RecordingLedger
from tests.virtual_loop import LoopClock

T = TypeVar("T")


class EmulatedLedger(RecordingLedger):
    """Time stands still while the emulator works; commits pass one after the other."""

    def __init__(self, clock: LoopClock, objects: MemoryObjects, real: FirestoreLedger) -> None:
        super().__init__(clock, objects)
        self._real = real
        self._time = clock
        self._one_commit = asyncio.Lock()
        self._virtual: dict[datetime, datetime] = {}  # update times, by the emulator's
        self._emulators: dict[datetime, datetime] = {}  # and the other way round

    async def get(self, *paths: str) -> list[Snapshot]:
        """Read from the emulator."""
        return self._seen(await self._outside(lambda: self._real.get(*paths)))

    async def query(self, query: Query) -> list[Snapshot]:
        """Run the query on the emulator."""
        return self._seen(await self._outside(lambda: self._real.query(query)))

    async def count(self, query: Query) -> int:
        """Count on the emulator."""
        return await self._outside(lambda: self._real.count(query))

    async def total(self, query: Query) -> int:
        """Sum on the emulator."""
        return await self._outside(lambda: self._real.total(query))

    async def commit(self, *writes: Write) -> datetime:
        """Commit on the emulator, then remember it, also when the caller dies meanwhile."""
        return await asyncio.shield(asyncio.ensure_future(self._commit(writes)))

    async def differences(self) -> list[str]:
        """Return the paths of what the emulator holds otherwise than the copy."""
        stored = self.stored()
        found = await self._outside(lambda: self._real.get(*stored))
        return [s.path for s in found if s.data != stored[s.path]]

    async def _commit(self, writes: Sequence[Write]) -> datetime:
        async with self._one_commit:
            timed = [self._timed(write) for write in writes]
            real = [self._with_real_time(write) for write in timed]
            committed = await self._outside(lambda: self._real.commit(*real))
            mine = self._apply([_unguarded(write) for write in timed])
            self._virtual[committed], self._emulators[mine] = mine, committed
            return mine

    async def _outside(self, call: Callable[[], Awaitable[T]]) -> T:
        with self._time.loop.outside():
            return await call()

    def _seen(self, snapshots: list[Snapshot]) -> list[Snapshot]:
        self._latest = max(self._time.now(), self._latest)
        return [
            replace(
                found,
                read_time=self._latest,
                update_time=self._virtual[found.update_time] if found.update_time else None,
            )
            for found in snapshots
        ]

    def _timed(self, write: Write) -> Write:
        """Return the write with the server's time filled in, in whole milliseconds."""
        now = self._time.now()
        now = now.replace(microsecond=now.microsecond // 1000 * 1000)

        def filled(fields: Any) -> dict[str, Any]:
            return {name: now if value is SERVER_TIME else value for name, value in fields.items()}

        if isinstance(write, Create):
            return replace(write, data=filled(write.data))
        return replace(write, fields=filled(write.fields))

    def _with_real_time(self, write: Write) -> Write:
        if isinstance(write, Update) and write.if_updated_at is not None:
            return replace(write, if_updated_at=self._emulators[write.if_updated_at])
        return write


def _unguarded(write: Write) -> Write:
    return replace(write, if_updated_at=None) if isinstance(write, Update) else write
