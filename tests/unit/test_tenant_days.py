"""A tenant's day: reserved with the job, trued up with its end, once, whatever dies in between."""

import asyncio
import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.acceptance import Acceptance, accept
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.memory import MemoryObjects, MemoryPublisher
from functions.bootstrap import wire
from functions.core.budgets import Caps, nano_usd
from functions.core.documents import from_document, tenant_day_path
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import Job, JobState, TenantDay
from functions.services import Services
from functions.tenant_caps import TenantCaps
from functions.tenant_days import DaySpent
from functions.worst_cases import CostRefused
from infra.local.emulators import EmulatorHosts
from tests.cases.scenes import messages, replies
from tests.faults.fakes import FakeProvider, failure
from tests.faults.invariants import broken
from tests.faults.prices import ANSWER_USD, WORST_USD, FakePrices
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission
from tests.faults.world import test_settings as settings_of

DOLLAR = nano_usd(WORST_USD)
ANSWER = nano_usd(ANSWER_USD)
DAY = "2026-11-29"


def capped(requests: int | None = None, dollars: int | None = None) -> World:
    """Return a world whose tenants' days have these caps."""
    nano = None if dollars is None else dollars * DOLLAR
    everyone = Caps(requests=requests, nano_usd=nano)
    return World(prices=FakePrices(), tenant_caps=TenantCaps(everyone=everyone))


def held(world: World, day: str = DAY) -> tuple[int, int]:
    """Return the requests and the money that a day holds."""
    stored = world.ledger.stored().get(tenant_day_path("tenant", day))
    return (stored["requests"], stored["nano_usd"]) if stored else (0, 0)


async def taken(world: World, key: str, *models: str, **policy: Any) -> Job | None:
    """Submit a job; None when the day has no room for it."""
    asked = submission(models or ("m0",), key=key, question=key, **policy)
    try:
        return (await accept(world.api.services, asked)).job
    except DaySpent:
        return None


async def test_a_job_reserves_its_worst_case_and_gives_back_the_rest() -> None:
    """Four attempts a seat at first, in the end what was sent and what it cost."""
    world = capped(requests=20, dollars=20)
    assert await taken(world, "a", "m0", "m1") is not None
    assert held(world) == (8, 8 * DOLLAR)
    await world.finish()
    assert held(world) == (2, 2 * ANSWER)
    assert broken(world) == {}


async def test_a_spent_day_refuses_and_stores_nothing() -> None:
    """The refusal names the cap and when the day ends; what is there stays as it was."""
    world = capped(requests=5)
    assert await taken(world, "a") is not None
    before = world.ledger.documents()
    with pytest.raises(DaySpent) as refused:
        await accept(world.api.services, submission(key="b", filler=40_000))
    assert "4 of the day's 5 requests" in refused.value.reason
    assert refused.value.until == datetime(2026, 11, 30, tzinfo=UTC)
    assert world.ledger.documents() == before
    assert world.objects.names() == []
    assert len(messages(world)) == 1


async def test_a_first_job_that_never_fits_stores_nothing() -> None:
    """A job that may need more than a whole day has is refused like any other."""
    world = capped(requests=3)
    with pytest.raises(DaySpent, match="may need 4"):
        await accept(world.api.services, submission())
    assert world.ledger.documents() == {}


async def test_a_day_has_room_again_once_a_run_has_ended() -> None:
    """A job that was refused is accepted when the worst case of another has not come true."""
    world = capped(dollars=5)
    assert await taken(world, "a") is not None
    assert await taken(world, "b") is None
    await world.finish()
    assert await taken(world, "b") is not None


async def test_the_next_day_is_a_new_one_and_the_old_one_is_trued_up() -> None:
    """A run that ends after midnight changes the day it was asked for on."""
    world = capped(requests=4)
    assert await taken(world, "a", deadline_seconds=100_000) is not None
    world.clock.advance(86_400.0)
    assert await taken(world, "b") is not None
    await world.finish()
    assert held(world) == (1, 0)
    assert held(world, "2026-11-30") == (1, 0)


async def test_a_known_job_is_returned_on_a_spent_day() -> None:
    """Who repeats a request is no new job, whatever the day has come to."""
    world = capped(requests=4)
    first = await taken(world, "a")
    again = await taken(world, "a")
    assert first is not None
    assert again is not None
    assert again.id == first.id
    assert held(world) == (4, 0)


