"""Open seats of a tenant: one tenant's backlog is only so long, and never in another's way."""

import asyncio
from typing import Any

import pytest

from functions.acceptance import accept
from functions.core.jobs import JobState
from functions.open_seats import TooManyOpen
from functions.replays import replay
from functions.tenant_caps import TenantCaps
from tests.faults.world import TENANT, World, submission
from tests.unit.web.asking import api_over, ask, give_key


def capped(seats: int, **own: int) -> World:
    return World(tenant_caps=TenantCaps(everyones_open_seats=seats, own_open_seats=own))


def body(question: str, seats: int = 1) -> dict[str, Any]:
    return {
        "facts": {"question": question},
        "rubric": {"instructions": "Score it."},
        "seats": [{"provider": "fake", "model": f"m{n}"} for n in range(seats)],
    }


async def test_seats_are_open_until_their_run_closes() -> None:
    """A job that does not fit is refused with nothing stored, and accepted once others ended."""
    world = capped(3)
    first = await world.submit(submission(("m0", "m1"), key="1"))
    before = world.ledger.stored()
    with pytest.raises(TooManyOpen) as refused:
        await accept(world.api.services, submission(("m0", "m1"), key="2"))
    assert not refused.value.never
    assert world.ledger.stored() == before
    await world.submit(submission(("m2",), key="3"))
    await world.finish()
    assert "open_seats" not in world.ledger.stored()[f"jobs/{first.id}"]
    await world.submit(submission(("m0", "m1", "m2"), key="4"))


async def test_a_known_job_is_returned_whatever_is_open() -> None:
    """A request that is repeated is no new backlog."""
    world = capped(1)
    asked = submission(key="1")
    job = await world.submit(asked)
    world.clock.advance(1.0)
    again = await accept(world.api.services, asked)
    assert (again.job.id, again.created) == (job.id, False)


@pytest.mark.parametrize("stop", ["cancel", "expire"])
async def test_a_stopped_run_gives_its_seats_back(stop: str) -> None:
    """By cancel or by its deadline: no seat of it is open any more."""
    world = capped(1)
    job = await world.submit(submission(key="1", deadline_seconds=60))
    world.drop_messages()
    if stop == "cancel":
        await world.cancel(job)
    else:
        world.clock.advance(61)
        await world.repair()
    assert world.jobs()[job.id].state in (JobState.CANCELED, JobState.EXPIRED)
    await accept(world.api.services, submission(key="2"))


async def test_a_replay_opens_seats_again() -> None:
    """What does not fit is not begun; its seats count while the new run is open."""
    world = capped(1)
    job = await world.cancel(await world.submit(submission(key="1")))
    await world.finish()
    other = await world.submit(submission(key="2", question="other"))
    world.drop_messages()
    with pytest.raises(TooManyOpen):
        await replay(world.api.services, world.jobs()[job.id], by="me")
    assert world.jobs()[job.id].run == 1
    await world.cancel(other)
    assert (await replay(world.api.services, world.jobs()[job.id], by="me")).run == 2
    with pytest.raises(TooManyOpen):
        await accept(world.api.services, submission(key="3"))


async def test_many_at_once_do_not_pass_the_cap() -> None:
    """Forty requests at one process: five fit, whatever the order of looks and commits."""
    world = capped(5)
    asked = [accept(world.api.services, submission(key=str(n))) for n in range(40)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, TooManyOpen)]
    assert len(refused) == 35
    assert len(world.jobs()) == 5


async def test_what_failed_on_the_way_takes_no_room() -> None:
    """A request that ended in an error is not counted as coming for ever."""
    world = capped(1)
    open_seats = world.api.services.open_seats
    for _ in range(3):
        with pytest.raises(RuntimeError):
            async with open_seats.room(TENANT, 1):
                raise RuntimeError
    await accept(world.api.services, submission(key="1"))


async def test_one_tenants_backlog_is_not_in_anothers_way() -> None:
    """429 with a time to wait for the one, 202 for the other; more than can ever fit is 422."""
    world = capped(2, big=100)
    api = api_over(world)
    for tenant in ("small", "other", "big"):
        await give_key(world, f"ek_{tenant}", tenant=tenant, role="submitter")
    assert (await ask(api, "POST", "/v1/jobs", key="ek_small", body=body("a", 2))).status == 202
    late = await ask(api, "POST", "/v1/jobs", key="ek_small", body=body("b"))
    assert late.status == 429
    assert int(late.headers["retry-after"]) >= 1
    assert (await ask(api, "POST", "/v1/jobs", key="ek_other", body=body("b"))).status == 202
    never = await ask(api, "POST", "/v1/jobs", key="ek_small", body=body("c", 3))
    assert (never.status, never.body["errors"][0]["pointer"]) == (422, "/seats")
    assert (await ask(api, "POST", "/v1/jobs", key="ek_big", body=body("c", 3))).status == 202


async def test_without_a_cap_nothing_is_counted() -> None:
    """The default costs no read."""
    world = World()
    await world.submit(submission())
    assert not any("total" in call for call in world.plan.calls)
