"""A fault run of 800 calls: what is asked again, when, and how often, to the very request."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.load import LOAD_SETTINGS, all_ended, assert_ended_once, books, submitted
from tests.e2e.site import Json, Site, open_site, panel
from tests.stub import RequestRecord, Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOBS = 200
MODELS = ("a", "b", "c", "d")
CALLS = range(1, JOBS * len(MODELS) + 1)
REFUSED = {number for number in CALLS if number % 50 == 0}
LIMITED = {number for number in CALLS if number % 20 == 0} - REFUSED
BUSY = {number for number in CALLS if number % 5 == 0} - LIMITED - REFUSED
REQUESTS = len(CALLS) + len(LIMITED) + len(BUSY)
HINT_SECONDS = 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("faulty")
    async with open_site(
        emulator_hosts, folder, latency_seconds=0.2, jitter=0.5, environment=LOAD_SETTINGS
    ) as running:
        yield running


@pytest.mark.long  # 800 seats; half a minute
async def test_every_fault_costs_what_it_must_and_no_more(site: Site) -> None:
    """944 requests, every hint kept, 184 jobs complete, 16 seats refused at their first request."""
    assert (REQUESTS, len(LIMITED), len(REFUSED)) == (944, 32, 16)
    await site.stub.script(*_rules())
    ids = await submitted(site, (panel(f"item-{job}", *MODELS) for job in range(1, JOBS + 1)))
    await all_ended(site)
    found = await books(site, ids, "item-")
    assert_ended_once(found, ids)

    assert len(found.requests) == REQUESTS == len(found.attempts)
    by_number: dict[int, list[RequestRecord]] = {number: [] for number in CALLS}
    for record in found.requests:
        by_number[_number(record.label or "", record.model)].append(record)
    assert {n: [r.status for r in records] for n, records in by_number.items()} == {
        number: _statuses(number) for number in CALLS
    }
    waits = [_wait_seconds(by_number[number]) for number in sorted(LIMITED)]
    print(f"faults: the shortest wait after a hint of {HINT_SECONDS} s was {min(waits):.3f} s")
    assert sum(wait >= HINT_SECONDS for wait in waits) == len(LIMITED)

    ends = [_ends(terminal.data) for terminal in found.terminals]
    assert ends.count(("succeeded", 4, [])) == 184
    assert ends.count(("failed", 3, ["invalid_credential"])) == 16
    permanent = [a for a in found.attempts if a["outcome"] == "permanent"]
    assert [(a["number"], a["http_status"]) for a in permanent] == [(1, 401)] * 16


def _rules() -> list[Rule]:
    answers = (
        (REFUSED, {"always": ScriptedResponse(status=401)}),
        (LIMITED, {"responses": (_limit(),)}),
        (BUSY, {"responses": (ScriptedResponse(status=503),)}),
    )
    return [
        Rule(label=f"item-{_job(number)}", model=_model(number), **given)
        for numbers, given in answers
        for number in sorted(numbers)
    ]


def _limit() -> ScriptedResponse:
    return ScriptedResponse(status=429, headers={"retry-after": str(HINT_SECONDS)})


def _job(number: int) -> int:
    return (number - 1) // len(MODELS) + 1


def _model(number: int) -> str:
    return MODELS[(number - 1) % len(MODELS)]


def _number(label: str, model: str) -> int:
    """The number of a seat: four to a job, counted through."""
    job = int(label.removeprefix("item-"))
    return (job - 1) * len(MODELS) + MODELS.index(model) + 1


def _statuses(number: int) -> list[int]:
    if number in REFUSED:
        return [401]
    if number in LIMITED:
        return [429, 200]
    return [503, 200] if number in BUSY else [200]


def _wait_seconds(records: list[RequestRecord]) -> float:
    first, second = records
    assert first.ended_monotonic is not None
    return second.arrived_monotonic - first.ended_monotonic


def _ends(terminal: Json) -> tuple[str, int, list[str]]:
    """A run's state, how many seats succeeded, and the codes of the others."""
    succeeded = [seat for seat in terminal["seats"] if seat["state"] == "succeeded"]
    codes = [seat["code"] for seat in terminal["seats"] if seat["state"] != "succeeded"]
    return terminal["state"], len(succeeded), codes