async def test_a_reused_seat_takes_nothing_of_the_day() -> None:
    """What was not asked is given back at the close."""
    world = capped(requests=5, dollars=5)
    await world.submit(submission(key="first"))
    await world.finish()
    await world.submit(submission(key="second"))
    assert held(world)[0] == 5
    await world.finish()
    assert held(world) == (1, ANSWER)


async def test_an_unknown_attempt_keeps_its_worst_case() -> None:
    """A timeout may have been paid for, also on the day."""
    world = capped(dollars=9)
    replies(world, failure("timeout", http_status=None))
    assert await taken(world, "a") is not None
    await world.finish()
    assert held(world) == (0, DOLLAR + ANSWER)


async def test_an_own_cap_limits_what_is_reserved() -> None:
    """A job that may send two requests, or spend a dollar, reserves no more than that."""
    world = capped(requests=9, dollars=9)
    assert await taken(world, "a", "m0", "m1", max_requests=2) is not None
    assert held(world) == (2, 2 * DOLLAR)
    assert await taken(world, "b", max_cost_usd=1.0) is not None
    assert held(world) == (6, 3 * DOLLAR)


async def test_a_tenant_may_have_caps_of_its_own() -> None:
    """The table of a tenant goes before the caps of all; one without caps has no record."""
    own = {"tenant": Caps(requests=4), "free": Caps()}
    world = World(tenant_caps=TenantCaps(everyone=Caps(requests=1), own=own))
    assert await taken(world, "a") is not None
    assert await taken(world, "b") is None
    free = TenantCaps(everyone=Caps(requests=1), own={"tenant": Caps()})
    unlimited = World(tenant_caps=free)
    job = await taken(unlimited, "a")
    assert job is not None
    assert job.day is None
    assert not any("tenant_days" in call for call in unlimited.plan.calls)


async def test_a_model_without_a_price_is_refused_where_the_day_caps_money() -> None:
    """An unknown cost is not 0: the place of the model is named, and nothing is stored."""
    world = capped(dollars=100)
    before = world.ledger.documents()
    with pytest.raises(CostRefused) as refused:
        await accept(world.api.services, submission(["m0", "unpriced"]))
    assert refused.value.path == ("seats", 1, "model")
    assert world.ledger.documents() == before


async def test_a_canceled_run_is_trued_up_once_its_seats_have_their_records() -> None:
    """A call in flight counts; what was never asked is given back."""
    world = capped(requests=9, dollars=9)
    job = await taken(world, "a", "m0", "m1")
    assert job is not None
    first, _ = messages(world)
    world.provider.seconds = 60.0
    work = asyncio.create_task(world.deliver(first))
    await world.clock.sleep(10.0)
    await world.cancel(job)
    assert held(world) == (8, 8 * DOLLAR)
    assert await work
    await world.finish()
    assert world.jobs()[job.id].state is JobState.CANCELED
    assert held(world) == (1, DOLLAR)
    assert broken(world) == {}


CRASHES = [
    ("api: commit create tenant_days, create jobs", Fate.DIE),
    ("api: get tenant_days", Fate.DIE),
    ("api: get tenant_days", Fate.FAIL),
    ("evaluate: get tenant_days", Fate.DIE),
    ("evaluate: get tenant_days", Fate.FAIL),
    ("evaluate: commit update tenant_days, create terminals", Fate.DIE),
    ("evaluate: commit update tenant_days, create terminals", Fate.FAIL),
    ("evaluate: commit update tenant_days, create terminals", Fate.FREEZE),
]


def strike_once(world: World, call: str, strike: Strike) -> list[Strike]:
    """Strike the next call whose name begins so; the list is empty once that has happened."""
    left = [strike]

    class Next(dict[str, Strike]):
        def get(self, name: str, default: object = None) -> Strike | None:  # type: ignore[override]
            return left.pop() if left and name.startswith(call) else None

    world.plan.always = Next()
    return left


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize(("call", "fate"), CRASHES)
async def test_a_crash_counts_nothing_twice(call: str, fate: Fate, moment: Moment) -> None:
    """Before or after any step of it, the day comes out as if nothing had happened."""
    world = capped(requests=20, dollars=20)
    left = strike_once(world, call, Strike(fate=fate, moment=moment))
    await world.submit(submission(["m0", "m1"]))
    await world.finish()
    assert not left, "the call never came"
    assert held(world) == (2, 2 * ANSWER)
    assert broken(world) == {}


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_crash_of_repair_counts_nothing_twice(moment: Moment) -> None:
    """The true-up of a stopped run is done by the next pass, once."""
    world = capped(requests=20)
    call = "reconcile: commit update tenant_days, update jobs"
    left = strike_once(world, call, Strike(fate=Fate.DIE, moment=moment))
    job = await world.submit(submission())
    messages(world)
    await world.cancel(job)
    await world.finish()
    assert not left, "the call never came"
    assert held(world) == (0, 0)
    assert broken(world) == {}


