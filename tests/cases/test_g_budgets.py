"""G07 and G08 in money: what is reserved before a request, and what is counted after it.

The fake prices make one attempt cost a dollar at worst and an answer far less.
"""

import asyncio
from typing import Any

import pytest

from functions.budgeting import refund_unsent, reserve_attempt, true_up
from functions.core.budgets import nano_usd
from functions.core.jobs import Job, JobState, Outcome, SeatState, Usage
from functions.core.verdicts import ProviderAnswer
from functions.leasing import Granted, try_claim
from tests.cases.scenes import error_code, messages, replies, strike_next, total_sent
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.prices import ANSWER_USD, WORST_USD, FakePrices
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, seat_of, submission
from tests.unit.seeing import asking, look

DOLLAR = nano_usd(WORST_USD)
ANSWER = nano_usd(ANSWER_USD)
DIE_AFTER = Strike(fate=Fate.DIE, moment=Moment.AFTER)
TWENTY = [f"m{n}" for n in range(20)]


def held(world: World, job: Job) -> dict[str, int]:
    """Return what the attempts of a job's first run hold."""
    reservations: dict[str, int] = world.ledger.stored()[f"budgets/{job.id}.1"]["reservations"]
    return reservations


async def deliver_at_once(world: World, instances: int) -> None:
    """Push everything pending at the same time, spread over instances."""
    processes = [world.evaluator, *(world.new_process("other") for _ in range(instances - 1))]
    taken = messages(world)
    acked = await asyncio.gather(
        *(world.deliver(m, processes[n % instances]) for n, m in enumerate(taken))
    )
    assert all(acked)


@pytest.mark.parametrize("instances", [1, 4])
async def test_g07_twenty_seats_at_once_send_three_requests_of_three(instances: int) -> None:
    """A budget of three requests is three requests, whoever comes first; the others are told."""
    world = World()
    job = await world.submit(submission(TWENTY, max_requests=3, required_seats=1))
    await deliver_at_once(world, instances)
    assert total_sent(world) == 3
    codes = [error_code(world, job, index) for index in range(20)]
    assert (codes.count(None), codes.count("budget_exhausted")) == (3, 17)
    assert broken(world) == {}


@pytest.mark.parametrize("instances", [1, 4])
async def test_g07_twenty_seats_at_once_spend_no_more_than_their_money(instances: int) -> None:
    """Each timeout keeps its dollar, so twenty-three dollars are twenty-three requests."""
    world = World(prices=FakePrices())
    replies(world, *[failure("timeout", http_status=None)] * 10)
    job = await world.submit(submission(TWENTY, max_cost_usd=23.0))
    await deliver_at_once(world, instances)
    await world.finish()
    assert total_sent(world) == 23
    errors = [seat_of(world, job, index).error for index in range(20)]
    told = {(e.code, e.retryable) for e in errors if e is not None}
    assert told == {("budget_exhausted", False)}
    assert None not in errors
    assert all("of the run's 23.000000 USD" in e.message for e in errors if e is not None)
    assert sum(held(world, job).values()) == 23 * DOLLAR
    assert broken(world) == {}


async def test_g07_fifty_seats_all_find_their_room() -> None:
    """However many reserve at once, whoever has room gets it."""
    world = World(prices=FakePrices())
    seats = [f"m{n}" for n in range(50)]
    job = await world.submit(submission(seats, max_cost_usd=50.0))
    await deliver_at_once(world, 1)
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert held(world, job) == {f"{index}.1": ANSWER for index in range(50)}


@pytest.mark.parametrize("moment", list(Moment))
async def test_g07_a_dead_reservation_of_money_is_used_once(moment: Moment) -> None:
    """Two dollars are two requests, also when a process dies around its reservation."""
    world = World(prices=FakePrices())
    strike_next(world, "evaluate: commit create budgets", Strike(fate=Fate.DIE, moment=moment))
    job = await world.submit(submission(["m0", "m1"], max_cost_usd=2.0))
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert held(world, job) == {"0.1": ANSWER, "1.1": ANSWER}
    assert broken(world) == {}


async def test_g07_a_true_up_makes_room_for_a_retry() -> None:
    """What a request did not cost is free at once: a refused request is tried again."""
    world = World(prices=FakePrices())
    replies(world, *[failure("overloaded", http_status=529)] * 3)
    job = await world.submit(submission(max_cost_usd=1.0))
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert held(world, job) == {"0.1": 0, "0.2": 0, "0.3": 0, "0.4": ANSWER}


async def test_g07_a_crash_before_the_true_up_leaves_the_worst_case_until_the_redelivery() -> None:
    """The safe side: the seat is settled, its dollar stays reserved; the redelivery mends it."""
    world = World(prices=FakePrices())
    strike_next(world, "evaluate: get budgets, evaluations", DIE_AFTER)
    job = await world.submit(submission(max_cost_usd=1.0))
    [message] = messages(world)
    assert not await world.deliver(message)
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert held(world, job) == {"0.1": DOLLAR}
    assert await world.deliver(message)
    assert held(world, job) == {"0.1": ANSWER}
    assert broken(world) == {}


