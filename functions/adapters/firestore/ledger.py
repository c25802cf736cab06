"""The ledger on Firestore: one RPC per method, no retries, no locks held, server time.

The client library's own retry of a commit is off everywhere: after UNAVAILABLE it can meet its own
write and report a conflict, or apply an increment twice. Callers resolve `LedgerUnavailable` by
reading back.
"""

from datetime import datetime

from functions.adapters.firestore.connection import Connection
from functions.adapters.firestore.documents import BatchGet, counted, found_documents
from functions.adapters.firestore.encoding import decode_time
from functions.adapters.firestore.errors import committing, reading
from functions.adapters.firestore.requests import (
    batch_get_request,
    commit_request,
    count_request,
    query_request,
    total_request,
)
from functions.adapters.values import (
    check_document_path,
    check_query,
    check_writes,
    summed_field,
)
from functions.core.ports import Clock, Query, Snapshot, Write


class FirestoreLedger:
    """A `Ledger` on a Firestore database in Native mode.

    The connection is made at the first call, for the running event loop. `clock` observes each
    server time that arrives. Every RPC ends within `timeout_seconds`.
    """

    def __init__(
        self,
        project: str,
        database: str = "(default)",
        *,
        emulator_host: str | None = None,
        clock: Clock | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._connection = Connection(project, database, emulator_host, timeout_seconds)
        self._clock = clock

    async def get(self, *paths: str) -> list[Snapshot]:
        """Read documents in one round trip, in the order asked for.

        Raises:
            LedgerUnavailable: no certain answer.
        """
        for path in paths:
            check_document_path(path)
        if not paths:
            return []
        request = batch_get_request(self._connection.database, dict.fromkeys(paths))
        answer = BatchGet(self._connection.root)
        with reading():
            await answer.receive(self._connection.batch_get(request))
        return self._observed(answer.in_order(paths))

    async def commit(self, *writes: Write) -> datetime:
        """Apply all writes or none in one round trip; return the commit's time.

        Raises:
            WriteConflict: a precondition did not hold.
            LedgerUnavailable: the writes may or may not have been applied.
            ValueError: a document breaks Firestore's rules; nothing was applied.
        """
        check_writes(writes)
        request = commit_request(self._connection.database, writes)
        with committing(writes):
            response = await self._connection.commit(request)
        commit_time = decode_time(response.commit_time)
        self._observe(commit_time)
        return commit_time

    async def query(self, query: Query) -> list[Snapshot]:
        """Return the documents that match, at most `limit`.

        Raises:
            LedgerUnavailable: no certain answer, or an index is missing.
            ValueError: a query that Firestore would refuse.
        """
        check_query(query)
        request = query_request(self._connection.root, query)
        with reading():
            answers = self._connection.run_query(request)
            return self._observed(await found_documents(self._connection.root, answers))

    async def count(self, query: Query) -> int:
        """Return how many documents match, without reading them.

        Raises:
            LedgerUnavailable: no certain answer, or an index is missing.
            ValueError: a query that Firestore would refuse.
        """
        check_query(query)
        request = count_request(self._connection.root, query)
        with reading():
            return await counted(self._connection.run_aggregation(request))

    async def total(self, query: Query) -> int:
        """Return the sum of the whole numbers in the field that the query is ordered by.

        Raises:
            LedgerUnavailable: no certain answer, or an index is missing.
            ValueError: a query that Firestore would refuse, or one without an order.
        """
        request = total_request(self._connection.root, query, summed_field(query))
        with reading():
            return await counted(self._connection.run_aggregation(request))

    async def aclose(self) -> None:
        """Close the connection; calls in flight must have ended."""
        await self._connection.aclose()

    def _observed(self, snapshots: list[Snapshot]) -> list[Snapshot]:
        for snapshot in snapshots[:1]:
            self._observe(snapshot.read_time)
        return snapshots

    def _observe(self, server_time: datetime) -> None:
        if self._clock is not None:
            self._clock.observe(server_time)
