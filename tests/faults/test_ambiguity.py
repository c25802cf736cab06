"""Answers that are lost, with the real clients: each step finds out by itself what was applied.

A proxy stands before the real emulators; it passes a chosen commit or upload on and loses its
answer, or loses the request.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import grpc
import pytest
from aiohttp import web

from functions.acceptance import accept
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.memory import MemoryObjects, MemoryPublisher
from functions.bootstrap import wire
from functions.core.documents import evaluation_path, from_snapshot, seat_path, terminal_path
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import Evaluation, Job, JobState, Outcome, SeatRecord, SeatState, Terminal
from functions.core.ports import Objects
from functions.dispatch import seat_message
from functions.evaluation import Delivery, evaluate
from functions.services import Services
from infra.local.emulators import EmulatorHosts
from infra.local.storage import create_bucket
from tests.faults.fakes import FakeProvider
from tests.faults.proxy import Fault, GrpcProxy, Moment
from tests.faults.world import TOPIC, submission
from tests.faults.world import test_settings as settings_of

T = TypeVar("T")
Code = grpc.StatusCode
TIMEOUT_SECONDS = 2.0
STEPS = ("window", "accept", "claim", "start", "settle", "sight", "close")
COMMITS = {step: number for number, step in enumerate(STEPS, 1)}
LOST: list[tuple[Moment, Code | None]] = [
    (Moment.AFTER, Code.UNAVAILABLE),
    (Moment.AFTER, Code.DEADLINE_EXCEEDED),
    (Moment.AFTER, Code.INTERNAL),
    (Moment.AFTER, None),
    (Moment.BEFORE, Code.UNAVAILABLE),
    (Moment.BEFORE, Code.ABORTED),
]


class CommitProxy(GrpcProxy):
    """Strikes commits by their number, from 1."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.commits: dict[int, Fault] = {}

    def _take(self, name: str) -> Fault | None:
        if name != "Commit":
            return super()._take(name)
        return self.commits.pop(self.calls["Commit"], None)


@dataclass(frozen=True, kw_only=True)
class Site:
    """One process over a real ledger, and what it spoke to."""

    services: Services
    provider: FakeProvider
    topics: MemoryPublisher
    ledger: FirestoreLedger


def build(ledger: FirestoreLedger, clock: SystemClock, objects: Objects) -> Site:
    """Return a process with real time, a quick provider and short waits."""
    topics = MemoryPublisher(clock)
    provider = FakeProvider(clock, lambda request: None)
    provider.seconds = 0.05
    services = wire(
        settings_of(lease_seconds=20.0),
        clock=clock,
        ledger=ledger,
        objects=objects,
        publisher=topics,
        providers={"fake": provider},
    )
    return Site(services=services, provider=provider, topics=topics, ledger=ledger)


@pytest.fixture
async def proxy(emulator_hosts: EmulatorHosts) -> AsyncIterator[CommitProxy]:
    """A proxy in front of the emulator."""
    async with CommitProxy(emulator_hosts.firestore) as running:
        assert isinstance(running, CommitProxy)
        yield running


@pytest.fixture
async def site(proxy: CommitProxy, project: str) -> AsyncIterator[Site]:
    """A process whose every call to the ledger passes the proxy."""
    clock = SystemClock()
    ledger = FirestoreLedger(
        project, emulator_host=proxy.host, clock=clock, timeout_seconds=TIMEOUT_SECONDS
    )
    yield build(ledger, clock, MemoryObjects())
    await ledger.aclose()


