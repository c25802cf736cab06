"""The tests' own test: mistakes that this kind of system is known for are caught by an invariant.

Each mistake is put into the running code, the same worlds are lived through as in the tests of
every call, and the invariant that must catch it does.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from functions import acceptance, evaluation, leasing, outcome, replays, reuse, settlement
from functions.adapters.memory import MemoryObjects
from functions.core import leases
from functions.core.documents import (
    changes,
    evaluation_path,
    job_path,
    seat_path,
    terminal_path,
    to_document,
)
from functions.core.endings import terminal_record
from functions.core.jobs import Evaluation, Job, JobState, Outcome, SeatRecord
from functions.core.leases import Claim, Claimant
from functions.core.ports import DELETE, Create, Snapshot, StoredObject, Update
from functions.core.retries import decide
from functions.core.verdicts import CallFailure
from functions.dispatch import SeatMessage, dispatch
from functions.evaluation import Delivery
from functions.inputs import read_question
from functions.leasing import Granted, Lease
from functions.looking import Seen
from functions.services import Services
from functions.web import push
from tests.faults.invariants import broken
from tests.faults.matrix import ONE, THREE_AT_ONCE, THREE_IN_TURN, MakeWorld, Shape, struck
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission


def caught(shape: Shape, fate: Fate, make: MakeWorld = World) -> set[str]:
    """Return the names of all invariants that some case of the matrix breaks."""
    return {
        name
        for moment in Moment
        for _, world in struck(shape, fate, moment, make)
        for name in broken(world)
    }


class OverwritingObjects(MemoryObjects):
    """A bucket without `ifGenerationMatch=0`: the last object under a name wins."""

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Store whatever is there already."""
        self._objects.pop(name, None)
        return await super().create(name, data, content_type=content_type, metadata=metadata)


def test_a_store_without_precondition_is_caught() -> None:
    """A late holder that overwrites the object of a settled seat breaks success => object."""

    def make(strikes: dict[int, Strike]) -> World:
        return World(strikes, objects=OverwritingObjects())

    assert "success_implies_the_object" in caught(ONE, Fate.FREEZE, make)


def test_a_settlement_without_holder_check_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late holder that settles whoever holds the lease now breaks the guard of every write."""
    monkeypatch.setattr(leasing, "is_held_by", lambda state, holder, token: True)
    assert "holder_and_token_guard_every_write" in caught(ONE, Fate.FREEZE)


def test_a_settlement_without_any_precondition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that writes evaluation and seat unseen breaks the guard of every write."""

    async def commit(
        services: Services, lease: Lease, after: Evaluation, create: Create | None = None
    ) -> Lease | None:
        blind = Update(path=lease.path, fields=changes(lease.evaluation, after))
        committed = await services.ledger.commit(blind)
        if create is not None:
            await _overwrite(services, create)
        return replace(lease, evaluation=after, update_time=committed)

    monkeypatch.setattr(settlement, "commit_as_holder", commit)
    assert caught(ONE, Fate.FREEZE) >= {
        "holder_and_token_guard_every_write",
        "ended_seats_never_change",
    }


def test_a_release_without_token_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late holder that frees a lease which is another's now breaks the guard of every write."""

    async def commit(
        services: Services, lease: Lease, after: Evaluation, create: Create | None = None
    ) -> Lease | None:
        blind = Update(path=lease.path, fields=changes(lease.evaluation, after))
        await services.ledger.commit(blind)
        return lease

    def make(strikes: dict[int, Strike]) -> World:
        world = World(strikes)
        world.provider.script = lambda request, number: (
            world.provider.answer(request, number) if number > 1 else overloaded()
        )
        return world

    monkeypatch.setattr(outcome, "commit_as_holder", commit)
    assert "holder_and_token_guard_every_write" in caught(ONE, Fate.FREEZE, make)


def test_a_close_before_the_settlement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the run before the last seat's record is written is caught, death or not."""
    settle = settlement.settle_as_holder

    async def close_first(
        services: Services, job: Job, lease: Lease, after: Evaluation, record: SeatRecord
    ) -> bool:
        records, now = await settlement.read_seats(services, job)
        ended = [other for other in records if other is not None] + [record]
        if len(ended) == len(job.seats):
            await settlement.close_run(services, job, JobState.SUCCEEDED, "early", ended, now)
        return await settle(services, job, lease, after, record)

    monkeypatch.setattr(outcome, "settle_as_holder", close_first)
    found = caught(THREE_IN_TURN, Fate.DIE)
    assert {"a_run_closes_after_its_seats", "every_accepted_job_ends"} <= found