async def test_g07_an_outage_at_the_true_up_keeps_no_seat_from_its_end() -> None:
    """The worst case stays reserved, the run closes all the same."""
    world = World(prices=FakePrices())
    no_answer = Strike(fate=Fate.FAIL, moment=Moment.BEFORE)
    strike_next(world, "evaluate: get budgets, evaluations", no_answer, times=100)
    job = await world.submit(submission(max_cost_usd=1.0))
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert held(world, job) == {"0.1": DOLLAR}


async def test_g07_a_retry_mends_a_true_up_that_was_lost() -> None:
    """What the seat's own attempts did not cost is free when it reserves the next one."""
    world = World(prices=FakePrices())
    no_answer = Strike(fate=Fate.FAIL, moment=Moment.BEFORE)
    strike_next(world, "evaluate: get budgets, evaluations", no_answer, times=100)
    replies(world, failure("overloaded", http_status=529))
    job = await world.submit(submission(max_cost_usd=1.0))
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert held(world, job) == {"0.1": 0, "0.2": DOLLAR}


async def test_g07_money_of_a_call_in_flight_is_not_given_back() -> None:
    """Who finds a seat ended, with an old look, gives back nothing that is in flight."""
    world = World(prices=FakePrices())
    job = await world.submit(submission(max_cost_usd=1.0))
    services, at = world.evaluator.services, await look(world, job.id)
    assert await reserve_attempt(services, at) is None
    assert isinstance(await try_claim(services, at, asking(at)), Granted)
    await refund_unsent(services, job, 0)
    await true_up(services, job, 0)
    assert held(world, job) == {"0.1": DOLLAR}


async def test_g07_a_cap_that_cannot_bind_has_no_counter() -> None:
    """Where all attempts together stay below the caps, nothing is reserved and nothing read."""
    world = World(prices=FakePrices())
    asked = submission(max_requests=9, max_attempts=4)
    job = await world.submit(asked)
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert not any("budgets" in call for call in world.plan.calls)


def _usage(tokens: int) -> Usage:
    return Usage(input_tokens=10, output_tokens=tokens)


async def test_g08_money_is_counted_as_it_was_spent() -> None:
    """An unusable answer costs its tokens, a 429 nothing, a timeout its worst case; once each."""
    world = World(prices=FakePrices())
    replies(
        world,
        ProviderAnswer(text="80, I think", usage=_usage(900)),
        failure("timeout", http_status=None),
        failure("rate_limited", http_status=429),
        failure("connection_error", http_status=None, sent=False),
        ProviderAnswer(text='{"rationale": "r", "score": 80}', usage=_usage(50)),
    )
    job = await world.submit(submission(max_cost_usd=3.0, max_attempts=6))
    [message] = messages(world)
    await world.deliver(message)
    await world.finish()
    record = seat_of(world, job)
    assert record.state is SeatState.SUCCEEDED
    tokens = WORST_USD / 8192
    assert [(a.outcome, a.cost_usd) for a in record.attempts] == [
        (Outcome.INVALID_OUTPUT, 900 * tokens),
        (Outcome.UNKNOWN, None),
        (Outcome.RETRYABLE, 0.0),
        (Outcome.RETRYABLE, 0.0),
        (Outcome.SUCCEEDED, 50 * tokens),
    ]
    expected = {
        "0.1": nano_usd(900 * tokens),
        "0.2": DOLLAR,
        "0.3": 0,
        "0.5": nano_usd(50 * tokens),
    }
    assert held(world, job) == expected
    before = world.ledger.documents()
    assert await world.deliver(message)
    assert world.ledger.documents() == before
    assert broken(world) == {}


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (failure("timeout", http_status=None), DOLLAR),
        (failure("invalid_response", http_status=200), DOLLAR),
        (ProviderAnswer(text="no verdict", usage=None), DOLLAR),
        (ProviderAnswer(text="no verdict", usage=_usage(8192)), DOLLAR),
        (failure("refused", http_status=200, usage=_usage(4096)), DOLLAR // 2),
        (failure("overloaded", http_status=529), 0),
        (failure("invalid_request", http_status=400), 0),
    ],
)
async def test_g08_what_is_not_known_to_be_cheaper_keeps_its_worst_case(
    reply: Any, kept: int
) -> None:
    """Only a known cost makes room again."""
    world = World(prices=FakePrices())
    replies(world, *[reply] * 10)
    job = await world.submit(submission(max_cost_usd=5.0, max_attempts=2))
    await world.finish()
    spent = held(world, job)
    assert set(spent.values()) == {kept}
    assert len(spent) == total_sent(world)
    assert broken(world) == {}


async def test_g08_money_that_unanswered_requests_took_is_gone() -> None:
    """Two seats with three dollars: after three timeouts nobody asks any more."""
    world = World(prices=FakePrices())
    replies(world, *[failure("timeout", http_status=None)] * 20)
    job = await world.submit(submission(["m0", "m1"], max_cost_usd=3.0, max_attempts=6))
    await world.finish()
    assert total_sent(world) == 3
    assert {error_code(world, job, index) for index in (0, 1)} == {"budget_exhausted"}
    assert sum(held(world, job).values()) == 3 * DOLLAR
