"""Lists while others write: every item that was there at the start is on one page, once."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions.adapters.clock import SystemClock
from functions.adapters.memory import MemoryObjects, MemoryPublisher
from functions.bootstrap import wire
from functions.core.cursors import BadCursor
from functions.core.documents import incident_path, job_path, to_document
from functions.core.jobs import JobState
from functions.core.ports import Create, Ledger, Update
from functions.incidents import incident_view, list_incidents, open_incident
from functions.listing import JobFilter, list_jobs
from functions.services import Services
from tests.faults.world import test_settings as settings
from tests.unit.records import job

TENANT, OTHER = "lists", "another"
OLD, LIMIT, ADDED = 15, 3, 16
Page = tuple[list[str], str | None]
List = Callable[..., Awaitable[Page]]


def services_over(ledger: Ledger) -> Services:
    """Return services whose ledger is the one under test."""
    clock = SystemClock()
    return wire(
        settings(),
        clock=clock,
        ledger=ledger,
        objects=MemoryObjects(),
        publisher=MemoryPublisher(clock),
        providers={},
    )


class Jobs:
    """The list of jobs, and who adds to it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._numbers = itertools.count(1)
        self._start = services.clock.now() - timedelta(hours=1)

    async def add(self, tenant: str = TENANT) -> str:
        """Record a job, a second younger than the last one, or of the same moment."""
        number = next(self._numbers)
        at = self._start + timedelta(seconds=number // 3)
        record = replace(
            job(), id=f"job_{number:04}", tenant=tenant, submitted_at=at, shard=number % 4
        )
        await self._services.ledger.commit(
            Create(path=job_path(record.id), data=to_document(record))
        )
        return record.id

    async def touch(self, name: str) -> None:
        """Change a job as its life goes on."""
        fields = {"state": JobState.RUNNING.value}
        await self._services.ledger.commit(Update(path=job_path(name), fields=fields))

    async def page(self, tenant: str = TENANT, **options: Any) -> Page:
        """Return a page's names and the next one's cursor."""
        wanted = JobFilter(owner=options.pop("narrowed", None))
        found = await list_jobs(self._services, tenant, wanted, limit=LIMIT, **options)
        return [record.id for record in found.jobs], found.next_cursor


class Incidents:
    """The list of incidents, and who adds to it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._numbers = itertools.count(1)

    async def add(self, tenant: str = TENANT) -> str:
        """Open an incident."""
        cause = f"cause {next(self._numbers):04}"
        await open_incident(self._services, "dead_letter", cause, tenant=tenant, detail=cause)
        return cause

    async def touch(self, name: str) -> None:
        """Note something on an incident."""
        tenants = [TENANT]
        found, _ = await list_incidents(self._services, tenants, None, limit=200, cursor=None)
        for each in found:
            if (each.data or {})["detail"] == name:
                path = incident_path(each.id)
                await self._services.ledger.commit(Update(path=path, fields={"note": "seen"}))

    async def page(self, tenant: str = TENANT, **options: Any) -> Page:
        """Return a page's details and the next one's cursor."""
        status = "open" if options.pop("narrowed", None) else None
        found, cursor = await list_incidents(
            self._services, [tenant], status, limit=LIMIT, **options
        )
        return [incident_view(each)["detail"] for each in found], cursor


@pytest.fixture(params=[Jobs, Incidents])
def shelf(request: pytest.FixtureRequest, ledger: Ledger) -> Jobs | Incidents:
    """Each list, over each ledger."""
    made: Jobs | Incidents = request.param(services_over(ledger))
    return made


@asynccontextmanager
async def writers(shelf: Jobs | Incidents, old: list[str]) -> AsyncIterator[None]:
    """Add and change items beside the block, until all are added."""
    touched: Iterator[str] = itertools.cycle(old)

    async def write(count: int) -> None:
        for _ in range(count):
            await shelf.add()
            await shelf.touch(next(touched))

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(write(ADDED // 2))
        yield


async def test_old_items_are_seen_once_while_others_are_added(shelf: Jobs | Incidents) -> None:
    """Items are added between the pages and changed; nothing is repeated, nothing left out."""
    old = [await shelf.add() for _ in range(OLD)]
    await shelf.add(OTHER)
    found, cursor = await shelf.page(cursor=None)
    async with writers(shelf, old):
        while cursor is not None:
            part, cursor = await shelf.page(cursor=cursor)
            found += part
            await asyncio.sleep(0)
    assert sorted(name for name in found if name in old) == old
    assert len(found) == len(set(found))


async def test_a_cursor_is_good_for_its_own_list_alone(shelf: Jobs | Incidents) -> None:
    """Another tenant's, or one of a list that is narrowed otherwise, is refused; so is a changed
    one."""
    for tenant in (TENANT, OTHER):
        for _ in range(LIMIT + 1):
            await shelf.add(tenant)
    _, own = await shelf.page(cursor=None)
    _, foreign = await shelf.page(OTHER, cursor=None)
    assert own is not None
    assert foreign is not None
    with pytest.raises(BadCursor):
        await shelf.page(cursor=foreign)
    with pytest.raises(BadCursor):
        await shelf.page(cursor=own, narrowed="owner")
    for place in range(0, len(own), 7):
        changed = "A" if own[place] != "A" else "B"
        with pytest.raises(BadCursor):
            await shelf.page(cursor=own[:place] + changed + own[place + 1 :])
    again, _ = await shelf.page(cursor=own)
    assert len(again) == 1
