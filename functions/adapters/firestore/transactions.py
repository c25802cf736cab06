"""How a transaction begins and is rolled back, so that none is ever abandoned.

A transaction that nobody ends keeps its locks for a minute. Its ID arrives with the first read; so
that read, and every rollback, runs in a task of its own that ends even when the caller is
cancelled. The caller waits for that end; only a second cancellation does not, and then `aclose`
waits.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from google.api_core.exceptions import GoogleAPICallError

from functions.adapters.firestore.connection import Connection
from functions.adapters.firestore.documents import BatchGet
from functions.adapters.firestore.errors import committing
from functions.adapters.firestore.requests import batch_get_request
from functions.core.ports import T

_LOG = logging.getLogger(__name__)
_ROLLBACK_SECONDS = 2.0


class Transactions:
    """Begins and rolls back transactions on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, paths: Sequence[str]) -> BatchGet:
        """Start a transaction with its read of `paths`.

        Raises:
            WriteConflict: another transaction has the locks.
            LedgerUnavailable: no certain answer.
        """
        read = BatchGet(self._connection.root)
        receiving = self._spawn(self._receive(read, paths))
        try:
            await asyncio.shield(receiving)
        except asyncio.CancelledError:
            await self._to_the_end(self._undo(receiving, read))
            raise
        return read

    async def roll_back(self, transaction: bytes) -> None:
        """Give the locks back. A failure is logged: the server frees them after a minute."""
        await self._to_the_end(self._roll_back(transaction))

    async def wait(self) -> None:
        """Return once everything that was begun has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`; a cancellation that comes meanwhile goes on once it has ended."""
        ending = self._spawn(work)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _receive(self, read: BatchGet, paths: Sequence[str]) -> None:
        request = batch_get_request(self._connection.database, dict.fromkeys(paths), locking=True)
        try:
            with committing(()):
                await read.receive(self._connection.batch_get(request))
            read.in_order(paths)
        except BaseException:
            await self._roll_back(read.transaction)
            raise

    async def _undo(self, receiving: asyncio.Task[None], read: BatchGet) -> None:
        await asyncio.wait([receiving])
        if not receiving.cancelled() and receiving.exception() is None:
            await self._roll_back(read.transaction)

    async def _roll_back(self, transaction: bytes) -> None:
        if not transaction:
            return  # the server never told its ID, so there is nothing to name
        try:
            await self._connection.rollback(transaction, _ROLLBACK_SECONDS)
        except GoogleAPICallError as exc:
            # Usual after a failed commit, which ends a transaction too.
            _LOG.info("a transaction was not rolled back, or had ended before: %s", exc)
