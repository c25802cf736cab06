"""A replay runs a job's seats without a success again, as they were accepted, and nothing else."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions import replays
from functions.core.budgets import Caps
from functions.core.documents import from_document, job_path, run_path, tenant_day_path
from functions.core.jobs import Job, JobState, Outcome, SeatState, TenantDay
from functions.core.leases import is_live
from functions.core.ports import Update
from functions.replays import NotReplayable, ReplayGone, replay
from functions.reports import build_report
from functions.services import Services
from functions.statuses import attempts_view, job_view, read_status
from functions.tenant_caps import TenantCaps
from functions.tenant_days import DaySpent
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.world import TENANT, World, evaluation_of, submission
from tests.unit.test_leasing import unsteady

TWO = ("m0", "m1")


def refusing(world: World, *models: str) -> None:
    """Let the provider refuse what these models are asked, for good."""
    world.provider.script = lambda request, number: (
        failure("invalid_request", http_status=400)
        if request.model in models
        else world.provider.answer(request, number)
    )


async def partial(world: World, **policy: Any) -> Job:
    """Return a job that has ended with a success and a failure."""
    refusing(world, "m1")
    job = await world.submit(submission(TWO, **policy))
    await world.finish()
    refusing(world)
    return world.jobs()[job.id]


async def begun(world: World, job: Job) -> Job:
    """Replay a job."""
    return await replay(world.api.services, job, by="someone")


async def test_only_the_open_seats_are_bought_again() -> None:
    """The success is carried over, the failed seat is asked again, and the run succeeds."""
    world = World()
    job = await partial(world)
    assert job.state is JobState.FAILED
    await begun(world, job)
    assert world.collect() == 1
    await world.finish()
    after, seats = world.jobs()[job.id], world.seats(job.id)
    assert (after.run, after.state) == (2, JobState.SUCCEEDED)
    assert seats[(2, 0)].carried
    assert seats[(2, 0)].reused
    assert seats[(2, 0)].output == seats[(1, 0)].output
    assert not seats[(2, 1)].carried
    assert [a.number for a in seats[(2, 1)].attempts] == [1]
    assert world.sent() == {job.seats[0].work_key: 1, job.seats[1].work_key: 2}
    assert not broken(world)


async def test_earlier_runs_keep_their_records() -> None:
    """The first run's terminal and seat records are what they were before the replay."""
    world = World()
    job = await partial(world)
    terminal, seats = world.terminals(job.id)[1], world.seats(job.id)
    await begun(world, job)
    await world.finish()
    assert world.terminals(job.id)[1] == terminal
    assert terminal.state is JobState.FAILED
    assert {key: record for key, record in world.seats(job.id).items() if key[0] == 1} == seats


async def test_the_accepted_part_stays_pinned() -> None:
    """Seats, policy, inputs, digests and decision of the new run are those that were accepted."""
    world = World()
    job = await partial(world)
    await begun(world, job)
    after = world.jobs()[job.id]
    fields = ("seats", "policy", "inputs", "digests", "decision_id", "window", "submitted_at")
    assert all(getattr(after, name) == getattr(job, name) for name in fields)
    assert after.policy_revision == job.policy_revision


async def test_the_run_counts_in_the_window_it_was_asked_for() -> None:
    """Two hours later the replay is on record in that hour, under who asked for it."""
    world = World()
    job = await partial(world)
    world.clock.advance(2 * 3600)
    await begun(world, job)
    after, run = world.jobs()[job.id], world.ledger.stored()[run_path(job.id, 2)]
    assert (job.window, after.window, after.run_window) == (job.window, job.window, run["window"])
    assert run["window"] != job.window
    assert (run["tenant"], run["job"], run["run"], run["by"]) == (TENANT, job.id, 2, "someone")
    assert run["run_at"] == after.run_at
    assert f"windows/{TENANT}.{run['window']}" in world.ledger.stored()
    assert after.deadline_at - after.run_at == job.deadline_at - job.run_at
    entries = [d for p, d in world.ledger.stored().items() if p.startswith("operator_log/")]
    assert [(e["who"], e["what"], e["job"]) for e in entries] == [("someone", "replay", job.id)]


