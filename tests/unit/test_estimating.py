"""What a job would cost: worst cases that are true bounds, estimates, caps that cannot be kept."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions.acceptance import IdempotencyConflict, accept
from functions.core.budgets import nano_usd
from functions.core.identities import canonical_json
from functions.core.submissions import SeatRequest, Submission
from functions.core.verdicts import DEFAULT_OUTPUT_TOKENS, CallRequest
from functions.estimating import Estimate, estimate
from functions.inputs import read_question
from functions.worst_cases import (
    FRAMING_TOKENS,
    CostRefused,
    worst_cases,
)
from tests.faults.prices import WORST_USD, FakePrices
from tests.faults.world import World, submission

DOLLAR = nano_usd(WORST_USD)


class TokensAsked(FakePrices):
    """Remembers the tokens that an estimate was asked for."""

    def __init__(self) -> None:
        self.tokens: list[tuple[int, int]] = []

    def estimate_usd(self, *args: Any, **tokens: Any) -> float | None:
        """Return a dollar."""
        self.tokens.append((tokens["input_tokens"], tokens["output_tokens"]))
        return WORST_USD


def with_parameters(asked: Submission, **parameters: Any) -> Submission:
    """Return the submission with parameters on its first seat."""
    first, *others = asked.seats
    return replace(asked, seats=(replace(first, parameters=parameters), *others))


async def sent(world: World, asked: Submission) -> CallRequest:
    """Return what a seat's request would hold."""
    job = await world.submit(asked)
    return (await read_question(world.evaluator.services, job, 0)).request


@pytest.mark.parametrize("question", ["q", "é" * 500, "<" * 500, "日本語" * 100, '"\\\n' * 50])
async def test_the_input_is_bounded_by_its_bytes(question: str) -> None:
    """No text has more tokens than bytes: both messages, the schema, and a share for framing."""
    prices = TokensAsked()
    world = World(prices=prices)
    asked = submission(question=question)
    facts, rubric = canonical_json(asked.facts).decode(), canonical_json(asked.rubric).decode()
    assert worst_cases(world.api.services, facts, rubric, asked.seats) == (DOLLAR,)
    [(input_tokens, output_tokens)] = prices.tokens
    request = await sent(world, asked)
    texts = (request.system, request.user, json.dumps(request.schema))
    assert input_tokens == FRAMING_TOKENS + sum(len(text.encode()) for text in texts)
    assert output_tokens == DEFAULT_OUTPUT_TOKENS


async def test_the_output_is_bounded_by_the_seat() -> None:
    """The seat's `max_output_tokens` counts, else an assumption; an unknown price is None."""
    world = World(prices=FakePrices())
    seats = [
        SeatRequest(seat=f"s{n}", provider="fake", model=model, parameters=parameters)
        for n, (model, parameters) in enumerate(
            [("m0", {"max_output_tokens": 4096}), ("m0", {}), ("unpriced", {})]
        )
    ]
    found = worst_cases(world.api.services, "{}", '{"instructions":"i"}', seats)
    assert found == (DOLLAR // 2, DOLLAR, None)


async def test_an_estimate_counts_open_seats_and_stores_nothing() -> None:
    """One request per seat, at its worst case."""
    world = World(prices=FakePrices())
    found = await estimate(world.api.services, submission(["m0", "m1", "m2"]))
    assert found == Estimate(requests=3, cost_usd=3.0, reused_seats=0)
    assert world.ledger.documents() == {}
    assert world.objects.names() == []


async def test_an_estimate_counts_what_is_answered_as_reused() -> None:
    """A stored answer is reused: not when it is gone, too old, or not wanted."""
    world = World(prices=FakePrices())
    await world.submit(submission(["m0", "m1"], key="first"))
    await world.finish()
    services = world.api.services
    asked = submission(["m0", "m1", "unpriced"])
    assert await estimate(services, asked) == Estimate(requests=1, cost_usd=None, reused_seats=2)
    both = submission(["m0", "m1"])
    assert await estimate(services, both) == Estimate(requests=0, cost_usd=0.0, reused_seats=2)
    fresh = submission(["m0", "m1"], reuse=False)
    assert (await estimate(services, fresh)).reused_seats == 0
    world.objects.lose(world.objects.names()[0])
    assert await estimate(services, both) == Estimate(requests=1, cost_usd=1.0, reused_seats=1)
    world.clock.advance(timedelta(days=201).total_seconds())
    assert (await estimate(services, both)).reused_seats == 0


async def test_an_estimate_of_a_question_under_way_counts_it() -> None:
    """A question that is being asked has no answer yet."""
    world = World(prices=FakePrices())
    await world.submit(submission(key="first"))
    assert (await estimate(world.api.services, submission())).requests == 1


async def refusal(world: World, asked: Submission) -> CostRefused:
    """Return why a job is refused; nothing of it is stored."""
    before = world.ledger.documents()
    with pytest.raises(CostRefused) as refused:
        await accept(world.api.services, asked)
    assert world.ledger.documents() == before
    assert world.objects.names() == []
    return refused.value


@pytest.mark.parametrize("filler", [0, 40_000])
async def test_a_cap_below_the_estimate_is_refused_with_it(filler: int) -> None:
    """The field, the estimate and the cap are named."""
    world = World(prices=FakePrices())
    found = await refusal(world, submission(["m0", "m1"], max_cost_usd=1.9, filler=filler))
    assert found.path == ("policy", "max_cost_usd")
    assert found.detail == "must be at least 2, the estimate of one attempt per seat, not 1.9"


async def test_a_cap_over_an_unknown_price_is_refused() -> None:
    """Unknown is not 0: what has no price cannot be capped."""
    world = World(prices=FakePrices())
    found = await refusal(world, submission(["m0", "unpriced"], max_cost_usd=1000.0))
    assert found.path == ("policy", "max_cost_usd")
    assert "the price of unpriced at fake is unknown" in found.detail


async def test_a_cap_of_the_estimate_is_enough() -> None:
    """Exactly one attempt per seat fits, and the worst cases are pinned on the job."""
    world = World(prices=FakePrices())
    job = await world.submit(submission(["m0", "m1"], max_cost_usd=2.0))
    assert [seat.worst_nano_usd for seat in job.seats] == [DOLLAR, DOLLAR]
    assert world.jobs()[job.id].seats == job.seats


async def test_without_a_cap_no_price_is_asked_for() -> None:
    """A job that caps no money is accepted whatever its models cost."""
    prices = TokensAsked()
    world = World(prices=prices)
    job = await world.submit(submission(["unpriced"]))
    assert job.seats[0].worst_nano_usd is None
    assert prices.tokens == []


async def test_a_known_job_is_returned_when_prices_have_gone() -> None:
    """Who repeats a request gets its job, and a changed one its conflict, not a new refusal."""
    world = World(prices=FakePrices())
    asked = submission(max_cost_usd=1.0)
    job = await world.submit(asked)
    world.clock.advance(1.0)
    dearer = with_parameters(asked, max_output_tokens=9000)
    again = await accept(world.api.services, dearer)  # the same body, at another price
    assert (again.job.id, again.created) == (job.id, False)
    with pytest.raises(IdempotencyConflict):
        await accept(world.api.services, submission(question="other", max_cost_usd=0.5))
