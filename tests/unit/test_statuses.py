"""What a reader of a job sees: states and facts read off the records."""

import asyncio
from typing import Any

from functions.core.jobs import Job, JobState, SeatState
from functions.statuses import JobStatus, attempts_view, job_summary, job_view, read_status
from tests.faults.fakes import failure
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission


async def status_of(world: World, job: Job) -> JobStatus:
    return await read_status(world.api.services, world.jobs()[job.id])


async def seats_of(world: World, job: Job) -> list[dict[str, Any]]:
    seats: list[dict[str, Any]] = job_view(await status_of(world, job))["seats"]
    return seats


async def test_a_new_job_is_queued() -> None:
    """Nothing has happened: no attempts, no times, no terminal record."""
    world = World()
    job = await world.submit(submission(["m0", "m1"]))
    view = job_view(await status_of(world, job))
    assert (view["state"], view["terminal"], view["run"]) == ("accepted", None, 1)
    assert [seat["state"] for seat in view["seats"]] == ["queued", "queued"]
    assert view["seats"][0]["attempts"] == 0
    assert view["seats"][0]["started_at"] is None
    assert view["usage"] == {
        "requests": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": 0.0,
    }
    assert view["submitted_at"] == "2026-11-29T12:00:00Z"
    assert view["deadline_at"] == "2026-11-29T13:00:00Z"


async def test_a_seat_under_a_live_lease_runs() -> None:
    """While a call is in flight its seat is running, and its attempt is listed as running."""
    world = World()
    world.provider.seconds = 20.0
    job = await world.submit(submission())
    work = asyncio.create_task(world.deliver_all())
    await world.clock.sleep(5.0)
    status = await status_of(world, job)
    [seat] = job_view(status)["seats"]
    assert (seat["state"], seat["attempts"]) == ("running", 1)
    assert status.job.state is JobState.RUNNING
    [attempt] = attempts_view(status)["attempts"]
    assert (attempt["outcome"], attempt["ended_at"]) == ("running", None)
    await work


async def test_a_seat_whose_retry_is_due_later_waits() -> None:
    """A waiting seat says when it goes on."""
    world = World()
    world.provider.script = lambda request, number: failure("rate_limited", hint_seconds=300.0)
    job = await world.submit(submission())
    await world.deliver_all()
    [seat] = await seats_of(world, job)
    assert (seat["state"], seat["due_at"]) == ("waiting", "2026-11-29T12:05:01Z")


async def test_a_dead_holders_seat_is_not_shown_as_running() -> None:
    """After its lease has run out nobody works on the seat, and the view says so."""
    world = World()
    world.plan.always = {"evaluate: call": Strike(fate=Fate.DIE, moment=Moment.BEFORE)}
    job = await world.submit(submission())
    world.collect()
    await world.deliver(world.pending[0].message)
    assert [seat["state"] for seat in await seats_of(world, job)] == ["running"]
    world.clock.advance(31.0)
    assert [seat["state"] for seat in await seats_of(world, job)] == ["queued"]


async def test_an_ended_job_shows_its_outputs_and_its_terminal_record() -> None:
    """Every field that the interface names is there and is what the records say."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    view = job_view(await status_of(world, job))
    [seat] = view["seats"]
    record, terminal = world.seats(job.id)[(1, 0)], world.terminals(job.id)[1]
    assert record.output is not None
    assert seat["output"] == {
        "uri": record.output.uri,
        "generation": record.output.generation,
        "sha256": record.output.sha256,
    }
    assert (seat["state"], seat["reused"], seat["error"]) == ("succeeded", False, None)
    assert view["terminal"]["state"] == "succeeded"
    assert view["terminal"]["decision_id"] == terminal.decision_id == view["decision_id"]
    assert view["usage"]["requests"] == 1
    assert view["usage"]["input_tokens"] == 100


async def test_a_reused_seat_lists_no_attempt_of_its_own() -> None:
    """Attempts belong to the job that claimed them; only that job lists them and pays."""
    world = World()
    await world.submit(submission(key="first"))
    await world.finish()
    job = await world.submit(submission(key="second"))
    await world.finish()
    status = await status_of(world, job)
    [seat] = job_view(status)["seats"]
    assert (seat["reused"], seat["attempts"]) == (True, 0)
    assert attempts_view(status) == {"attempts": []}
    assert job_view(status)["usage"]["requests"] == 0


async def test_a_failed_seat_shows_its_error_and_its_attempts() -> None:
    """Code, message and whether asking again can help; each attempt with what was learned."""
    world = World()
    world.provider.script = lambda request, number: failure(
        "quota_exhausted", http_status=429, request_id="req_9"
    )
    job = await world.submit(submission())
    await world.finish()
    status = await status_of(world, job)
    [seat] = job_view(status)["seats"]
    [attempt] = attempts_view(status)["attempts"]
    assert seat["error"]["code"] == "quota_exhausted"
    assert seat["error"]["retryable"] is False
    assert (attempt["seat"], attempt["number"], attempt["run"]) == ("fake/m0", 1, 1)
    assert (attempt["outcome"], attempt["http_status"]) == ("permanent", 429)
    assert attempt["provider_request_id"] == "req_9"
    assert attempt["cost_usd"] == 0.0  # turned away: nothing was generated


async def test_seats_of_a_stopped_run_show_its_end_before_they_have_records() -> None:
    """Right after a cancel an open seat is canceled, not queued."""
    world = World()
    job = await world.submit(submission())
    world.drop_messages()
    await world.cancel(job)
    status = await status_of(world, job)
    assert status.record(0) is None
    assert status.seat_state(0) is SeatState.CANCELED


async def test_a_summary_needs_only_the_job() -> None:
    """Lists show what the job's own document says."""
    world = World()
    job = await world.submit(submission())
    summary = job_summary(job)
    assert summary["seats"] == [{"seat": "fake/m0", "provider": "fake", "model": "m0"}]
    assert (summary["id"], summary["state"]) == (job.id, "accepted")