async def test_failures_before_the_replay_do_not_count() -> None:
    """A seat whose tries were spent has all of them again."""
    world = World()
    world.provider.script = lambda request, number: failure("overloaded", http_status=529)
    job = await world.submit(submission(max_attempts=2))
    await world.finish()
    await begun(world, world.jobs()[job.id])
    await world.finish()
    seats = world.seats(job.id)
    assert [len(seats[(run, 0)].attempts) for run in (1, 2)] == [2, 2]
    assert not broken(world)


async def test_an_open_job_is_not_replayed() -> None:
    """A job that has not ended stays as it is, before and after its own replay."""
    world = World()
    job = await world.submit(submission())
    with pytest.raises(NotReplayable, match="accepted"):
        await begun(world, job)
    await world.finish()
    with pytest.raises(NotReplayable, match="every seat"):
        await begun(world, job)
    assert world.jobs()[job.id].run == 1


async def test_two_replays_at_once_begin_one_run() -> None:
    """One of them begins the run; the other finds the job open."""
    world = World()
    job = await partial(world)
    results = await asyncio.gather(*(begun(world, job) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, Job) for result in results) == 1
    assert sum(isinstance(result, NotReplayable) for result in results) == 4
    await world.finish()
    assert world.jobs()[job.id].run == 2
    assert not broken(world)


async def test_a_replay_whose_answer_was_lost_is_read_back() -> None:
    """The commit was applied and its answer lost: the run is begun once, and said to be."""
    world = World()
    job = await partial(world)
    unsteady(world, "applied")
    assert (await begun(world, job)).run == 2
    await world.finish()
    assert not broken(world)


async def test_a_success_on_record_after_a_stop_is_reused() -> None:
    """What a canceled run's late answer left in the bucket is not bought again by the replay."""
    world = World()
    job = await partial(world)
    stored = world.seats(job.id)[(1, 0)]
    canceled = await world.submit(submission(("m0", "m2"), key="other"))
    await world.cancel(canceled)
    await begun(world, world.jobs()[canceled.id])
    await world.finish()
    record = world.seats(canceled.id)[(2, 0)]
    assert record.output == stored.output
    assert not record.carried
    assert not broken(world)


async def test_a_replay_waits_for_the_calls_that_a_cancel_cuts() -> None:
    """Asked for right after a cancel, it begins once the calls of the stopped run have ended."""
    world = World()
    world.provider.seconds = 60.0
    job = await world.submit(submission(TWO))
    work = asyncio.create_task(world.deliver_all(at_once=True))
    await world.clock.sleep(3.0)
    canceled = await world.cancel(job)
    assert (await begun(world, canceled)).run == 2
    await work
    world.provider.seconds = 1.0
    await world.finish()
    first = [world.seats(job.id)[(1, index)] for index in (0, 1)]
    assert [record.state for record in first] == [SeatState.CANCELED] * 2
    assert [a.outcome for record in first for a in record.attempts] == [Outcome.CANCELED] * 2
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert not broken(world)


async def test_a_call_that_does_not_end_refuses_the_replay() -> None:
    """While a lease of the stopped run is live and nobody cuts its call, the job stays as it is."""
    world = World()
    world.provider.seconds = 60.0
    job = await world.submit(submission())
    work = asyncio.create_task(world.deliver_all())
    await world.clock.sleep(3.0)
    assert is_live(evaluation_of(world, job), world.clock.now())
    world.evaluator.services.inflight.cut = lambda *_: 0  # type: ignore[method-assign]
    canceled = await world.cancel(job)
    with pytest.raises(NotReplayable, match="1 calls"):
        await begun(world, canceled)
    assert world.jobs()[job.id].run == 1
    await work
    await world.finish()


