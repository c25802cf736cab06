"""What an attempt costs, decided once when it ends, and kept wherever it goes."""

from dataclasses import replace
from typing import Any

import pytest

from functions.core.costs import answer_cost_usd, failure_cost_usd
from functions.core.jobs import Job, JobState, Outcome, Usage
from functions.core.money import sum_usd
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.providers.base import Endpoint, Prices
from functions.providers.prices import GenaiPrices
from functions.reports import build_report
from functions.statuses import attempts_view, job_view, read_status
from tests.faults.fakes import failure
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission
from tests.unit.records import attempt, job

USAGE = Usage(input_tokens=100, output_tokens=20)
COST = 0.0003  # by OWN: 100 tokens at 1 and 20 at 10 USD per million
OWN = GenaiPrices(
    {
        "fake": Endpoint(
            name="fake",
            base_url="http://127.0.0.1:1/v1",
            prices=Prices(input=1.0, output=10.0),
        )
    }
)
VENDOR = GenaiPrices({"fake": Endpoint(name="fake", base_url="https://api.openai.com/v1")})


def seat_for(model: str) -> Any:
    return replace(job().seats[0], model=model)


@pytest.mark.parametrize(
    ("requested", "returned", "usd"),
    [
        ("gpt-4o", "gpt-4o-mini", 0.000027),  # what ran is what is billed
        ("gpt-4o", "a-name-of-tomorrow", 0.00045),
        ("gpt-4o", None, 0.00045),
        ("our-deployment", "gpt-4o", 0.00045),
        ("our-deployment", "a-name-of-tomorrow", None),
    ],
)
def test_the_model_that_ran_has_the_price(
    requested: str, returned: str | None, usd: float | None
) -> None:
    """The returned model's price, else the requested one's, else unknown."""
    answer = ProviderAnswer(text="{}", model_returned=returned, usage=USAGE)
    assert answer_cost_usd(VENDOR, seat_for(requested), attempt(), answer) == usd


@pytest.mark.parametrize(
    ("failed", "usd"),
    [
        (CallFailure(code="connection_error", message="", sent=False), 0.0),
        (CallFailure(code="rate_limited", message="", http_status=429), 0.0),
        (CallFailure(code="provider_error", message="", http_status=500), 0.0),
        (CallFailure(code="invalid_request", message="", http_status=400), 0.0),
        (CallFailure(code="refused", message="", http_status=200, usage=USAGE), COST),
        (CallFailure(code="provider_error", message="", http_status=500, usage=USAGE), COST),
        (CallFailure(code="invalid_response", message="", http_status=200), None),
        (CallFailure(code="timeout", message="", http_status=504), None),
        (CallFailure(code="timeout", message="", http_status=504, usage=USAGE), COST),
        (CallFailure(code="timeout", message=""), None),
        (CallFailure(code="connection_error", message=""), None),
    ],
)
def test_a_failure_costs_what_can_be_known(failed: CallFailure, usd: float | None) -> None:
    """Billed failures cost, refused requests do not, and what cannot be known is unknown."""
    assert failure_cost_usd(OWN, seat_for("m"), attempt(), failed) == usd


def test_sums_have_no_binary_noise_and_keep_the_unknown() -> None:
    """0.1 and 0.2 are 0.3, nothing is 0, and one unknown part makes the sum unknown."""
    assert sum_usd([0.1, 0.2]) == 0.3
    assert sum_usd([]) == 0.0
    assert sum_usd([0.1, None]) is None
    assert sum_usd([3e-9] * 1000) == 3e-6


async def views(world: World, submitted: Job) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    services = world.api.services
    status = await read_status(services, world.jobs()[submitted.id])
    report = await build_report(services, status)
    return job_view(status), attempts_view(status)["attempts"], report


