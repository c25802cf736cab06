"""Nothing outlives its handler: no task and no connection, however a delivery ends.

A real HTTP provider client speaks to a server on the loopback; the times are real and short.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from functions.acceptance import accept
from functions.adapters.clock import SystemClock
from functions.adapters.memory import MemoryLedger, MemoryObjects, MemoryPublisher
from functions.bootstrap import wire
from functions.cancellation import cancel
from functions.core.documents import evaluation_path
from functions.core.jobs import Job
from functions.core.ports import Update
from functions.dispatch import seat_message
from functions.evaluation import Delivery, evaluate
from functions.providers import chat
from functions.providers.base import Endpoint
from functions.providers.http import HttpProvider
from functions.services import Services
from tests.faults.world import submission
from tests.faults.world import test_settings as settings_of
from tests.unit.providers.loopback import Loopback, response, serving

ANSWER = {
    "id": "chatcmpl-1",
    "model": "m0-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": json.dumps({"rationale": "light", "score": 70}),
            },
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}
SEATS = 8


@dataclass
class Vendor:
    """How the provider's server behaves to the next requests; `working` counts open ones."""

    replies: list[bytes | None] = field(default_factory=list)
    working: int = 0

    async def behave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the next reply, or nothing until the client has gone."""
        self.working += 1
        try:
            reply = self.replies.pop(0) if self.replies else response(json.dumps(ANSWER).encode())
            if reply is None:
                await reader.read()
                return
            writer.write(reply)
            await writer.drain()
        finally:
            self.working -= 1


@dataclass(frozen=True, kw_only=True)
class Site:
    """A process over a real provider client, and the vendor's server."""

    services: Services
    provider: HttpProvider
    vendor: Vendor
    server: Loopback

    async def job(self, **policy: Any) -> Job:
        """Return a new job of several seats."""
        models = [f"m{n}" for n in range(SEATS)]
        return (await accept(self.services, submission(models, **policy))).job

    def deliveries(self, job: Job) -> "list[asyncio.Task[Delivery]]":
        """Start a delivery of each seat."""
        until = self.services.clock.monotonic() + 500.0
        return [
            asyncio.create_task(evaluate(self.services, seat_message(job, n), until=until))
            for n in range(SEATS)
        ]

    async def until_working(self, number: int) -> None:
        """Wait until the vendor works on so many requests."""
        async with asyncio.timeout(10):
            while self.vendor.working != number:  # noqa: ASYNC110 - two sides of a socket
                await asyncio.sleep(0.01)


@asynccontextmanager
async def opened(concurrency: int = 64) -> AsyncIterator[Site]:
    """Run a process with leases of 3 s and so many calls at once."""
    vendor, clock = Vendor(), SystemClock()
    async with serving(vendor.behave) as server:
        endpoint = Endpoint(name="fake", base_url=server.url, concurrency=concurrency)
        provider = HttpProvider(endpoint, chat)
        services = wire(
            settings_of(lease_seconds=3.0, provider_deadline_seconds=20.0),
            clock=clock,
            ledger=MemoryLedger(clock),
            objects=MemoryObjects(),
            publisher=MemoryPublisher(clock),
            providers={"fake": provider},
        )
        yield Site(services=services, provider=provider, vendor=vendor, server=server)
        await provider.aclose()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A process that no queue holds up."""
    async with opened() as running:
        yield running


def sockets() -> int:
    """Return how many sockets this process holds."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and "socket" in os.readlink(link) for link in links)


async def succeed(site: Site) -> None:
    """All seats are answered."""
    job = await site.job()
    assert await asyncio.gather(*site.deliveries(job)) == [Delivery.ENDED] * SEATS


async def fail(site: Site) -> None:
    """All seats are refused for good, over connections that then close."""
    refusal = response(b'{"error": {"code": "model_not_found"}}', "404 Not Found")
    site.vendor.replies = [refusal] * SEATS
    job = await site.job()
    assert await asyncio.gather(*site.deliveries(job)) == [Delivery.ENDED] * SEATS


async def stop(site: Site) -> None:
    """The job is canceled while every seat's call is in flight."""
    site.vendor.replies = [None] * SEATS
    job = await site.job()
    work = site.deliveries(job)
    await site.until_working(SEATS)
    await cancel(site.services, job, by="someone")
    async with asyncio.timeout(2.5):
        assert await asyncio.gather(*work) == [Delivery.ENDED] * SEATS


async def run_out(site: Site) -> None:
    """The job's deadline passes while every seat's call is in flight."""
    site.vendor.replies = [None] * SEATS
    job = await site.job(deadline_seconds=2)
    assert await asyncio.gather(*site.deliveries(job)) == [Delivery.ENDED] * SEATS


async def lose_leases(site: Site) -> None:
    """Another holder is found on every lease; its holders come back when it runs out."""
    site.vendor.replies = [None] * SEATS
    job = await site.job()
    work = site.deliveries(job)
    await site.until_working(SEATS)
    for seat in job.seats:
        fields = {"holder": "another", "token": 2}
        await site.services.ledger.commit(
            Update(path=evaluation_path(seat.work_key), fields=fields)
        )
    await site.until_working(0)
    assert await asyncio.gather(*work) == [Delivery.ENDED] * SEATS


async def shut_down(site: Site) -> None:
    """The process is told to end while every seat's call is in flight."""
    site.vendor.replies = [None] * SEATS
    job = await site.job()
    work = site.deliveries(job)
    await site.until_working(SEATS)
    await site.services.inflight.shut_down(0.1)
    assert await asyncio.gather(*work) == [Delivery.REPUBLISHED] * SEATS


async def disconnect(site: Site) -> None:
    """Every handler is cancelled in its call."""
    site.vendor.replies = [None] * SEATS
    job = await site.job()
    work = site.deliveries(job)
    await site.until_working(SEATS)
    for task in work:
        task.cancel()
    await asyncio.wait(work)
    assert all(task.cancelled() for task in work)


ENDS = [succeed, fail, stop, run_out, lose_leases, shut_down, disconnect]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_nothing_outlives_its_handler(
    site: Site, end: Callable[[Site], Awaitable[None]]
) -> None:
    """Tasks and sockets are as many afterwards as before, and no request is open at the vendor."""
    tasks, before = asyncio.all_tasks(), sockets()
    await end(site)
    servers = {t for t in asyncio.all_tasks() if "serving" in repr(t.get_coro())}
    assert {repr(t) for t in asyncio.all_tasks() - tasks - servers} == set()
    assert not site.services.inflight.calls
    await site.until_working(0)
    await site.provider.aclose()
    async with asyncio.timeout(5):
        while sockets() > before:  # noqa: ASYNC110 - the server's side closes by itself
            await asyncio.sleep(0.01)
    assert asyncio.all_tasks() - tasks == set()


async def test_a_queue_for_slots_leaves_nothing_behind() -> None:
    """Deliveries that stand in line when the process ends hand their seats on and are gone."""
    async with opened(concurrency=2) as site:
        site.vendor.replies = [None] * SEATS
        job, tasks = await site.job(), asyncio.all_tasks()
        work = site.deliveries(job)
        await site.until_working(2)
        await site.services.inflight.shut_down(0.1)
        assert await asyncio.gather(*work) == [Delivery.REPUBLISHED] * SEATS
        assert len(site.server.requests) == 2
        left = {t for t in asyncio.all_tasks() - tasks if "serving" not in repr(t.get_coro())}
        assert left == set()
