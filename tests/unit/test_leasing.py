"""Lease I/O against a ledger that conflicts, or gives no certain answer."""

import asyncio
from dataclasses import replace
from datetime import datetime

import pytest

from functions.core.documents import to_document
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.jobs import Evaluation, Outcome
from functions.core.leases import Closed, Held, end_attempt, released
from functions.core.ports import Create, Update, Write
from functions.leasing import RESOLVE_TRIES, Granted, Lease, commit_as_holder, try_claim
from tests.faults.fakes import RecordingLedger
from tests.faults.world import World
from tests.unit.seeing import asking, leased, look, seen

SEAT = Create(path="jobs/job/seats/1.0", data={"state": "succeeded"})


def unsteady(world: World, *faults: str) -> None:
    """Let the next commits to the ledger go as told, in this order.

    `lost` was not applied, `applied` was and its answer is lost, `conflict` was contended.
    """
    ledger, script = world.ledger, list(faults)
    commit = ledger.commit

    async def commits(*writes: Write) -> datetime:
        fault = script.pop(0) if script else ""
        if fault == "conflict":
            raise WriteConflict("contended")
        if fault != "lost":
            committed = await commit(*writes)
        if fault:
            raise LedgerUnavailable(fault)
        return committed

    ledger.commit = commits  # type: ignore[method-assign]


def ended(lease: Lease) -> Evaluation:
    """Return the evaluation as its holder would release it."""
    attempt = replace(lease.attempt, outcome=Outcome.SUCCEEDED, ended_at=lease.claimed_at)
    return released(end_attempt(lease.evaluation, attempt))


def state(world: World) -> Evaluation:
    [found] = world.evaluations().values()
    return found


async def test_a_claim_is_granted_and_on_record() -> None:
    """The lease returned is the one in the ledger, and its update time is the commit's."""
    world = World()
    lease = await leased(world)
    assert state(world) == lease.evaluation
    [found] = await world.ledger.get(lease.path)
    assert found.update_time == lease.update_time


async def test_of_many_claims_of_one_look_one_is_granted() -> None:
    """Whoever comes second finds the evaluation changed and is told to look again."""
    world = World()
    one_look = await seen(world)
    services = world.evaluator.services
    claims = await asyncio.gather(
        *(try_claim(services, one_look, asking(one_look, holder=f"h{n}")) for n in range(10))
    )
    granted = [claim for claim in claims if isinstance(claim, Granted)]
    assert len(granted) == 1
    assert state(world).holder == granted[0].lease.attempt.holder
    assert claims.count(Held(until=one_look.now)) == 9
    assert state(world).token == 1


async def test_a_claim_of_an_old_look_is_not_granted() -> None:
    """What has changed since the look, in whatever way, is looked at again before it is claimed."""
    world = World()
    lease = await leased(world)
    world.clock.advance(31.0)
    old = await look(world, lease.attempt.job)
    await world.ledger.commit(Update(path=lease.path, fields={"wake_at": world.clock.now()}))
    claim = await try_claim(world.evaluator.services, old, asking(old, holder="late"))
    assert claim == Held(until=old.now)
    assert state(world).holder == "me"


async def test_a_claim_whose_answer_was_lost_is_found_by_its_holder() -> None:
    """The random holder on the lease says that the ambiguous claim was applied."""
    world = World()
    at = await seen(world)
    unsteady(world, "applied")
    lease = await leased(world, at)
    assert state(world) == lease.evaluation
    assert state(world).token == 1


async def test_a_claim_that_was_not_applied_is_not_granted() -> None:
    """Nothing on record, nothing granted: nothing may be sent."""
    world = World()
    at = await seen(world)
    unsteady(world, "lost")
    assert isinstance(await try_claim(world.evaluator.services, at, asking(at)), Held)
    assert world.evaluations() == {}


async def test_a_wait_for_a_slot_does_not_shorten_the_lease() -> None:
    """The lease counts from the claim, not from the look before it."""
    world = World()
    at = await seen(world)
    world.clock.advance(20.0)
    lease = await leased(world, at)
    until = lease.evaluation.lease_until
    assert until is not None
    assert (until - world.clock.now()).total_seconds() == 30.0