@pytest.mark.parametrize(("moment", "applied"), [(Moment.AFTER, True), (Moment.BEFORE, False)])
async def test_an_acceptance_without_an_answer_counts_once_or_not_at_all(
    moment: Moment, applied: bool
) -> None:
    """Job and reservation are one commit: reading back finds both, or none."""
    world = capped(requests=4)
    call = "api: commit create tenant_days, create jobs"
    strike_once(world, call, Strike(fate=Fate.FAIL, moment=moment))
    acceptance = await world.submit_once(submission())
    assert (acceptance is not None and acceptance.created) == applied
    assert held(world) == ((4, 0) if applied else (0, 0))


async def test_a_day_is_kept_as_long_as_other_records() -> None:
    """Its end of retention is set when it is created, counted from the day's own end."""
    world = capped(requests=4)
    assert await taken(world, "a") is not None
    path = tenant_day_path("tenant", DAY)
    day = from_document(TenantDay, world.ledger.stored()[path], path)
    assert day.expire_at == datetime(2026, 11, 30, tzinfo=UTC) + timedelta(days=400)


async def _all_at_once(services: Services, count: int, name: str = "job") -> list[Job]:
    """Ask for so many jobs at the same time, as clients would that repeat an unclear answer."""

    async def ask(number: int) -> Job | None:
        key = f"{name}-{number}"
        asked = submission(key=key, question=key, max_requests=2)
        while True:
            try:
                return (await accept(services, asked)).job
            except DaySpent:
                return None
            except LedgerUnavailable:
                await asyncio.sleep(random.uniform(0.1, 0.3))

    jobs = await asyncio.gather(*map(ask, range(count)))
    return [job for job in jobs if job is not None]


async def test_jobs_asked_for_at_once_fill_a_day_exactly() -> None:
    """Of thirty jobs as many are accepted as fit, no more and no less, and each is told at once."""
    world = capped(requests=21)
    asked = (submission(key=f"{n}", question=f"{n}", max_requests=2) for n in range(30))
    answers = await asyncio.gather(
        *(accept(world.api.services, one) for one in asked), return_exceptions=True
    )
    accepted = [answer for answer in answers if isinstance(answer, Acceptance)]
    refused = [answer for answer in answers if isinstance(answer, DaySpent)]
    assert (len(accepted), len(refused)) == (10, 20)
    assert held(world) == (20, 0)


async def test_jobs_asked_for_at_once_fill_a_day_exactly_on_the_emulator(
    emulator_hosts: EmulatorHosts,
) -> None:
    """The same on the real emulator, by two instances."""
    project = f"test-{uuid.uuid4().hex[:12]}"
    ledgers = [FirestoreLedger(project, emulator_host=emulator_hosts.firestore) for _ in range(2)]
    try:
        halves = await asyncio.gather(
            *(_all_at_once(_instance(each), 12, f"half-{n}") for n, each in enumerate(ledgers))
        )
        jobs = [job for half in halves for job in half]
        days = {job.day.day for job in jobs if job.day is not None}
        found = await ledgers[0].get(*(tenant_day_path("tenant", day) for day in days))
    finally:
        for ledger in ledgers:
            await ledger.aclose()
    assert len(jobs) == 10 * len(days)  # the test may run over midnight
    sums = [(day.data["requests"], day.data["nano_usd"]) for day in found if day.data]
    assert sums == [(20, 20 * DOLLAR)] * len(days)


def _instance(ledger: FirestoreLedger) -> Services:
    """Return the services of an instance over the emulator, capped at 21 requests and dollars."""
    clock = SystemClock()
    caps = Caps(requests=21, nano_usd=21 * DOLLAR)
    provider = FakeProvider(clock, lambda request: None)
    return wire(
        settings_of(tenant_caps=TenantCaps(everyone=caps)),
        clock=clock,
        ledger=ledger,
        objects=MemoryObjects(),
        publisher=MemoryPublisher(clock),
        providers={"fake": provider},
        prices=FakePrices(),
    )
