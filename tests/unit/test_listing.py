"""Pages of jobs: complete, newest first, within a tenant, and stable while jobs are added."""

import base64
import json
from dataclasses import replace

import pytest

from functions.core.cursors import BadCursor
from functions.core.documents import job_path, to_document
from functions.core.jobs import JobState
from functions.core.ports import Create
from functions.listing import JobFilter, Page, list_jobs
from tests.faults.world import World, submission
from tests.unit.records import at, job

ALL = JobFilter()


async def filled(count: int = 23) -> World:
    """Return a world with jobs of three tenants, some of them submitted at the same moment."""
    world = World()
    for number in range(count):
        record = job(
            id=f"job_{number:03}",
            tenant="tenant" if number % 5 else "other",
            submitted_at=at(number // 3),
            shard=number % 4,
            owner="even" if number % 2 == 0 else "odd",
            state=JobState.RUNNING if number % 3 else JobState.ACCEPTED,
            run_window=f"2026-11-29T{number % 2:02}",
            labels={"n": str(number % 4)},
            label_pairs=(f"n:{number % 4}",),
        )
        path = job_path(record.id)
        await world.ledger.commit(Create(path=path, data=to_document(record)))
    return world


async def page(
    world: World, wanted: JobFilter = ALL, *, limit: int = 50, cursor: str | None = None
) -> Page:
    return await list_jobs(world.api.services, "tenant", wanted, limit=limit, cursor=cursor)


def expected(world: World) -> list[str]:
    mine = [record for record in world.jobs().values() if record.tenant == "tenant"]
    newest = sorted(mine, key=lambda record: (record.submitted_at, record.id), reverse=True)
    return [record.id for record in newest]


async def test_a_page_is_newest_first_and_only_the_tenants() -> None:
    """All jobs of the tenant, ties broken by identity, none of another's."""
    world = await filled()
    found = await page(world)
    assert [record.id for record in found.jobs] == expected(world)
    assert found.next_cursor is None


@pytest.mark.parametrize("limit", [1, 2, 5, 17])
async def test_pages_join_without_gap_or_repetition(limit: int) -> None:
    """Following the cursors gives every job once, whatever the page's length."""
    world = await filled()
    found: list[str] = []
    cursor = None
    while True:
        part = await page(world, limit=limit, cursor=cursor)
        assert len(part.jobs) <= limit
        found += [record.id for record in part.jobs]
        if (cursor := part.next_cursor) is None:
            break
    assert found == expected(world)


async def test_jobs_added_meanwhile_do_not_move_the_next_page() -> None:
    """A cursor names a place, not a count: newer jobs push nothing onto the next page."""
    world = await filled()
    first = await page(world, limit=5)
    before = expected(world)
    late = replace(job(), id="job_new", submitted_at=at(999))
    await world.ledger.commit(Create(path=job_path(late.id), data=to_document(late)))
    second = await page(world, limit=5, cursor=first.next_cursor)
    assert [record.id for record in second.jobs] == before[5:10]


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (JobFilter(state="accepted"), lambda record: record.state == "accepted"),
        (JobFilter(owner="odd"), lambda record: record.owner == "odd"),
        (JobFilter(window="2026-11-29T01"), lambda record: record.run_window[-1] == "1"),
        (JobFilter(label="n:2"), lambda record: record.labels["n"] == "2"),
        (JobFilter(owner="odd", label="n:1"), lambda record: record.labels["n"] == "1"),
    ],
    ids=str,
)
async def test_filters_narrow_and_keep_the_order(wanted: JobFilter, holds: object) -> None:
    """Each filter gives exactly the jobs that match, in the same order."""
    assert callable(holds)
    world = await filled()
    found = [record.id for record in (await page(world, wanted)).jobs]
    assert found
    assert found == [name for name in expected(world) if holds(world.jobs()[name])]


async def test_a_tenant_without_jobs_has_an_empty_page() -> None:
    """No jobs, no cursor."""
    assert await page(World()) == Page(jobs=(), next_cursor=None)


async def test_a_submitted_job_is_listed_at_once() -> None:
    """What acceptance writes is what the list finds."""
    world = World()
    accepted = await world.submit(submission())
    assert [record.id for record in (await page(world)).jobs] == [accepted.id]


def _cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "?",
        "é",
        "AAAA",
        _cursor("job"),
        _cursor(["2026-11-29T12:00:00+00:00"]),
        _cursor(["2026-11-29T12:00:00", "job_1"]),
        _cursor(["soon", "job_1"]),
        _cursor([1, "job_1"]),
        _cursor(["2026-11-29T12:00:00+00:00", "../x"]),
        _cursor(["0001-01-01T00:00:00+23:59", "job_1"]),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    ],
)
async def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    """Nothing foreign reaches a query."""
    with pytest.raises(BadCursor):
        await page(World(), cursor=cursor)