def test_a_close_that_counts_ahead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing when all but one have ended, because the last is about to, is caught."""
    read_seats = settlement.read_seats

    async def close_early(services: Services, job: Job) -> bool:
        records, now = await read_seats(services, job)
        ended = [record for record in records if record is not None]
        if len(ended) < len(job.seats) - 1:
            return False
        return await settlement.close_run(services, job, JobState.SUCCEEDED, "", ended, now)

    monkeypatch.setattr(evaluation, "close_if_ended", close_early)
    assert "a_run_closes_after_its_seats" in caught(THREE_AT_ONCE, Fate.DIE)


def test_reuse_without_a_look_at_the_object_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seat that reuses an output whose object is gone breaks success => object."""

    async def trust(services: Services, output: object) -> bool:
        return True

    async def second_job_after_the_loss() -> World:
        world = World()
        await world.submit(submission(key="first"))
        await world.finish()
        world.objects.lose(world.objects.names()[0])
        world.observed.expected_incidents = 1
        await world.submit(submission(key="second"))
        await world.finish()
        return world

    sound = asyncio.run(second_job_after_the_loss())
    assert "success_implies_the_object" not in broken(sound)
    monkeypatch.setattr(reuse, "output_exists", trust)
    assert "success_implies_the_object" in broken(asyncio.run(second_job_after_the_loss()))


def test_an_ack_before_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answering 204 and working on afterwards leaves acked messages with nothing on record."""
    work = evaluation.evaluate
    background: set[asyncio.Task[Delivery]] = set()

    async def ack_first(services: Services, message: SeatMessage, *, until: float) -> Delivery:
        task = asyncio.create_task(work(services, message, until=until))
        background.add(task)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return Delivery.ENDED

    monkeypatch.setattr(push, "evaluate_seat", ack_first)
    assert "acked_work_is_on_record" in caught(ONE, Fate.DIE)


def test_an_ack_of_an_outage_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answering 204 when the ledger gave no answer leaves acked messages with nothing on record."""
    monkeypatch.setattr(push, "NACK", push.ACK)
    assert "acked_work_is_on_record" in caught(ONE, Fate.FAIL)


def test_a_request_before_its_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is sent before the claim is committed breaks requests <= attempts."""
    claim = leasing.try_claim

    async def call_first(services: Services, seen: Seen, claimant: Claimant) -> Any:
        question = await read_question(services, seen.job, seen.index)
        await services.providers["fake"].call(question.request)
        return await claim(services, seen, claimant)

    monkeypatch.setattr(evaluation, "try_claim", call_first)
    assert "requests_le_attempts_le_budget" in caught(ONE, Fate.DIE)


def test_a_claim_that_ignores_a_live_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two deliveries that both buy break the guard of leases and the count of requests."""

    async def two_deliveries() -> World:
        world = World()
        await world.submit(submission())
        world.collect()
        message = world.pending[0].message
        await asyncio.gather(world.deliver(message), world.deliver(message))
        await world.finish()
        return world

    assert broken(asyncio.run(two_deliveries())) == {}
    monkeypatch.setattr(leases, "is_live", lambda state, now: False)
    found = broken(asyncio.run(two_deliveries()))
    assert {
        "holder_and_token_guard_every_write",
        "extra_requests_only_for_calls_in_flight",
    } <= found.keys()


def test_attempts_without_a_bound_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that never finds its tries spent breaks attempts <= budget."""

    async def always_overloaded() -> World:
        world = World()
        world.provider.script = lambda request, number: overloaded()
        await world.submit(submission(max_attempts=2, deadline_seconds=300))
        await world.finish()
        return world

    monkeypatch.setattr(leases, "exhausted", lambda state, run_at, most: None)
    monkeypatch.setattr(outcome, "decide", _always_again(decide))
    assert "requests_le_attempts_le_budget" in broken(asyncio.run(always_overloaded()))


def test_a_terminal_record_that_is_replaced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that writes over an earlier terminal record is caught: every delivery closes."""

    async def close_again(services: Services, job: Job) -> bool:
        records, now = await settlement.read_seats(services, job)
        ended = [record for record in records if record is not None]
        if len(ended) < len(job.seats):
            return False
        terminal = terminal_record(job, JobState.SUCCEEDED, str(now), ended, now, None)
        path = terminal_path(job.id, job.run)
        await _overwrite(services, Create(path=path, data=to_document(terminal)))
        head = {"state": "succeeded", "check_at": DELETE}
        await services.ledger.commit(Update(path=job_path(job.id), fields=head))
        return True

    monkeypatch.setattr(evaluation, "close_if_ended", close_again)
    assert "one_terminal_record_per_run" in caught(THREE_AT_ONCE, Fate.FREEZE)


