"""How seats and runs end: created once, counted from what is on record, closed in one commit."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from functions.core.documents import (
    job_path,
    notification_path,
    seat_path,
    stop_path,
    terminal_path,
)
from functions.core.endings import seat_record, total
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import Job, JobState, Outcome, SeatError, SeatState, Totals, Usage
from functions.core.ports import Update
from functions.settlement import (
    close_if_ended,
    close_run,
    mark_running,
    settle_seat,
    stop_run,
)
from tests.faults.world import World, submission
from tests.unit.records import at, attempt, evaluation, output
from tests.unit.records import job as a_job
from tests.unit.test_leasing import unsteady

FAILED = SeatError(code="refused", message="no", retryable=False)


async def accepted(world: World, seats: int = 2, **policy: Any) -> Job:
    job = await world.submit(submission([f"m{n}" for n in range(seats)], **policy))
    world.drop_messages()
    return job


async def end_seat(world: World, job: Job, index: int, *, success: bool = True) -> bool:
    record = seat_record(
        job,
        index,
        SeatState.SUCCEEDED if success else SeatState.FAILED,
        ended_at=world.clock.now(),
        evaluation=None,
        output=output() if success else None,
        error=None if success else FAILED,
    )
    return await settle_seat(world.evaluator.services, job, record)


async def test_the_first_end_of_a_seat_stays() -> None:
    """A second end of the same seat is refused and told so."""
    world = World()
    job = await accepted(world)
    assert await end_seat(world, job, 0)
    assert not await end_seat(world, job, 0, success=False)
    assert world.seats(job.id)[(1, 0)].state is SeatState.SUCCEEDED


async def test_a_run_is_not_closed_before_its_last_seat() -> None:
    """With one seat open nothing is written."""
    world = World()
    job = await accepted(world)
    await end_seat(world, job, 0)
    assert not await close_if_ended(world.evaluator.services, job)
    assert world.terminals(job.id) == {}


@pytest.mark.parametrize(
    ("required", "successes", "state"),
    [(2, 2, "succeeded"), (2, 1, "failed"), (1, 1, "succeeded"), (1, 0, "failed")],
)
async def test_a_run_succeeds_when_enough_seats_did(
    required: int, successes: int, state: str
) -> None:
    """The close counts successes against `required_seats`, in the record and in the head."""
    world = World()
    job = await accepted(world, required_seats=required)
    for index in range(2):
        await end_seat(world, job, index, success=index < successes)
    assert await close_if_ended(world.evaluator.services, job)
    terminal, head = world.terminals(job.id)[1], world.jobs()[job.id]
    assert (terminal.state.value, head.state.value) == (state, state)
    assert terminal.reason == f"{successes} of 2 seats succeeded, {required} required"
    assert head.check_at is None
    assert [seat.sha256 for seat in terminal.seats] == [
        "b" * 64 if index < successes else None for index in range(2)
    ]


async def test_many_closers_close_once() -> None:
    """Of all who count the seats ended, one is told that it closed the run."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    services = world.evaluator.services
    closed = await asyncio.gather(*(close_if_ended(services, job) for _ in range(5)))
    assert sorted(closed) == [False, False, False, False, True]
    assert sum(c.collection == "terminals" for c in world.ledger.history) == 1


async def test_record_head_and_notification_change_in_one_commit() -> None:
    """No reader sees a terminal record beside an open head, or without its notification."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    await close_if_ended(world.evaluator.services, job)
    record, told, head = world.ledger.history[-3:]
    assert (record.path, head.path) == (terminal_path(job.id, 1), job_path(job.id))
    assert told.path == notification_path(job.decision_id, 1)
    assert record.at == told.at == head.at


async def test_a_stop_closes_what_is_open_and_leaves_a_marker() -> None:
    """A canceled run names its ended seats as they are and the others as canceled."""
    world = World()
    job = await accepted(world)
    await end_seat(world, job, 0)
    assert await stop_run(world.evaluator.services, job, JobState.CANCELED, "canceled")
    terminal = world.terminals(job.id)[1]
    assert [seat.state.value for seat in terminal.seats] == ["succeeded", "canceled"]
    assert stop_path(job.id, 1) in world.ledger.documents()
    assert world.jobs()[job.id].check_at is not None


async def test_the_first_end_of_a_run_stays() -> None:
    """Neither a late close nor a late stop replaces a terminal record, nor moves the head."""
    world = World()
    job = await accepted(world, seats=1)
    await stop_run(world.evaluator.services, job, JobState.EXPIRED, "late")
    before = world.ledger.documents()
    assert not await stop_run(world.evaluator.services, job, JobState.CANCELED, "later")
    await end_seat(world, job, 0)
    assert not await close_if_ended(world.evaluator.services, job)
    after = world.ledger.documents()
    del after[seat_path(job.id, 1, 0)]
    assert after == before


async def test_an_ambiguous_close_that_was_not_applied_is_tried_again() -> None:
    """Nothing on record after no answer: the error comes out, and the close can be repeated."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    unsteady(world, "lost")
    with pytest.raises(LedgerUnavailable):
        await close_if_ended(world.evaluator.services, job)
    assert await close_if_ended(world.evaluator.services, job)


