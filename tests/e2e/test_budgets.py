"""Budgets over HTTP: caps of requests and money, a tenant's day, and the estimate before."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.stored import stored
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A dollar for a thousand output tokens.
PROVIDERS = "[providers.openai.prices]\ninput = 0.0\noutput = 1000.0\n"
LOST = ScriptedResponse(fault="close_before_answer")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def providers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, str]]:
    file = tmp_path_factory.mktemp("providers") / "providers.toml"
    file.write_text(PROVIDERS)
    yield {"EMPANEL_PROVIDERS": str(file)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts,
    tmp_path_factory: pytest.TempPathFactory,
    providers: Mapping[str, str],
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("budgets")
    async with open_site(
        emulator_hosts, folder, evaluate_processes=2, environment=providers
    ) as running:
        yield running


def seats(count: int) -> list[Json]:
    """Seats that cost a dollar an attempt at worst."""
    return [
        {"provider": "openai", "model": f"m{n}", "parameters": {"max_output_tokens": 1000}}
        for n in range(count)
    ]


def codes(job: Json) -> list[str | None]:
    """With what each seat ended, None where it succeeded."""
    return [seat["error"]["code"] if seat["error"] else None for seat in job["seats"]]


async def test_twenty_parallel_seats_against_three_requests_make_three(site: Site) -> None:
    """Two processes, twenty seats, a budget of three: three requests, seventeen refusals."""
    policy = {"max_requests": 3, "required_seats": 3}
    job = await site.accepted(panel("three", seats=seats(20), policy=policy))
    [ended] = await site.ended(job)
    assert await site.requests("three") == 3
    assert (codes(ended).count(None), codes(ended).count("budget_exhausted")) == (3, 17)
    assert ended["state"] == "succeeded"


async def test_twenty_parallel_seats_spend_no_more_than_their_money(site: Site) -> None:
    """An answer that was lost keeps its dollar: twenty-three dollars are twenty-three requests."""
    await site.stub.script(Rule(label="money", always=LOST))
    policy = {"max_cost_usd": 23.0}
    job = await site.accepted(panel("money", seats=seats(20), policy=policy))
    [ended] = await site.ended(job)
    assert await site.requests("money") == 23
    assert codes(ended) == ["budget_exhausted"] * 20
    assert not any(seat["error"]["retryable"] for seat in ended["seats"])
    assert [attempt["cost_usd"] for attempt in await site.attempts(job)] == [None] * 23
    budget = await site.ledger.get(f"budgets/{job}.1")
    assert budget.data["reserved_nano_usd"] == 23 * 10**9


async def test_what_answers_did_not_cost_is_spent_on_other_seats(site: Site) -> None:
    """Twenty answers cost far less than their worst cases, so a cap of twenty is never reached."""
    job = await site.accepted(panel("cheap", seats=seats(20), policy={"max_cost_usd": 20.0}))
    [ended] = await site.ended(job)
    assert ended["state"] == "succeeded"
    budget = await site.ledger.get(f"budgets/{job}.1")
    spent = budget.data["reserved_nano_usd"] / 1e9
    assert spent == pytest.approx(ended["usage"]["cost_usd"], abs=1e-6)
    assert 0 < spent < 20


async def test_a_cap_below_the_estimate_is_refused_with_it(site: Site) -> None:
    """422 at the field, with the estimate of one attempt per seat; nothing is stored."""
    before = await stored(site)
    response = await site.submit(panel("low", seats=seats(3), policy={"max_cost_usd": 2.99}))
    assert response.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    [error] = response.json()["errors"]
    assert error["pointer"] == "/policy/max_cost_usd"
    assert "must be at least 3," in error["detail"]
    assert await stored(site) == before
    enough = panel("low", seats=seats(3), policy={"max_cost_usd": 3.0})
    await site.ended(await site.accepted(enough))


async def test_an_estimate_tells_what_a_job_would_need(site: Site) -> None:
    """All seats at first; what has been answered is reused; nothing is stored."""
    body = panel("estimated", seats=seats(3))
    await site.ended(await site.accepted(panel("estimated", seats=seats(2))))
    before = await stored(site)
    for asked, expected in (
        (panel("new", seats=seats(3)), {"requests": 3, "cost_usd": 3.0, "reused_seats": 0}),
        (body, {"requests": 1, "cost_usd": 1.0, "reused_seats": 2}),
        (body | {"policy": {"reuse": False}}, {"requests": 3, "cost_usd": 3.0, "reused_seats": 0}),
    ):
        response = await site.call("POST", "/v1/estimate", json=asked)
        assert response.status_code == httpx.codes.OK
        assert response.json() == expected
    assert await stored(site) == before


async def test_an_estimate_is_validated_like_a_job(site: Site) -> None:
    """The same faults at the same places, and no estimate without a key."""
    body = panel("bad", policy={"max_attempts": 11, "max_cost_usd": 0})
    one, other = await site.submit(body), await site.call("POST", "/v1/estimate", json=body)
    assert one.status_code == other.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert one.json() == other.json()
    nobody = await site.call("POST", "/v1/estimate", json=panel("x"), api_key="wrong")
    assert nobody.status_code == httpx.codes.UNAUTHORIZED
    assert (await site.call("GET", "/v1/estimate")).status_code == httpx.codes.METHOD_NOT_ALLOWED


@pytest.mark.long  # a stack of its own; the day itself is tested on the emulator in every run
async def test_a_spent_day_answers_429_until_it_ends(
    emulator_hosts: EmulatorHosts,
    tmp_path_factory: pytest.TempPathFactory,
    providers: Mapping[str, str],
) -> None:
    """The answer says which cap and how long; what was not used is free again after the close."""
    folder = tmp_path_factory.mktemp("day")
    environment = {**providers, "EMPANEL_TENANT_DAY_REQUESTS": "6"}
    async with open_site(emulator_hosts, folder, environment=environment) as site:
        await site.stub.script(latency_seconds=1.5)
        first = panel("day", seats=seats(1))
        job = await site.accepted(first)
        [before] = await site.ledger.group("tenant_days")
        response = await site.submit(panel("other day", seats=seats(1)))
        assert response.status_code == httpx.codes.TOO_MANY_REQUESTS
        assert "of the day's 6 requests" in response.json()["detail"]
        _assert_until_midnight(response)
        assert await site.ledger.group("tenant_days") == [before]
        assert len(await site.ledger.group("jobs")) == 1
        assert (await site.submit(first)).status_code == httpx.codes.OK
        await site.ended(job)
        again = await site.accepted(panel("other day", seats=seats(1)))
        await site.ended(again)
        [day] = await site.ledger.group("tenant_days")
        assert (day.data["requests"], day.data["nano_usd"]) == (2, 0)


def _assert_until_midnight(response: httpx.Response) -> None:
    """The wait ends with the day, UTC, by the answer's own clock to a few seconds."""
    now = parsedate_to_datetime(response.headers["date"]).astimezone(UTC)
    midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
    left = (midnight - now).total_seconds()
    assert abs(int(response.headers["retry-after"]) - left) <= 10