def test_a_late_failure_over_a_success_is_caught() -> None:
    """A timed-out delivery that records its failure unseen breaks what a success is."""

    async def late_failure() -> World:
        world = World()
        job = await world.submit(submission())
        await world.finish()
        record = world.seats(job.id)[(1, 0)]
        state = world.evaluations()[record.work_key]
        [attempt] = state.attempts
        failed = replace(attempt, outcome=Outcome.UNKNOWN, code="timeout")
        after = replace(leases.end_attempt(state, failed), output=None)
        path = evaluation_path(state.work_key)
        await world.ledger.commit(Update(path=path, fields=changes(state, after)))
        seat = seat_path(job.id, 1, 0)
        await world.ledger.commit(Update(path=seat, fields={"state": "failed"}))
        return world

    assert {"late_failure_never_replaces_success", "ended_seats_never_change"} <= broken(
        asyncio.run(late_failure())
    ).keys()


def test_a_message_before_its_job_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing before the job is recorded calls an operator for a seat nobody knows."""
    record = acceptance._record

    async def publish_first(services: Services, draft: Job) -> acceptance.Acceptance:
        await dispatch(services, draft, range(len(draft.seats)))
        return await record(services, draft)

    async def client_gives_up(strikes: dict[int, Strike]) -> World:
        world = World(strikes)
        await world.submit_once(submission())
        await world.finish()
        return world

    monkeypatch.setattr(acceptance, "_record", publish_first)
    strikes = {3: Strike(fate=Fate.DIE, moment=Moment.BEFORE)}  # window, message, job
    assert "no_unexpected_incident" in broken(asyncio.run(client_gives_up(strikes)))


async def _replayed(*, client_gives_up: bool = False, died: int | None = None) -> World:
    """Live through a job with one answer of two that is replayed; the replay may die at a call."""
    world = World()
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        CallFailure(code="refused", message="no", http_status=200)
        if request.model == "m1"
        else answer(request, number)
    )
    job = await world.submit(submission(("m0", "m1"), reuse=False))
    await world.finish()
    world.provider.script = answer
    if died is not None:
        world.plan.strikes = {
            len(world.plan.calls) + died: Strike(fate=Fate.DIE, moment=Moment.BEFORE)
        }
    ended = world.jobs()[job.id]
    if client_gives_up:
        await world.run(world.api, replays.replay(world.api.services, ended, by="someone"))
    else:
        await world.replay(ended)
    await world.finish()
    return world


def test_a_double_dispatch_at_replay_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that sends every seat out again buys what was answered: a success is not carried."""
    assert broken(asyncio.run(_replayed())) == {}
    plan = replays._plan

    async def everything(services: Services, job: Job, found: Snapshot) -> replays.Plan:
        planned = await plan(services, job, found)
        return replace(planned, open_seats=tuple(range(len(job.seats))), carried=())

    monkeypatch.setattr(replays, "_plan", everything)
    assert {"replays_carry_what_was_there", "extra_requests_only_for_calls_in_flight"} <= broken(
        asyncio.run(_replayed())
    ).keys()


def test_a_dispatch_before_the_replay_is_recorded_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishing a run's seats before its commit calls an operator for a run nobody knows."""
    begin = replays._begin

    async def publish_first(services: Services, plan: replays.Plan, by: str) -> Any:
        await dispatch(services, plan.after, plan.open_seats)
        return await begin(services, plan, by)

    assert broken(asyncio.run(_replayed(client_gives_up=True, died=4))) == {}
    monkeypatch.setattr(replays, "_begin", publish_first)
    found = broken(asyncio.run(_replayed(client_gives_up=True, died=5)))
    assert "no_unexpected_incident" in found


async def _canceled_before_the_claim(monkeypatch: pytest.MonkeyPatch) -> World:
    """Live through a job that is canceled between a delivery's look and its claim."""
    world = World()
    job = await world.submit(submission())

    async def late(services: Services, seen: Seen, claimant: Claimant) -> Granted | Claim:
        await world.cancel(job)
        return await leasing.try_claim(services, seen, claimant)

    monkeypatch.setattr(evaluation, "try_claim", late)
    await world.finish()
    return world


def test_a_claim_after_the_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that does not look at the terminal record buys for a run that was canceled."""
    assert not broken(asyncio.run(_canceled_before_the_claim(monkeypatch)))
    monkeypatch.setattr(leasing, "terminal_path", lambda job, run: f"jobs/{job}/terminals/none")
    world = asyncio.run(_canceled_before_the_claim(monkeypatch))
    assert "no_request_after_the_end" in broken(world)


async def _overwrite(services: Services, create: Create) -> None:
    """Write a document whether or not it is there."""
    [found] = await services.ledger.get(create.path)
    if found.exists:
        await services.ledger.commit(Update(path=create.path, fields=create.data))
    else:
        await services.ledger.commit(create)


def overloaded() -> Any:
    """Return the failure of a provider that has too much to do."""
    return CallFailure(code="overloaded", message="busy", http_status=529)


def _always_again(rule: Any) -> Any:
    def again(failure: Any, **limits: Any) -> Any:
        return rule(failure, **{**limits, "max_attempts": 1000})

    return again