async def test_a_claim_after_the_end_is_given_back_unsent() -> None:
    """A run that was stopped after the look gets no lease; the attempt says it was not sent."""
    world = World()
    at = await seen(world)
    await world.cancel(at.job)
    assert await try_claim(world.evaluator.services, at, asking(at)) == Closed()
    after = state(world)
    assert (after.holder, after.lease_until, after.wake_at) == (None, None, None)
    [attempt] = after.attempts
    assert (attempt.outcome, attempt.sent, attempt.code) == (Outcome.CANCELED, False, "canceled")


async def test_a_holder_writes_evaluation_and_seat_in_one_commit() -> None:
    """Both documents change at one moment."""
    world = World()
    lease = await leased(world)
    after = ended(lease)
    assert await commit_as_holder(world.evaluator.services, lease, after, SEAT) is not None
    evaluation, seat = world.ledger.history[-2:]
    assert (evaluation.path, seat.path) == (lease.path, SEAT.path)
    assert evaluation.at == seat.at
    assert state(world) == after


@pytest.mark.parametrize("faults", [["applied"], ["lost"], ["lost"] * 4, ["conflict", "lost"]])
async def test_an_ambiguous_settlement_is_resolved_by_reading_back(faults: list[str]) -> None:
    """Applied or not, the settlement is on record once, and the holder knows that it won."""
    world = World()
    lease = await leased(world)
    after = ended(lease)
    unsteady(world, *faults)
    assert await commit_as_holder(world.evaluator.services, lease, after, SEAT) is not None
    assert state(world) == after
    assert sum(change.path == SEAT.path for change in world.ledger.history) == 1


async def test_a_settlement_without_certain_answer_gives_up() -> None:
    """After so many tries the error comes out; the lease then runs out by itself."""
    world = World()
    lease = await leased(world)
    unsteady(world, *["lost"] * RESOLVE_TRIES)
    with pytest.raises(LedgerUnavailable):
        await commit_as_holder(world.evaluator.services, lease, ended(lease), SEAT)


async def test_who_has_lost_the_lease_writes_nothing() -> None:
    """After another claim neither evaluation nor seat is written, and the loser is told."""
    world = World()
    lease = await leased(world)
    world.clock.advance(31.0)
    await leased(world, await look(world, lease.attempt.job), holder="other")
    before = world.ledger.documents()
    assert await commit_as_holder(world.evaluator.services, lease, ended(lease), SEAT) is None
    assert world.ledger.documents() == before


async def test_the_same_holder_under_another_token_is_another() -> None:
    """Even a holder name that comes again does not make an old lease valid."""
    world = World()
    lease = await leased(world)
    world.clock.advance(31.0)
    await leased(world, await look(world, lease.attempt.job))
    assert await commit_as_holder(world.evaluator.services, lease, ended(lease)) is None


async def test_an_evaluation_that_is_gone_is_lost() -> None:
    """A settlement of a document that no longer exists writes nothing."""
    world = World()
    lease = await leased(world)
    del world.ledger._documents[lease.path]
    assert await commit_as_holder(world.evaluator.services, lease, ended(lease)) is None
    assert lease.path not in world.ledger.documents()


async def test_a_seat_that_has_ended_keeps_its_record_and_the_evaluation_is_written() -> None:
    """When the seat's record exists, the evaluation ends alone."""
    world = World()
    lease = await leased(world)
    await world.ledger.commit(Create(path=SEAT.path, data={"state": "expired"}))
    after = ended(lease)
    assert await commit_as_holder(world.evaluator.services, lease, after, SEAT) is not None
    assert state(world) == after
    assert world.ledger.documents()[SEAT.path] == {"state": "expired"}


async def test_an_expired_lease_that_nobody_took_may_still_settle() -> None:
    """Expiry alone takes nothing away: until another claims, the answer is worth having."""
    world = World()
    lease = await leased(world)
    world.clock.advance(100.0)
    assert await commit_as_holder(world.evaluator.services, lease, ended(lease)) is not None


async def test_a_write_of_somebody_else_that_leaves_the_holder_is_written_over_with_care() -> None:
    """Fields that another moved, such as the timer, do not cost the holder its settlement."""
    world = World()
    lease = await leased(world)
    await world.ledger.commit(Update(path=lease.path, fields={"wake_at": world.clock.now()}))
    after = ended(lease)
    assert await commit_as_holder(world.evaluator.services, lease, after) is not None
    assert to_document(state(world)) == to_document(after)
    assert isinstance(world.ledger, RecordingLedger)
