"""One key is told to wait: two evaluate processes obey, for that model only, through real parts."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

HINT_SECONDS = 5
SPREAD_SECONDS = HINT_SECONDS / 2
JOBS = 16


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("pauses")
    async with open_site(emulator_hosts, folder, evaluate_processes=2) as running:
        yield running


async def test_one_refusal_holds_back_the_seats_of_every_process(site: Site) -> None:
    """No request for the model before the hint is over, then one by one; the other goes at once."""
    refusal = ScriptedResponse(status=429, headers={"retry-after": str(HINT_SECONDS)})
    await site.stub.script(Rule(label="refused", responses=(refusal,)))
    first = await site.accepted(panel("refused", "limited"))
    await until(
        lambda: site.attempts(first),
        lambda attempts: [a["code"] for a in attempts] == ["rate_limited"],
        what="the refusal is on record",
        timeout_seconds=HINT_SECONDS,
    )
    bodies = [panel(f"held-{number}", "limited", "free") for number in range(JOBS)]
    ids = await asyncio.gather(*(site.accepted(body) for body in bodies))
    jobs = await site.ended(first, *ids)
    assert {job["state"] for job in jobs} == {"succeeded"}
    assert all(_attempts(job, "openai/limited") == 1 for job in jobs[1:])

    records = (await site.stub.stats()).requests
    refused = next(r for r in records if r.label == "refused")
    assert refused.ended_monotonic is not None
    over = refused.ended_monotonic + HINT_SECONDS
    limited = sorted(r.arrived_monotonic for r in records if r.model == "limited")[1:]
    free = sorted(r.arrived_monotonic for r in records if r.model == "free")
    assert len(limited) == JOBS + 1
    assert len(free) == JOBS
    assert limited[0] >= over
    assert free[JOBS // 2] < limited[0], "the other model waited too"
    assert limited[-1] - limited[0] >= SPREAD_SECONDS / 3
    assert sum(b - a > 0.02 for a, b in pairwise(limited)) >= JOBS / 3, "they came at once"


def _attempts(job: Json, seat: str) -> int:
    [found] = [s for s in job["seats"] if s["seat"] == seat]
    return int(found["attempts"])
