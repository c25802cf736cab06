"""The real ledger when answers are lost: it says so, and it never sends anything twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest

from functions.adapters.firestore import FirestoreLedger
from functions.core.errors import LedgerUnavailable
from functions.core.ports import Create, Query
from infra.local.emulators import EmulatorHosts
from tests.faults.proxy import Fault, GrpcProxy, Moment

Code = grpc.StatusCode
AMBIGUOUS = [
    Code.UNAVAILABLE,
    Code.DEADLINE_EXCEEDED,
    Code.INTERNAL,
    Code.UNKNOWN,
    Code.CANCELLED,
    Code.RESOURCE_EXHAUSTED,
    Code.PERMISSION_DENIED,
    Code.UNAUTHENTICATED,
    Code.FAILED_PRECONDITION,
    Code.NOT_FOUND,
]
TIMEOUT_SECONDS = 0.5


@pytest.fixture
async def proxy(emulator_hosts: EmulatorHosts) -> AsyncIterator[GrpcProxy]:
    """A proxy in front of the emulator."""
    async with GrpcProxy(emulator_hosts.firestore) as running:
        yield running


@pytest.fixture
async def ledger(proxy: GrpcProxy, project: str) -> AsyncIterator[FirestoreLedger]:
    """A ledger whose every call passes the proxy."""
    made = FirestoreLedger(project, emulator_host=proxy.host)
    yield made
    await made.aclose()


@pytest.fixture
async def impatient(proxy: GrpcProxy, project: str) -> AsyncIterator[FirestoreLedger]:
    """The same with a short timeout."""
    made = FirestoreLedger(project, emulator_host=proxy.host, timeout_seconds=TIMEOUT_SECONDS)
    yield made
    await made.aclose()


@pytest.mark.parametrize("code", AMBIGUOUS, ids=lambda code: code.name)
async def test_a_commit_whose_answer_is_lost_was_applied_once(
    ledger: FirestoreLedger, proxy: GrpcProxy, code: grpc.StatusCode
) -> None:
    """The caller learns that nothing is certain; the write is there, sent exactly once."""
    proxy.inject(Fault(method="Commit", moment=Moment.AFTER, code=code))
    with pytest.raises(LedgerUnavailable):
        await ledger.commit(Create(path="a/1", data={"n": 1}))
    assert [s.data for s in await ledger.get("a/1")] == [{"n": 1}]
    assert proxy.calls["Commit"] == 1


@pytest.mark.parametrize("code", AMBIGUOUS, ids=lambda code: code.name)
async def test_a_commit_that_never_arrived_is_as_uncertain(
    ledger: FirestoreLedger, proxy: GrpcProxy, code: grpc.StatusCode
) -> None:
    """The same error comes when nothing was applied: only reading back can tell."""
    proxy.inject(Fault(method="Commit", moment=Moment.BEFORE, code=code))
    with pytest.raises(LedgerUnavailable):
        await ledger.commit(Create(path="a/1", data={"n": 1}))
    assert not (await ledger.get("a/1"))[0].exists
    assert proxy.calls["Commit"] == 1


async def test_an_aborted_commit_has_no_certain_answer(
    ledger: FirestoreLedger, proxy: GrpcProxy
) -> None:
    """Lock contention is no lost race: a create that met it says nothing of what is there."""
    proxy.inject(Fault(method="Commit", moment=Moment.BEFORE, code=Code.ABORTED))
    with pytest.raises(LedgerUnavailable):
        await ledger.commit(Create(path="a/1", data={}))
    assert proxy.calls["Commit"] == 1


READS = ["BatchGetDocuments", "RunQuery", "RunAggregationQuery"]


@pytest.mark.parametrize("code", [*AMBIGUOUS, Code.ABORTED], ids=lambda code: code.name)
@pytest.mark.parametrize("method", READS)
async def test_a_read_that_fails_is_never_an_empty_result(
    ledger: FirestoreLedger, proxy: GrpcProxy, method: str, code: grpc.StatusCode
) -> None:
    """A missing index, a missing permission or an outage is an error, after one request."""
    proxy.inject(Fault(method=method, moment=Moment.BEFORE, code=code))
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "BatchGetDocuments": lambda: ledger.get("a/1"),
        "RunQuery": lambda: ledger.query(Query(collection="a")),
        "RunAggregationQuery": lambda: ledger.count(Query(collection="a")),
    }
    with pytest.raises(LedgerUnavailable, match="injected"):
        await reads[method]()
    assert proxy.calls[method] == 1


@pytest.mark.parametrize("moment", Moment)
async def test_silence_ends_with_the_timeout(
    impatient: FirestoreLedger, proxy: GrpcProxy, moment: Moment
) -> None:
    """A server that never answers costs one timeout, and is sent nothing again."""
    proxy.inject(Fault(method="Commit", moment=moment, code=None))
    with pytest.raises(LedgerUnavailable):
        async with asyncio.timeout(TIMEOUT_SECONDS * 4):
            await impatient.commit(Create(path="a/1", data={}))
    assert (await impatient.get("a/1"))[0].exists is (moment is Moment.AFTER)
    assert proxy.calls["Commit"] == 1


async def test_a_cancelled_commit_stays_cancelled(
    ledger: FirestoreLedger, proxy: GrpcProxy
) -> None:
    """A cancellation of the caller comes out as it is, never as an outage."""
    proxy.inject(Fault(method="Commit", moment=Moment.AFTER, code=None))
    commit = asyncio.create_task(ledger.commit(Create(path="a/1", data={})))
    await proxy.called("Commit")
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit


async def test_a_cut_connection_is_an_outage(ledger: FirestoreLedger, proxy: GrpcProxy) -> None:
    """A call in flight when the connection breaks, and those after it, have no answer."""
    await ledger.get("a/1")
    proxy.inject(Fault(method="Commit", moment=Moment.AFTER, code=None))
    commit = asyncio.create_task(ledger.commit(Create(path="a/1", data={})))
    await proxy.called("Commit")
    await proxy.cut()
    with pytest.raises(LedgerUnavailable):
        await commit
    with pytest.raises(LedgerUnavailable):
        await ledger.get("a/1")