async def test_an_ambiguous_close_that_was_applied_is_mine() -> None:
    """Reading back, a closer knows its own terminal record."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    unsteady(world, "applied")
    assert await close_if_ended(world.evaluator.services, job)


async def test_an_ambiguous_close_by_another_is_not_mine() -> None:
    """A terminal record that differs from mine says that another closed the run."""
    world = World()
    job = await accepted(world, seats=1)
    services, now = world.evaluator.services, world.clock.now()
    await close_run(services, job, JobState.CANCELED, "other", [], now, stopped=JobState.CANCELED)
    unsteady(world, "lost")
    mine = JobState.EXPIRED
    assert not await close_run(services, job, mine, "mine", [], now, stopped=mine)


async def test_a_job_is_marked_running_once_and_never_when_closed() -> None:
    """The start moves an accepted head only, under the update time that was read."""
    world = World()
    job = await accepted(world, seats=1)
    [found] = await world.ledger.get(job_path(job.id))
    assert found.update_time is not None
    services = world.evaluator.services
    await stop_run(services, job, JobState.CANCELED, "canceled")
    await mark_running(services, job, found.update_time)
    assert world.jobs()[job.id].state is JobState.CANCELED


async def test_marking_a_job_running_is_best_effort() -> None:
    """An outage at the start costs the mark, not the call."""
    world = World()
    job = await accepted(world, seats=1)
    [found] = await world.ledger.get(job_path(job.id))
    assert found.update_time is not None
    unsteady(world, "lost")
    await mark_running(world.evaluator.services, job, found.update_time)
    assert world.jobs()[job.id].state is JobState.ACCEPTED
    await mark_running(world.evaluator.services, job, found.update_time)
    assert world.jobs()[job.id].state is JobState.RUNNING


async def test_digests_tell_inputs_and_models_apart() -> None:
    """The terminal record's digests change with what was asked and with who answered."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    await close_if_ended(world.evaluator.services, job)
    first = world.terminals(job.id)[1]
    other = await world.submit(submission(["m9"], question="other", key="other"))
    world.drop_messages()
    await end_seat(world, other, 0)
    await close_if_ended(world.evaluator.services, other)
    second = world.terminals(other.id)[1]
    assert first.input_digest != second.input_digest
    assert first.models_digest != second.models_digest


def test_a_seats_record_lists_its_own_attempts() -> None:
    """Attempts of other jobs, runs and seats are not the seat's."""
    state = evaluation(attempt(1, job="other"), attempt(2), attempt(3, run=2), attempt(4, seat=1))
    record = seat_record(a_job(), 0, SeatState.FAILED, ended_at=at(9), evaluation=state)
    assert [a.token for a in record.attempts] == [2]
    assert record.started_at == at(1)


def test_totals_add_up_and_keep_the_unknown() -> None:
    """One unknown cost makes the sum unknown; tokens of what has usage are added."""
    paid = attempt(1, Outcome.SUCCEEDED, usage=Usage(input_tokens=3, output_tokens=2), cost_usd=0.5)
    assert total([]) == Totals(requests=0, cost_usd=0.0)
    assert total([paid, paid]) == Totals(requests=2, input_tokens=6, output_tokens=4, cost_usd=1.0)
    assert total([paid, replace(paid, usage=None, cost_usd=None)]).cost_usd is None


async def test_a_close_needs_no_precondition_on_a_moving_head() -> None:
    """A timer that moves meanwhile does not keep a run from being closed."""
    world = World()
    job = await accepted(world, seats=1)
    await end_seat(world, job, 0)
    await world.ledger.commit(Update(path=job_path(job.id), fields={"check_at": at(99)}))
    assert await close_if_ended(world.evaluator.services, job)
    assert world.jobs()[job.id].check_at is None
