"""Audits after audits: what one found, or could not look at, leads no later one astray."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from functions.audit import audit
from functions.core import audits
from functions.core.documents import (
    notification_path,
    seat_path,
    terminal_path,
    window_path,
)
from functions.core.errors import LedgerUnavailable
from functions.core.ports import Create, Query
from functions.incidents import resolve
from functions.purging import purge
from tests.faults.fakes import failure
from tests.faults.world import TENANT, World, submission
from tests.unit.test_audit import (
    WINDOW,
    audited,
    close_window,
    delivered,
    lose_document,
    mark_delivered,
)

PREFIX = f"outputs/{TENANT}/{WINDOW}/"


def damage(world: World, path: str, *fields: str) -> None:
    """Take fields out of a document."""
    for field in fields:
        del world.ledger.stored()[path][field]


async def put(world: World, name: str) -> None:
    """Put an object into the bucket that no record knows."""
    await world.objects.create(name, b"{}", content_type="application/json", metadata={})


async def resolve_all(world: World) -> None:
    """Answer for every incident, as an operator does."""
    for path, data in list(world.ledger.stored().items()):
        if path.startswith("incidents/") and data["status"] == "open":
            incident = path.partition("/")[2]
            assert await resolve(world.api.services, [TENANT], incident, "seen", "me") is not None


async def with_open_run(count: int = 2) -> World:
    """Return a closed window in which all runs have ended and arrived but one, which is open."""
    world = await delivered(count)
    await world.submit(submission(["m0"], question="o", key="o", deadline_seconds=86_400))
    close_window(world)
    return world


def failing(answer: Callable[..., Awaitable[Any]], collection: str) -> Callable[..., Any]:
    """Return a query that gets no answer for a collection."""

    async def query(asked: Query) -> Any:
        if asked.collection == collection:
            raise LedgerUnavailable("no answer")
        return await answer(asked)

    return query


async def test_an_audit_that_failed_once_spoils_no_later_one() -> None:
    """A scanned window that could not be looked at again is complete as soon as it could be."""
    world = await with_open_run()
    await audited(world)
    answer = world.ledger.query
    world.ledger.query = failing(answer, "repairs")  # type: ignore[method-assign]
    _, view = await audited(world)
    assert (view["complete"], view["population"]) == (False, 3)
    assert len(view["errors"]) == 1
    world.ledger.query = answer  # type: ignore[method-assign]
    _, view = await audited(world)
    assert (view["complete"], view["errors"], view["population"]) == (True, [], 3)


async def test_a_report_that_is_lost_or_damaged_is_made_anew() -> None:
    """Without the report of the audit before, a window is scanned whole again."""
    world = await with_open_run()
    await audited(world)
    for name in [name for name in world.objects.names() if "/report-" in name]:
        world.objects.lose(name)
    result, view = await audited(world)
    assert result.complete
    assert (view["complete"], view["population"], view["counts"]["accepted"]) == (True, 3, 1)


async def test_a_gap_of_an_open_run_is_listed_once() -> None:
    """However often an open run is looked at, its lost output and its hour are each one entry."""
    world = await delivered(1)
    [job] = world.jobs().values()
    lose_document(world, terminal_path(job.id, 1))
    output = world.seats(job.id)[1, 0].output
    assert output is not None
    world.objects.lose(output.uri.removeprefix(world.objects.uri("")))
    world.ledger.stored()[f"jobs/{job.id}"]["run_at"] += timedelta(hours=1, minutes=30)
    close_window(world)
    views = [(await audited(world))[1] for _ in range(4)]
    for view in views:
        found = [view[n] for n in ("missing_terminal", "missing_output", "off_window", "aged")]
        assert list(map(len, found)) == [1, 1, 1, 1]
        assert view["population"] == 1


async def test_no_seal_while_a_later_notification_is_pending() -> None:
    """A run that ended after the scan is notified as well before its window is sealed."""
    world = await with_open_run()
    await audited(world)
    await world.finish()
    _, view = await audited(world)
    assert not view["sealed"]
    assert len(view["undelivered_notifications"]) == 1
    await mark_delivered(world)
    _, view = await audited(world)
    assert (view["sealed"], view["undelivered_notifications"]) == (True, [])


async def test_a_notification_that_was_never_made_is_found_before_the_seal() -> None:
    """One more notification, of a run that ended during the scan, hides none that is missing."""
    world = await with_open_run()
    first = next(iter(world.jobs().values()))
    lose_document(world, notification_path(first.decision_id, 1))
    count = world.ledger.count

    async def ends_meanwhile(query: Query) -> int:
        if query.collection == "notifications":
            await world.finish()
            await mark_delivered(world)
        return await count(query)

    world.ledger.count = ends_meanwhile  # type: ignore[method-assign]
    await audited(world)
    world.ledger.count = count  # type: ignore[method-assign]
    for _ in range(2):
        _, view = await audited(world)
        assert view["undelivered_notifications"] == [f"{first.decision_id}.1"]
        assert not view["sealed"]
    assert [incident["kind"] for incident in world.incidents()] == ["notification_lost"]
    await resolve_all(world)
    _, view = await audited(world)
    assert view["sealed"]


async def test_gaps_beyond_what_a_report_keeps_are_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report that cannot hold every gap is no base for the next audit."""
    monkeypatch.setattr(audits, "KEPT", 3)
    world = await delivered(1)
    for number in range(5):
        await put(world, f"{PREFIX}{number:064}/0.json")
    close_window(world)
    for _ in range(3):
        result, view = await audited(world)
        assert len(view["orphan_outputs"]) == 5
        assert result.windows[0]["gaps"] == 5


