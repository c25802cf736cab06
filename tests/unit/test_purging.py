"""A purge deletes what was asked and what was answered, and leaves digests, records and reasons."""

import asyncio
from typing import Any

import pytest

from functions.acceptance import IdempotencyConflict, accept
from functions.audit import audit
from functions.core.documents import window_path
from functions.core.jobs import Inputs, Job, JobState, Outcome, SeatState
from functions.core.windows import Window
from functions.listing import JobFilter, list_jobs
from functions.purging import LONGEST_CALL_SECONDS, NotPurgeable, _mark, purge, sweep
from functions.replays import ReplayGone, replay
from functions.reports import build_report
from functions.statuses import job_view, read_status
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.world import TENANT, World, evaluation_of, submission
from tests.unit.test_leasing import unsteady


async def ended(world: World, *models: str, **asked: Any) -> Job:
    """Return a job that has ended."""
    job = await world.submit(submission(models or ("m0",), **asked))
    await world.finish()
    return world.jobs()[job.id]


async def purged(world: World, job: Job) -> Job:
    """Purge a job."""
    world.questions()
    await purge(world.api.services, job, by="operator")
    return world.jobs()[job.id]


def outputs(world: World) -> list[str]:
    """Return the names of all answers in the bucket."""
    return [name for name in world.objects.names() if name.startswith("outputs/")]


async def test_inputs_and_outputs_are_gone_and_the_digests_stay() -> None:
    """Nothing of the facts or the answers is left; who asked what is still told by digests."""
    world = World()
    job = await ended(world, "m0", "m1")
    after = await purged(world, job)
    assert outputs(world) == []
    assert after.inputs == Inputs()
    assert after.purged_at is not None
    assert after.digests == job.digests
    assert (after.state, after.run) == (JobState.SUCCEEDED, 1)
    assert all(state.output is None for state in world.evaluations().values())
    record = world.seats(job.id)[(1, 0)]
    assert record.output is not None
    assert record.output.sha256
    await world.finish()
    assert not broken(world)


async def test_input_objects_are_deleted() -> None:
    """Inputs too large for the document are deleted from the bucket."""
    world = World()
    job = await ended(world, filler=40_000)
    await purged(world, job)
    assert world.objects.names() == []


async def test_a_rubric_that_others_use_stays() -> None:
    """Jobs about other facts, asked by the same large rubric, can still be replayed."""
    world = World()
    job = await ended(world, filler=40_000)
    other = await ended(world, key="other", question="other", filler=40_000)
    await purged(world, job)
    left = [name for name in world.objects.names() if name.startswith("inputs/")]
    assert sorted(left) == sorted(
        name for name in (other.inputs.facts_object, other.inputs.rubric_object) if name
    )


async def test_a_later_job_buys_again_under_a_new_name() -> None:
    """The same question is asked anew after a purge, and its answer is an object of its own."""
    world = World()
    job = await ended(world)
    first = evaluation_of(world, job).object_name
    await purged(world, job)
    later = await ended(world, key="later")
    state = evaluation_of(world, later)
    assert world.sent() == {state.work_key: 2}
    assert state.object_name != first
    assert outputs(world) == [state.object_name]
    await world.finish()
    assert outputs(world) == [state.object_name], "the last look takes no later answer"
    assert not broken(world)


async def test_a_job_that_shared_the_answer_says_purged() -> None:
    """Its report names the seat as missing, because purged; it is no incident and no gap."""
    world = World()
    job = await ended(world)
    other = await ended(world, key="other")
    await purged(world, job)
    report = await build_report(
        world.api.services, await read_status(world.api.services, world.jobs()[other.id])
    )
    [missing] = report["missing"]
    assert (missing["code"], missing["reason"]) == ("output_missing", "purged")
    assert world.incidents() == []


async def test_the_audit_counts_what_was_purged() -> None:
    """The purged job and the one that shared its answer are counted; neither is a gap."""
    world = World()
    job = await ended(world)
    await ended(world, key="other")
    lost = await ended(world, key="lost", question="lost")
    await purged(world, job)
    world.objects.lose(evaluation_of(world, lost).object_name or "")
    await audit(world.reconciler.services)
    view = await _audited(world, job)
    assert (view["population"], view["purged"]) == (3, 2)
    assert [entry["job_id"] for entry in view["missing_output"]] == [lost.id]
    assert view["orphan_outputs"] == []


async def test_an_answer_purged_after_its_window_was_scanned_is_no_gap() -> None:
    """What an earlier audit found missing counts as purged once it is."""
    world = World()
    job = await ended(world)
    other = await ended(world, key="other")
    world.objects.lose(evaluation_of(world, job).object_name or "")
    world.clock.advance(2 * 3600)
    await audit(world.reconciler.services)
    assert len((await _audited(world, job))["missing_output"]) == 2
    await purged(world, other)
    await audit(world.reconciler.services)
    view = await _audited(world, job)
    assert (view["purged"], view["missing_output"]) == (2, [])


async def _audited(world: World, job: Job) -> Any:
    window = world._records(Window, "windows")[window_path(TENANT, job.window)]
    return window.view


async def test_an_open_job_is_not_purged() -> None:
    """What is being worked on stays, and so does what an open job with the same facts needs."""
    world = World()
    job = await world.submit(submission())
    with pytest.raises(NotPurgeable, match="accepted"):
        await purged(world, job)
    await world.finish()
    other = await world.submit(submission(("m5",), key="other"))
    with pytest.raises(NotPurgeable, match=other.id):
        await purged(world, job)
    assert world.jobs()[job.id].purged_at is None
    await world.finish()
    assert (await purged(world, job)).purged_at is not None


