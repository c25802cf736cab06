"""A consumer acts once per decision, whatever is replayed, repeated or lost on the way."""

import asyncio

from functions.core.identities import decision_id
from functions.core.jobs import Job
from functions.decisions import act_once
from tests.faults.world import TENANT, World, submission
from tests.unit.test_leasing import unsteady


async def decided() -> tuple[World, Job]:
    """Return a world with one finished job."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    return world, job


async def test_one_of_many_is_first() -> None:
    """Twenty holders at once: one is told that it is the first, and all are told who."""
    world, job = await decided()
    services = world.api.services
    asked = [
        act_once(services, TENANT, job.decision_id, "publish", f"holder{n}") for n in range(20)
    ]
    actions = await asyncio.gather(*asked)
    assert sum(action is not None and action.created for action in actions) == 1
    assert len({action.holder for action in actions if action is not None}) == 1


async def test_the_holder_is_first_again() -> None:
    """The answer that was lost on the wire is given again; any other holder is told whose it is."""
    world, job = await decided()
    services = world.api.services
    first = await act_once(services, TENANT, job.decision_id, "publish", "me")
    again = await act_once(services, TENANT, job.decision_id, "publish", "me")
    other = await act_once(services, TENANT, job.decision_id, "publish", "you")
    assert first is not None
    assert again is not None
    assert other is not None
    assert (first.created, again.created, other.created) == (True, False, False)
    assert {first.holder, again.holder, other.holder} == {"me"}
    assert first.at == again.at == other.at


async def test_a_claim_whose_answer_was_lost_is_read_back() -> None:
    """The commit was applied and its answer lost: the holder is told that it holds the action."""
    world, job = await decided()
    unsteady(world, "applied")
    action = await act_once(world.api.services, TENANT, job.decision_id, "publish", "me")
    assert action is not None
    assert action.holder == "me"


async def test_unknown_and_foreign_decisions_are_the_same() -> None:
    """Nothing is recorded for a decision that the tenant does not have."""
    world, job = await decided()
    services = world.api.services
    unknown = decision_id(TENANT, "job_unknown")
    before = world.ledger.documents()
    assert await act_once(services, TENANT, unknown, "publish", "me") is None
    assert await act_once(services, "other", job.decision_id, "publish", "me") is None
    assert world.ledger.documents() == before
    await act_once(services, TENANT, job.decision_id, "publish", "me")
    assert await act_once(services, "other", job.decision_id, "publish", "me") is None


async def test_actions_of_one_decision_are_apart() -> None:
    """Another name is another action, with a first holder of its own."""
    world, job = await decided()
    services = world.api.services
    await act_once(services, TENANT, job.decision_id, "publish", "me")
    other = await act_once(services, TENANT, job.decision_id, "refund", "you")
    assert other is not None
    assert (other.holder, other.created) == ("you", True)
