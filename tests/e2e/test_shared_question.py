"""Many jobs, one question: one call, one refusal, and each job's own limits."""

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.load import LOAD_SETTINGS, all_ended, books, submitted
from tests.e2e.site import Json, Site, dumped, open_site, panel
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOBS = 200
SETTINGS = LOAD_SETTINGS | {"EMPANEL_LEASE_SECONDS": "5", "EMPANEL_REPAIR_SECONDS": "2"}
REFUSED = ScriptedResponse(status=401, delay_seconds=10)
OVERLOADED = ScriptedResponse(status=503)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("shared")
    async with open_site(emulator_hosts, folder, environment=SETTINGS) as running:
        yield running


@pytest.mark.long  # 200 jobs must be accepted within the ten seconds of one call
async def test_jobs_that_wait_for_one_refusal_share_it(site: Site) -> None:
    """200 jobs during one call of 10 s that is refused: one request; a later job asks again."""
    await site.stub.script(Rule(label="refused", always=REFUSED))
    first = await site.accepted(_labeled("refused", 0))
    await site.stub.wait_for(lambda stats: stats.totals.in_flight == 1)
    others = await submitted(site, (_labeled("refused", number) for number in range(1, JOBS)))
    assert (await site.stub.stats(requests=False)).totals.in_flight == 1, "accepted too slowly"
    await all_ended(site)

    ids = [first, *others]
    found = await books(site, ids, "refused")
    assert len(found.requests) == 1
    assert found.states == dict.fromkeys(ids, "failed")
    codes = [seat["code"] for terminal in found.terminals for seat in terminal.data["seats"]]
    assert codes == ["invalid_credential"] * JOBS
    assert [len(await site.attempts(job)) for job in ids[:3]] == [1, 0, 0]

    await site.stub.script(Rule(label="refused", always=ScriptedResponse(status=401)))
    [later] = await site.ended(await site.accepted(_labeled("refused", JOBS)))
    assert later["state"] == "failed"
    assert await site.requests("refused") == 2


@pytest.mark.parametrize("tries", [4, pytest.param(6, marks=pytest.mark.long)])
async def test_one_jobs_single_try_does_not_limit_another(site: Site, tries: int) -> None:
    """503 for ever: the job with one try makes no second request, the other goes to its own limit.

    The tries of both count for both while they wait for the same evaluation (see
    `infra/decisions/2026-11-29-failures-are-read-off-attempts.md`): together they make as many
    requests as the more patient one may, not one more.
    """
    label = f"limits-{tries}"
    delayed = OVERLOADED.model_copy(update={"delay_seconds": 1.0})
    await site.stub.script(Rule(label=label, responses=(delayed,), always=OVERLOADED))
    hasty, patient = await asyncio.gather(
        site.accepted(_labeled(label, 0, policy={"max_attempts": 1})),
        site.accepted(_labeled(label, 1, policy={"max_attempts": tries})),
    )
    one, other = await site.ended(hasty, patient, timeout_seconds=90)
    assert [job["seats"][0]["error"]["code"] for job in (one, other)] == ["attempts_exhausted"] * 2
    assert await site.requests(label) == tries
    own, others = await site.attempts(hasty), await site.attempts(patient)
    assert len(own) <= 1
    assert [attempt["outcome"] for attempt in [*own, *others]] == ["retryable"] * tries


async def test_deliveries_of_one_message_at_once_make_one_call(site: Site) -> None:
    """One envelope twice at once, beside the delivery under way: one call, all acknowledged."""
    await site.stub.script(latency_seconds=2.0)
    job = await site.accepted(panel("repeated", "a"))
    body = dumped(_envelope(await site.job(job)))
    token = site.stack.info.push_token
    answers = await asyncio.gather(*(site.push(body, token) for _ in range(2)))
    assert [answer.status_code for answer in answers] == [204, 204]
    [ended] = await site.ended(job)
    assert ended["state"] == "succeeded"
    assert await site.requests("repeated") == 1
    [attempt] = await site.attempts(job)
    assert (attempt["number"], attempt["outcome"]) == (1, "succeeded")


def _labeled(label: str, number: int, **changes: Json) -> Json:
    """One of several jobs that ask the same question."""
    return panel(label, "a", labels={"number": str(number)}, **changes)


def _envelope(job: Json) -> Json:
    """The push envelope of a job's only seat, as Pub/Sub would deliver it."""
    [seat] = job["seats"]
    message = {"v": 1, "job": job["id"], "run": 1, "seat": 0, "work_key": seat["work_key"]}
    return {
        "message": {"messageId": "m1", "data": base64.b64encode(dumped(message)).decode()},
        "subscription": "projects/p/subscriptions/s",
    }