async def asking_again(step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step while it has no answer, as a client or a subscription does."""
    for _ in range(5):
        try:
            return await step()
        except LedgerUnavailable:
            await asyncio.sleep(0.1)
    raise AssertionError("there was never an answer")


async def run_job(site: Site) -> tuple[Job, SeatRecord, Terminal, Evaluation]:
    """Accept a job of one seat and deliver its message until it is acked; return its records."""
    services = site.services
    job = (await asking_again(lambda: accept(services, submission()))).job
    message = seat_message(job, 0)

    async def deliver() -> Delivery:
        return await evaluate(services, message, until=services.clock.monotonic() + 500.0)

    assert await asking_again(deliver) is Delivery.ENDED
    seat, terminal, evaluation = await site.ledger.get(
        seat_path(job.id, 1, 0), terminal_path(job.id, 1), evaluation_path(message.work_key)
    )
    record, end = from_snapshot(SeatRecord, seat), from_snapshot(Terminal, terminal)
    state = from_snapshot(Evaluation, evaluation)
    assert record is not None
    assert end is not None
    assert state is not None
    return job, record, end, state


@pytest.mark.parametrize(("moment", "code"), LOST, ids=[f"{m.name}-{c}" for m, c in LOST])
@pytest.mark.parametrize("step", COMMITS)
async def test_a_commit_without_an_answer_changes_nothing_in_the_end(
    site: Site, proxy: CommitProxy, step: str, moment: Moment, code: Code | None
) -> None:
    """Applied or not, of any step: one job, one request, one seat, one end, one attempt."""
    proxy.commits[COMMITS[step]] = Fault(method="Commit", moment=moment, code=code)
    _, record, end, state = await run_job(site)
    assert proxy.commits == {}, "the commit was never reached"
    assert sum(site.provider.sent.values()) == 1
    assert record.state is SeatState.SUCCEEDED
    assert end.state is JobState.SUCCEEDED
    assert [attempt.outcome for attempt in state.attempts] == [Outcome.SUCCEEDED]
    assert (state.holder, state.lease_until, state.wake_at) == (None, None, None)
    assert len(site.topics.messages(TOPIC)) <= 1  # none: a repeated accept leaves it to repair
    assert proxy.calls["Commit"] <= len(COMMITS) + 1


@pytest.mark.parametrize("step", ["claim", "settle", "close"])
async def test_every_other_commit_without_an_answer_changes_nothing_either(
    site: Site, proxy: CommitProxy, step: str
) -> None:
    """Applied and lost, and the step's next commit not applied: still one of everything."""
    first = COMMITS[step]
    proxy.commits[first] = Fault(method="Commit", moment=Moment.BEFORE)
    proxy.commits[first + 1] = Fault(method="Commit", moment=Moment.AFTER)
    _, record, end, _ = await run_job(site)
    assert sum(site.provider.sent.values()) == 1
    assert (record.state, end.state) == (SeatState.SUCCEEDED, JobState.SUCCEEDED)


@dataclass
class BucketProxy:
    """What passed on the way to the bucket, and how many uploads still lose their answer."""

    target: str
    lose: int = 1
    uploads: int = 0
    refused: int = 0

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on; an upload may lose its answer after it was applied."""
        body = await request.read()
        headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
        url = self.target + request.raw_path
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, data=body, headers=headers) as answer,
        ):
            content = await answer.read()
            if request.method == "POST":
                self.uploads += 1
                self.refused += answer.status == 412
                if self.lose > 0:
                    self.lose -= 1
                    assert request.transport is not None
                    request.transport.close()
            kept = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            kept |= {k: v for k, v in answer.headers.items() if k.lower().startswith("x-goog")}
            return web.Response(status=answer.status, body=content, headers=kept)


@pytest.fixture
async def bucket(storage_url: str, project: str) -> AsyncIterator[tuple[BucketProxy, GcsObjects]]:
    """A bucket behind a proxy."""
    await create_bucket(storage_url, project, project)
    behind = BucketProxy(target=storage_url)
    application = web.Application(client_max_size=16 * 2**20)
    application.router.add_route("*", "/{path:.*}", behind.forward)
    runner = web.AppRunner(application)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    port = runner.addresses[0][1]
    objects = GcsObjects(project, emulator_host=f"http://127.0.0.1:{port}")
    yield behind, objects
    await objects.aclose()
    await runner.cleanup()


@pytest.mark.parametrize("lost", [1, 3])
async def test_an_upload_that_meets_itself_is_adopted(
    proxy: CommitProxy, project: str, bucket: tuple[BucketProxy, GcsObjects], lost: int
) -> None:
    """Stored, its answer lost, 412 to the retry: the seat has that object, bought once."""
    behind, objects = bucket
    behind.lose = lost
    clock = SystemClock()
    ledger = FirestoreLedger(project, emulator_host=proxy.host, clock=clock)
    site = build(ledger, clock, objects)
    _, record, end, state = await run_job(site)
    await ledger.aclose()
    assert (behind.uploads, behind.refused) == (lost + 1, lost)
    assert sum(site.provider.sent.values()) == 1
    assert (record.state, end.state) == (SeatState.SUCCEEDED, JobState.SUCCEEDED)
    assert record.output is not None
    assert state.object_name is not None
    stored = await objects.stat(state.object_name)
    assert stored is not None
    assert (record.output.generation, record.output.sha256) == (
        stored.generation,
        stored.metadata["sha256"],
    )