async def test_a_canceled_replay_of_a_success_closes_succeeded_again() -> None:
    """The carried successes were enough before, so a cancel of the replay takes nothing away."""
    world = World()
    job = await partial(world, required_seats=1)
    assert job.state is JobState.SUCCEEDED
    await begun(world, job)
    await world.cancel(world.jobs()[job.id])
    await world.finish()
    after, terminal = world.jobs()[job.id], world.terminals(job.id)[2]
    assert (after.state, after.stop) == (JobState.SUCCEEDED, JobState.CANCELED)
    assert "1 successes of earlier runs stand" in terminal.reason
    assert world.seats(job.id)[(2, 1)].state is SeatState.CANCELED
    assert world.sent()[job.seats[1].work_key] == 1
    assert not broken(world)


async def test_an_expired_replay_of_a_success_closes_succeeded_again() -> None:
    """The same at the deadline: the seat without an answer is expired, the job is not."""
    world = World()
    job = await partial(world, required_seats=1, deadline_seconds=100)
    await begun(world, job)
    world.drop_messages()
    world.clock.advance(101)
    await world.repair()
    await world.finish()
    status = await read_status(world.api.services, world.jobs()[job.id])
    view = job_view(status)
    assert (view["state"], view["terminal"]["state"]) == ("succeeded", "succeeded")
    assert view["seats"][1]["state"] == "expired"
    assert view["seats"][1]["error"]["code"] == "deadline_exceeded"
    assert not broken(world)


async def test_a_canceled_replay_of_a_failure_is_canceled() -> None:
    """Carried successes that were too few before do not make a stopped run succeed."""
    world = World()
    job = await partial(world)
    await begun(world, job)
    await world.cancel(world.jobs()[job.id])
    await world.finish()
    assert world.jobs()[job.id].state is JobState.CANCELED
    await begun(world, world.jobs()[job.id])
    await world.finish()
    assert (world.jobs()[job.id].run, world.jobs()[job.id].state) == (3, JobState.SUCCEEDED)
    assert not broken(world)


async def test_a_late_delivery_of_the_old_run_touches_nothing_of_the_new_one() -> None:
    """All messages of the first run come again while the second is open: nothing is bought."""
    world = World()
    job = await partial(world)
    old = world.topics.messages(world.settings.evaluate_topic)
    await begun(world, job)
    before = dict(world.ledger.stored())
    for message in old:
        assert await world.deliver(message)
    assert world.ledger.stored() == before


async def test_views_and_reports_show_all_runs() -> None:
    """Attempts and usage are of all runs; seats, terminal and report are the current run's."""
    world = World()
    job = await partial(world)
    await begun(world, job)
    services = world.api.services
    open_view = job_view(await read_status(services, world.jobs()[job.id]))
    assert (open_view["run"], open_view["state"], open_view["terminal"]) == (2, "accepted", None)
    assert [seat["state"] for seat in open_view["seats"]] == ["succeeded", "queued"]
    assert open_view["usage"]["requests"] == 2
    await world.finish()
    status = await read_status(services, world.jobs()[job.id])
    attempts = attempts_view(status)["attempts"]
    assert [(a["run"], a["seat"], a["outcome"]) for a in attempts] == [
        (1, "fake/m0", "succeeded"),
        (1, "fake/m1", "permanent"),
        (2, "fake/m1", "succeeded"),
    ]
    view = job_view(status)
    assert (view["terminal"]["run"], view["usage"]["requests"]) == (2, 3)
    assert [(s["carried"], s["attempts"]) for s in view["seats"]] == [(True, 0), (False, 1)]
    report = await build_report(services, status)
    assert (report["run"], report["complete"]) == (2, True)
    assert [seat["seat"] for seat in report["seats"]] == ["fake/m0", "fake/m1"]