async def test_a_purge_that_is_repeated_changes_nothing() -> None:
    """A second request finds the mark of the first, and its time stays."""
    world = World()
    job = await ended(world)
    first = await purged(world, job)
    world.clock.advance(5.0)
    assert await purged(world, job) == first


async def test_purges_at_once_leave_one_entry_in_the_log() -> None:
    """Five operators at once: all are answered, the deed is on record once, with one name."""
    world = World()
    job = await ended(world)
    await asyncio.gather(*(purged(world, job) for _ in range(5)))
    entries = [d for p, d in world.ledger.stored().items() if p.startswith("operator_log/")]
    assert [(e["who"], e["what"], e["job"]) for e in entries] == [("operator", "purge", job.id)]
    assert len(evaluation_of(world, job).purged) == 1


async def test_a_mark_whose_answer_was_lost_is_read_back() -> None:
    """The commit was applied and its answer lost: the purge goes on."""
    world = World()
    job = await ended(world)
    unsteady(world, "applied")
    await purged(world, job)
    assert outputs(world) == []


async def test_a_purged_job_keeps_its_identity() -> None:
    """G21: the same key with another body is a conflict, with the same body the purged job."""
    world = World()
    job = await ended(world)
    await purged(world, job)
    services = world.api.services
    again = await accept(services, submission())
    assert (again.created, again.job.id) == (False, job.id)
    assert again.job.purged_at is not None
    with pytest.raises(IdempotencyConflict):
        await accept(services, submission(question="other"))
    view = job_view(await read_status(services, again.job))
    assert view["purged_at"] is not None
    page = await list_jobs(services, TENANT, JobFilter(), limit=10, cursor=None)
    assert [listed.id for listed in page.jobs] == [job.id]


async def test_a_purged_job_is_not_replayed() -> None:
    """Its inputs are gone: no run is begun."""
    world = World()
    world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await ended(world)
    await purged(world, job)
    with pytest.raises(ReplayGone, match="purged"):
        await replay(world.api.services, job, by="someone")


async def test_a_replay_that_would_carry_a_purged_answer_is_refused() -> None:
    """Another job's purge took the answer away that this one would carry over."""
    world = World()
    world.provider.script = lambda request, number: (
        failure("invalid_request", http_status=400)
        if request.model == "m1"
        else world.provider.answer(request, number)
    )
    job = await ended(world, "m0", "m1")
    other = await ended(world, key="other")
    await purged(world, other)
    with pytest.raises(ReplayGone, match="fake/m0 was purged"):
        await replay(world.api.services, job, by="someone")


async def test_a_late_upload_is_deleted_too() -> None:
    """A call outlives its canceled run and the purge: its answer is not adopted, and not kept."""
    world = World()
    world.provider.seconds = 8.0  # before the first renewal of the lease, which finds it gone
    job = await world.submit(submission())
    work = asyncio.create_task(world.deliver_all())
    await world.clock.sleep(3.0)
    world.evaluator.services.inflight.cut = lambda *_: 0  # type: ignore[method-assign]
    await world.cancel(job)
    await purged(world, world.jobs()[job.id])
    assert outputs(world) == []
    await work
    assert len(outputs(world)) == 1, "the late holder stored its answer"
    await world.finish()
    state = evaluation_of(world, job)
    assert outputs(world) == []
    assert (state.output, state.holder) == (None, None)
    assert [a.outcome for a in state.attempts] == [Outcome.UNKNOWN]
    record = world.seats(job.id)[(1, 0)]
    assert (record.state, len(record.attempts)) == (SeatState.CANCELED, 1)


async def test_the_timer_is_kept_until_no_call_can_be_left() -> None:
    """Repair looks a last time after the longest call, then the job is off the timer."""
    world = World()
    job = await purged(world, await ended(world))
    assert job.check_at is not None
    world.clock.advance(61)
    await world.repair()
    looked = world.jobs()[job.id]
    assert looked.check_at is not None
    assert looked.purged_at is not None
    assert (looked.check_at - looked.purged_at).total_seconds() == LONGEST_CALL_SECONDS
    world.clock.advance(LONGEST_CALL_SECONDS)
    await world.repair()
    assert world.jobs()[job.id].check_at is None


async def test_facts_that_come_back_are_not_deleted_with_the_old_ones() -> None:
    """A later job's large facts have the same name and another generation: they are spared."""
    world = World()
    job = await ended(world, filler=40_000)
    await purged(world, job)
    later = await ended(world, key="later", filler=40_000)
    await world.finish()
    assert later.inputs.facts_object in world.objects.names()
    assert later.inputs.rubric_object in world.objects.names()


async def test_facts_that_an_open_job_came_to_share_stay_until_it_has_ended() -> None:
    """Accepted between the mark and the deletion, a job still reads its facts; then they go."""
    world = World()
    job = await ended(world, filler=40_000)
    services = world.api.services
    marked = await _mark(services, job, "operator")
    later = await world.submit(submission(key="later", filler=40_000))
    await sweep(services, marked)
    assert later.inputs.facts_object in world.objects.names()
    await world.deliver_all()
    assert world.jobs()[later.id].state is JobState.SUCCEEDED
    await sweep(services, marked)
    assert later.inputs.facts_object not in world.objects.names()