@pytest.mark.parametrize("name", ["x", "", "/0.json", "__a__/0.json", "../0.json", "a/b/c/d.json"])
async def test_an_object_with_any_name_is_an_orphan(name: str) -> None:
    """What somebody put under a window's prefix by hand stops no audit."""
    world = await delivered(2)
    await put(world, PREFIX + name)
    result, view = await audited(world)
    assert (result.complete, view["complete"]) == (True, True)
    assert view["orphan_outputs"] == [world.objects.uri(PREFIX + name)]


async def test_a_seat_record_that_cannot_be_read_hides_no_other_gap() -> None:
    """It is listed as malformed; what comes after it in the window is looked at all the same."""
    world = World()
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    jobs = [await world.submit(submission(["m0"], question=f"{n}", key=f"{n}")) for n in range(3)]
    await world.finish()
    await mark_delivered(world)
    damage(world, seat_path(jobs[0].id, 1, 0), "ended_at")
    lose_document(world, seat_path(jobs[1].id, 1, 0))
    await put(world, f"{PREFIX}{'0' * 64}/0.json")
    close_window(world)
    for _ in range(2):
        result, view = await audited(world)
        assert (result.complete, view["population"]) == (True, 3)
        assert view["malformed"] == [seat_path(jobs[0].id, 1, 0)]
        assert [gap["job_id"] for gap in view["missing_failure"]] == [jobs[1].id]
        assert len(view["orphan_outputs"]) == 1
        assert not view["sealed"]


async def test_a_repair_on_record_that_lacks_a_field_stops_no_audit() -> None:
    """It is listed as malformed, and all windows are audited."""
    world = await delivered(1)
    data = {"v": 1, "tenant": TENANT, "window": WINDOW, "kind": "closed"}
    await world.ledger.commit(Create(path="repairs/broken", data=data))
    close_window(world)
    result, view = await audited(world)
    assert result.complete
    assert (view["malformed"], view["sealed"]) == (["repairs/broken"], False)


async def test_a_stopped_runs_attempts_are_counted_once_its_calls_have_ended() -> None:
    """An audit between a stop and the ends of its last calls takes no count that stays short."""
    world = World()
    world.provider.script = lambda request, number: failure(
        "overloaded", http_status=529, hint_seconds=20_000.0
    )
    job = await world.submit(submission(["m0"], deadline_seconds=86_400))
    await world.deliver_all()
    close_window(world)
    await world.cancel(job)
    _, view = await audited(world)
    assert (view["counts"]["canceled"], view["sealed"]) == (1, False)
    await world.finish()
    await mark_delivered(world)
    _, view = await audited(world)
    assert (view["counts"]["canceled"], view["population"]) == (1, 1)
    assert view["attempts"] == sum(len(s.attempts) for s in world.seats(job.id).values()) >= 1
    assert view["sealed"]


async def sealed(count: int = 1) -> World:
    """Return a world with one sealed window."""
    world = await delivered(count)
    close_window(world)
    _, view = await audited(world)
    assert view["sealed"]
    return world


@pytest.mark.parametrize("part", ["/report-", "/runs-"])
async def test_a_seal_whose_report_is_gone_is_an_incident(part: str) -> None:
    """What was sealed can no longer be proved; the sampling goes on."""
    world = await sealed()
    [name] = [name for name in world.objects.names() if part in name]
    world.objects.lose(name)
    for _ in range(2):
        result = await audit(world.reconciler.services)
        assert result.complete
        assert result.sampled == [f"{TENANT}.{WINDOW}"]
    assert [incident["kind"] for incident in world.incidents()] == ["changed_after_seal"]