async def test_the_cost_stands_on_attempt_seat_job_and_report() -> None:
    """One price, computed once: the attempt, the output, the object and every view agree."""
    world = World(prices=OWN)
    submitted = await world.submit(submission(["m0", "m1"]))
    await world.finish()
    view, attempts, report = await views(world, submitted)
    assert [a["cost_usd"] for a in attempts] == [COST, COST]
    assert [seat["cost_usd"] for seat in view["seats"]] == [COST, COST]
    assert view["usage"]["cost_usd"] == 0.0006
    assert [seat["cost_usd"] for seat in report["seats"]] == [COST, COST]
    assert world.terminals(submitted.id)[1].totals.cost_usd == 0.0006
    output = world.seats(submitted.id)[(1, 0)].output
    assert output is not None
    assert output.cost_usd == COST


async def test_a_reused_seat_shows_the_originals_cost_and_the_job_pays_nothing() -> None:
    """The seat shows what its answer once cost; the job's usage counts its own attempts."""
    world = World(prices=OWN)
    await world.submit(submission(key="first"))
    await world.finish()
    submitted = await world.submit(submission(key="second"))
    await world.finish()
    view, attempts, report = await views(world, submitted)
    assert attempts == []
    assert view["seats"][0]["cost_usd"] == COST
    assert view["usage"]["cost_usd"] == 0.0
    assert report["seats"][0]["cost_usd"] == COST


async def test_a_seat_costs_all_its_attempts() -> None:
    """A billed failure counts beside the answer; a rate limit adds nothing."""
    world = World(prices=OWN)

    def second_try(request: Any, number: int) -> Any:
        if number == 1:
            return replace(failure("invalid_output", http_status=200), usage=USAGE)
        if number == 2:
            return failure("rate_limited", http_status=429)
        return world.provider.answer(request, number)

    world.provider.script = second_try
    submitted = await world.submit(submission())
    await world.finish()
    view, attempts, report = await views(world, submitted)
    assert [a["cost_usd"] for a in attempts] == [COST, 0.0, COST]
    assert view["seats"][0]["cost_usd"] == view["usage"]["cost_usd"] == 0.0006
    assert report["seats"][0]["cost_usd"] == COST  # of the answer alone


async def test_an_answer_without_usage_has_an_unknown_cost() -> None:
    """Nobody guesses tokens: the attempt, the seat and the job are unknown."""
    world = World(prices=OWN)
    world.provider.script = lambda request, number: replace(
        world.provider.answer(request, number), usage=None
    )
    submitted = await world.submit(submission())
    await world.finish()
    view, attempts, _ = await views(world, submitted)
    assert attempts[0]["cost_usd"] is None
    assert view["seats"][0]["cost_usd"] is None
    assert view["usage"]["cost_usd"] is None


async def test_an_attempt_without_an_answer_has_an_unknown_cost() -> None:
    """A timeout may have been paid for, so the job's cost is unknown from then on."""
    world = World(prices=OWN)
    world.provider.script = lambda request, number: (
        failure("timeout", http_status=None)
        if number == 1
        else world.provider.answer(request, number)
    )
    submitted = await world.submit(submission())
    await world.finish()
    view, attempts, _ = await views(world, submitted)
    assert [a["cost_usd"] for a in attempts] == [None, COST]
    assert view["state"] == "succeeded"
    assert view["usage"]["cost_usd"] is None


async def test_an_adopted_answer_keeps_its_cost() -> None:
    """A holder dies between store and settlement: its attempt and output are adopted with cost."""
    world = World(prices=OWN)
    name = "evaluate: create object"
    world.plan.always = {name: Strike(fate=Fate.DIE, moment=Moment.AFTER)}
    submitted = await world.submit(submission())
    world.collect()
    await world.deliver(world.pending[0].message)
    world.plan.always = {}
    await world.finish()
    assert world.jobs()[submitted.id].state is JobState.SUCCEEDED
    assert sum(world.provider.sent.values()) == 1
    [evaluation] = world.evaluations().values()
    [adopted] = evaluation.attempts
    assert (adopted.outcome, adopted.cost_usd) == (Outcome.SUCCEEDED, COST)
    view, attempts, report = await views(world, submitted)
    assert view["usage"]["cost_usd"] == attempts[0]["cost_usd"] == COST
    assert report["seats"][0]["cost_usd"] == COST
