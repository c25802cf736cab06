"""The audit: every accepted run is counted once, each gap is found, and nothing else."""

from datetime import timedelta
from typing import Any

from functions.audit import AuditPass, audit
from functions.audit_reports import audit_view, find_window
from functions.core.documents import evaluation_path, seat_path, terminal_path
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable
from functions.core.ports import Query, Snapshot
from tests.faults.fakes import failure
from tests.faults.world import TENANT, World, submission

WINDOW = "2026-11-29T12"


async def finished(count: int = 3, *, seats: int = 2) -> World:
    """Return a world in which jobs have succeeded within one window."""
    world = World()
    for number in range(count):
        names = [f"m{index}" for index in range(seats)]
        await world.submit(submission(names, question=f"q{number}", key=f"k{number}"))
    await world.finish()
    return world


async def audited(world: World) -> tuple[AuditPass, dict[str, Any]]:
    """Run an audit; return the pass and the window's view."""
    result = await audit(world.reconciler.services)
    window = await find_window(world.reconciler.services, TENANT, WINDOW)
    assert window is not None
    return result, audit_view(window)


def close_window(world: World) -> None:
    """Move the time past the end of the window."""
    world.clock.advance(timedelta(hours=2).total_seconds())


async def test_every_accepted_run_is_counted_once() -> None:
    """The counts add up to the population: the accepted runs, whatever came of them."""
    world = await finished(3)
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    await world.submit(submission(["m0"], question="fails", key="fails"))
    await world.finish()
    await world.submit(submission(["m0"], question="open", key="open"))
    _, view = await audited(world)
    assert view["population"] == 5
    assert {s: n for s, n in view["counts"].items() if n} == {
        "succeeded": 3,
        "failed": 1,
        "accepted": 1,
    }
    assert view["complete"]
    assert not view["sealed"]
    assert view["attempts"] == 7
    assert (view["cost_usd"], view["unknown_costs"]) == (None, 3)  # no prices are known here
    for name in ("missing_terminal", "missing_output", "missing_failure", "orphan_outputs"):
        assert view[name] == []


def lose_document(world: World, path: str) -> None:
    """Remove a document, as no code of ours can."""
    del world.ledger._documents[path]


def told(view: dict[str, Any]) -> dict[str, int]:
    """Return the lengths of the lists that are not empty."""
    return {name: len(items) for name, items in view.items() if isinstance(items, list) and items}


async def test_each_fault_is_found_and_nothing_else() -> None:
    """A run without its end, an output without its object, a damaged one, an orphan."""
    world = await finished(5)
    jobs = list(world.jobs().values())
    lose_document(world, terminal_path(jobs[0].id, 1))
    lost = world.seats(jobs[1].id)[1, 0].output
    assert lost is not None
    prefix = world.objects.uri("")
    world.objects.lose(lost.uri.removeprefix(prefix))
    swapped = world.seats(jobs[2].id)[1, 1].output
    assert swapped is not None
    name = swapped.uri.removeprefix(prefix)
    world.objects.lose(name)
    await world.objects.create(name, b"{}", content_type="application/json", metadata={})
    orphan = f"outputs/{TENANT}/{WINDOW}/{'0' * 64}/0.json"
    await world.objects.create(orphan, b"{}", content_type="application/json", metadata={})
    close_window(world)
    result, view = await audited(world)
    assert result.complete
    assert view["population"] == sum(view["counts"].values()) == 5
    assert view["counts"]["running"] == 1
    assert view["missing_terminal"] == [jobs[0].id]
    assert [gap["uri"] for gap in view["missing_output"]] == [lost.uri]
    assert [gap["uri"] for gap in view["digest_mismatch"]] == [swapped.uri]
    assert view["orphan_outputs"] == [prefix + orphan]
    aged = view["aged"][0]
    assert (aged["job_id"], aged["owner"]) == (jobs[0].id, "owner")
    assert aged["escalate_at"] == "2026-11-29T14:05:00Z"
    assert not view["sealed"]
    kinds = sorted(incident["kind"] for incident in world.incidents())
    assert kinds == ["aged_gap", "orphan_output", "output_damaged", "output_missing"]


async def test_a_failed_seat_without_its_record_is_found() -> None:
    """The terminal record names a failed seat; the seat's own record must be there too."""
    world = World()
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.submit(submission(["m0"]))
    await world.finish()
    lose_document(world, seat_path(job.id, 1, 0))
    close_window(world)
    _, view = await audited(world)
    assert [gap["job_id"] for gap in view["missing_failure"]] == [job.id]
    assert not view["sealed"]


async def test_a_window_in_order_is_sealed_once() -> None:
    """All ended, verified and notified: sealed with a digest, and left alone afterwards."""
    world = await delivered(4)
    close_window(world)
    result, view = await audited(world)
    assert result.sealed == [f"{TENANT}.{WINDOW}"]
    assert view["sealed"]
    assert view["digest"] is not None
    again, later = await audited(world)
    assert again.windows == []
    assert again.sampled == [f"{TENANT}.{WINDOW}"]
    assert (later["digest"], later["population"]) == (view["digest"], 4)
    assert world.incidents() == []


async def test_a_window_that_is_not_over_is_never_sealed() -> None:
    """Runs may still be added to it."""
    world = await delivered(2)
    _, view = await audited(world)
    assert (view["complete"], view["sealed"]) == (True, False)