async def test_a_carried_output_that_is_gone_refuses_the_replay() -> None:
    """Without the object that it would carry over, no run is begun, and the reason is told."""
    world = World()
    job = await partial(world)
    world.objects.lose(world.objects.names()[0])
    with pytest.raises(ReplayGone, match="fake/m0 is gone"):
        await begun(world, job)
    assert world.jobs()[job.id].run == 1


async def test_inputs_that_are_gone_refuse_the_replay() -> None:
    """Without the facts that it was accepted with, no run is begun."""
    world = World()
    refusing(world, "m0")
    job = await world.submit(submission(filler=40_000))
    await world.finish()
    ended = world.jobs()[job.id]
    assert ended.inputs.facts_object is not None
    world.objects.lose(ended.inputs.facts_object)
    with pytest.raises(ReplayGone, match="the facts are gone"):
        await begun(world, ended)
    assert world.jobs()[job.id].run == 1


async def test_a_job_whose_records_will_soon_expire_is_not_replayed() -> None:
    """With less than half of the retention left, a run's records could go before its audit."""
    world = World()
    job = await partial(world)
    world.clock.advance(timedelta(days=201).total_seconds())
    with pytest.raises(ReplayGone, match="expire"):
        await begun(world, job)


async def test_a_replay_reserves_its_own_day() -> None:
    """The open seats' worst case is reserved on the day of the replay, and trued up at its end."""
    caps = TenantCaps(everyone=Caps(requests=12))
    world = World(tenant_caps=caps)
    job = await partial(world)
    world.clock.advance(86_400)
    await begun(world, job)
    after = world.jobs()[job.id]
    assert after.day is not None
    assert job.day is not None
    assert (job.day.requests, after.day.requests) == (2, 4)
    assert after.day.day != job.day.day
    await world.finish()
    assert _day(world, job.day.day).requests == 2
    assert _day(world, after.day.day).requests == 1
    assert not broken(world)


async def test_a_replay_that_does_not_fit_into_the_day_is_refused() -> None:
    """With the day spent nothing is recorded, and the job stays as it ended."""
    world = World(tenant_caps=TenantCaps(everyone=Caps(requests=9)))
    job = await partial(world)
    await world.submit(submission(key="other", question="other", max_attempts=4))
    with pytest.raises(DaySpent):
        await begun(world, job)
    assert world.jobs()[job.id] == job
    assert run_path(job.id, 2) not in world.ledger.stored()


def _day(world: World, day: str) -> TenantDay:
    path = tenant_day_path(TENANT, day)
    return from_document(TenantDay, world.ledger.stored()[path], path)


async def test_a_changed_prompt_is_refused_not_answered() -> None:
    """G19: the pinned digests decide; a seat that would now be asked otherwise is not asked."""
    world = World()
    job = await partial(world)
    digests = replace(job.digests, prompt="0" * 64)
    fields = {"digests": {**world.ledger.stored()[job_path(job.id)]["digests"], "prompt": "0" * 64}}
    await world.ledger.commit(Update(path=job_path(job.id), fields=fields))
    await begun(world, replace(job, digests=digests))
    await world.finish()
    record = world.seats(job.id)[(2, 1)]
    assert record.error is not None
    assert record.error.code == "identity_changed"
    assert world.sent()[job.seats[1].work_key] == 1


async def test_a_purge_between_look_and_commit_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is opened only as it was read: a job purged meanwhile gets no new run."""
    world = World()
    job = await partial(world)
    check = replays._check_nothing_gone

    async def purged_meanwhile(services: Services, plan: replays.Plan) -> None:
        await check(services, plan)
        await world.purge(job)

    monkeypatch.setattr(replays, "_check_nothing_gone", purged_meanwhile)
    with pytest.raises(ReplayGone, match="purged"):
        await begun(world, job)
    assert world.jobs()[job.id].run == 1
    await world.finish()
    assert not broken(world)