@pytest.mark.parametrize("path", ["terminal", "job"])
async def test_a_sealed_record_that_cannot_be_read_is_an_incident(path: str) -> None:
    """A terminal record that lost a field, or a job that is gone, has changed since the seal."""
    world = await sealed()
    [job] = world.jobs().values()
    if path == "terminal":
        damage(world, terminal_path(job.id, 1), "completed_at")
    else:
        lose_document(world, terminal_path(job.id, 1))
    result = await audit(world.reconciler.services)
    assert result.complete
    assert [incident["kind"] for incident in world.incidents()] == ["changed_after_seal"]


async def test_an_output_that_is_lost_after_the_seal_is_an_incident() -> None:
    """A sample looks at the objects too; what an operator purged is no loss."""
    world = await sealed()
    [job] = world.jobs().values()
    output = world.seats(job.id)[1, 1].output
    assert output is not None
    world.objects.lose(output.uri.removeprefix(world.objects.uri("")))
    await audit(world.reconciler.services)
    assert [incident["kind"] for incident in world.incidents()] == ["changed_after_seal"]


async def test_a_purge_after_the_seal_is_no_change() -> None:
    """Records and digests stay as they were sealed; that outputs are gone was asked for."""
    world = await sealed()
    [job] = world.jobs().values()
    await purge(world.api.services, job, by="operator")
    await audit(world.reconciler.services)
    assert world.incidents() == []


async def test_records_that_expire_are_no_change_after_the_seal() -> None:
    """Once the runs of a sealed window may be deleted by their age, nothing is compared."""
    world = await sealed()
    world.clock.advance(timedelta(days=400, hours=1).total_seconds())
    for path in [p for p in world.ledger.stored() if p.startswith("jobs/")]:
        lose_document(world, path)
    result = await audit(world.reconciler.services)
    assert result.complete
    assert world.incidents() == []


async def test_an_expired_window_is_never_called_complete() -> None:
    """What was not audited before its records expired is not sealed as empty afterwards."""
    world = await delivered(1)
    world.clock.advance(timedelta(days=400, hours=1).total_seconds())
    for path in [p for p in world.ledger.stored() if p.startswith("jobs/")]:
        lose_document(world, path)
    result, view = await audited(world)
    assert (result.complete, view["complete"], view["sealed"]) == (False, False, False)
    assert [incident["kind"] for incident in world.incidents()] == ["window_unsealed"]


async def test_a_window_that_is_unsealed_late_raises_an_alarm() -> None:
    """At 80 % of the retention, not before, and once however many audits see it."""
    world = await delivered(1)
    await put(world, f"{PREFIX}{'0' * 64}/0.json")
    for days, alarms in ((319, 0), (2, 1), (1, 1)):
        world.clock.advance(timedelta(days=days).total_seconds())
        await audited(world)
        kinds = [incident["kind"] for incident in world.incidents()]
        assert kinds.count("window_unsealed") == alarms
    late = next(i for i in world.incidents() if i["kind"] == "window_unsealed")
    assert (late["tenant"], late["status"]) == (TENANT, "open")


async def test_a_window_with_two_thousand_gaps_is_readable_and_can_be_answered_for() -> None:
    """A hundred by name, the rest as a number; with those incidents resolved it is sealed."""
    world = await delivered(1)
    for number in range(2000):
        await put(world, f"{PREFIX}{number:064}/0.json")
    close_window(world)
    _, view = await audited(world)
    assert (view["complete"], view["sealed"]) == (True, False)
    assert (len(view["orphan_outputs"]), view["truncated"]) == (100, {"orphan_outputs": 1900})
    assert len(world.incidents()) == 101
    assert any("2000 findings" in incident["detail"] for incident in world.incidents())
    window = world.ledger.stored()[window_path(TENANT, WINDOW)]
    assert len(json.dumps(window, default=str)) < 100_000
    await resolve_all(world)
    _, view = await audited(world)
    assert view["sealed"]
    assert len(world.incidents()) == 101


async def test_two_audits_at_once_count_once() -> None:
    """Of two audits at once one is on record; neither is wrong, and nothing is told twice."""
    world = await delivered(3)
    first = next(iter(world.jobs().values()))
    lose_document(world, terminal_path(first.id, 1))
    close_window(world)
    services = world.reconciler.services
    results = await asyncio.gather(audit(services), audit(services), audit(services))
    assert all(result.complete for result in results)
    _, view = await audited(world)
    assert (view["population"], view["missing_terminal"]) == (3, [first.id])
    assert [incident["kind"] for incident in world.incidents()] == ["aged_gap"]