async def test_a_window_is_sealed_once_its_last_run_has_ended() -> None:
    """An open run keeps the window open; the later audit reads that run and no other."""
    world = await delivered(6)
    await world.submit(submission(["m0"], question="late", key="late", deadline_seconds=86_400))
    close_window(world)
    _, view = await audited(world)
    assert (view["counts"]["accepted"], view["sealed"]) == (1, False)
    await world.finish()
    await mark_delivered(world)
    world.ledger.history.clear()
    _, view = await audited(world)
    assert (view["counts"]["succeeded"], view["counts"]["accepted"]) == (7, 0)
    assert view["sealed"]
    assert view["population"] == 7


async def test_a_change_after_the_seal_is_an_incident() -> None:
    """A terminal record that is not what was sealed is told, and the seal stays."""
    world = await delivered(1)
    close_window(world)
    await audited(world)
    [job] = world.jobs().values()
    document = world.ledger._documents[terminal_path(job.id, 1)]
    document.data["state"] = "failed"
    await audited(world)
    [incident] = world.incidents()
    assert incident["kind"] == "changed_after_seal"


async def test_a_run_added_after_the_seal_is_an_incident() -> None:
    """The number of runs is part of the seal."""
    world = await delivered(1)
    close_window(world)
    await audited(world)
    [(path, document)] = [
        d for d in world.ledger._documents.items() if d[0].startswith("jobs/job")
    ][:1]
    world.ledger._documents["jobs/job_other"] = document
    del path
    await audited(world)
    assert [incident["kind"] for incident in world.incidents()] == ["changed_after_seal"]


async def test_what_cannot_be_read_makes_a_report_incomplete() -> None:
    """A listing that is refused is never taken for a bucket without objects."""
    world = await delivered(3)
    close_window(world)

    async def refused(prefix: str, *, page: str | None = None) -> Any:
        raise ObjectsUnavailable("403: no permission to list")

    world.objects.list_page = refused  # type: ignore[method-assign]
    result, view = await audited(world)
    assert not result.complete
    assert (view["complete"], view["sealed"], view["missing_output"]) == (False, False, [])
    assert "403" in view["errors"][0]
    assert world.incidents() == []


async def test_a_run_that_ends_after_the_listing_misses_nothing() -> None:
    """Its output is younger than the listing, which says nothing about it."""
    world = await delivered(1)
    await world.submit(submission(["m0"], question="late", key="late"))
    listing = world.objects.list_page

    async def ends_meanwhile(prefix: str, *, page: str | None = None) -> Any:
        listed = await listing(prefix, page=page)
        await world.finish()
        return listed

    world.objects.list_page = ends_meanwhile  # type: ignore[method-assign]
    _, view = await audited(world)
    assert view["counts"]["succeeded"] == 2
    assert view["missing_output"] == []
    assert world.incidents() == []


async def test_a_missing_index_is_no_clean_report() -> None:
    """A query that cannot be answered is an error of the audit, not an empty window."""
    world = await delivered(3)
    close_window(world)
    answer = world.ledger.query

    async def unindexed(query: Query) -> list[Snapshot]:
        if query.collection == "jobs":
            raise LedgerUnavailable("the query requires an index that is building")
        return await answer(query)

    world.ledger.query = unindexed  # type: ignore[method-assign]
    result, view = await audited(world)
    assert not result.complete
    assert (view["complete"], view["sealed"]) == (False, False)


async def test_documents_that_lack_a_field_are_counted_and_listed() -> None:
    """Neither an order nor a filter over the field leaves them out of the denominator."""
    world = await delivered(3)
    jobs = list(world.jobs())
    del world.ledger._documents[f"jobs/{jobs[0]}"].data["submitted_at"]
    world.ledger._documents[f"jobs/{jobs[1]}"].data["submitted_at"] = None
    del world.ledger._documents[f"jobs/{jobs[2]}"].data["window"]
    result, view = await audited(world)
    assert view["population"] == 2
    assert sorted(view["malformed"]) == sorted(f"jobs/{job}" for job in jobs[:2])
    assert result.malformed == [f"jobs/{jobs[2]}"]


async def test_a_late_answer_of_a_canceled_run_is_no_orphan() -> None:
    """It is kept for reuse, so its evaluation points to it."""
    world = await delivered(1)
    [job] = world.jobs().values()
    work_key = job.seats[0].work_key
    evaluation = world.ledger._documents[evaluation_path(work_key)].data
    name = f"outputs/{TENANT}/{WINDOW}/{work_key}/1.json"
    await world.objects.create(name, b"{}", content_type="application/json", metadata={})
    evaluation["output"] = evaluation["output"] | {"uri": world.objects.uri(name)}
    _, view = await audited(world)
    assert view["orphan_outputs"] == []


async def test_a_report_of_many_gaps_stays_readable() -> None:
    """Lists show their first hundred and say how many more there are; counts are whole."""
    world = await delivered(0)
    await world.submit(submission(["m0"]))
    await world.finish()
    for number in range(250):
        name = f"outputs/{TENANT}/{WINDOW}/{number:064}/0.json"
        await world.objects.create(name, b"{}", content_type="application/json", metadata={})
    result, view = await audited(world)
    assert (len(view["orphan_outputs"]), view["truncated"]["orphan_outputs"]) == (100, 150)
    assert result.windows[0]["gaps"] >= 250
    assert len(world.incidents()) <= 102


async def delivered(count: int) -> World:
    """Return a world whose jobs have succeeded and whose notifications have arrived."""
    world = await finished(count)
    await mark_delivered(world)
    return world


async def mark_delivered(world: World) -> None:
    """Let all notifications have arrived."""
    for path, document in world.ledger._documents.items():
        if path.startswith("notifications/"):
            document.data["state"] = "delivered"
            document.data["delivered"] = True
            document.data.pop("next_at", None)
