"""A process that stands still for longer than its lease, and wakes with an answer in its hands."""

import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = ScriptedResponse(delay_seconds=2)
SLEEPER, WAKER = 0, 1  # the evaluate processes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("late")
    async with open_site(emulator_hosts, folder, evaluate_processes=2) as running:
        yield running


async def test_a_late_answer_gives_way_to_the_one_on_record(site: Site) -> None:
    """The second holder's answer is on record: the first one's comes late and changes nothing."""
    await site.stub.script(Rule(label="overtaken", responses=(SLOW,)))
    job = await _left_asleep(site, "overtaken")
    ended = await _ended_by_the_other(site, job, "succeeded")
    before = await _recorded(site, ended)
    await _wake(site)
    await _late_answer_handled(site, job)

    assert await _recorded(site, ended) == before
    assert await site.job(job) == ended
    assert [a["outcome"] for a in await site.attempts(job)] == ["unknown", "succeeded"]
    assert await site.requests("overtaken") == 2
    assert len(await site.bucket.names("outputs/")) == 1


async def test_a_late_answer_is_kept_for_the_next_job(site: Site) -> None:
    """The second holder was refused and the job failed: it stays failed, and the answer is kept."""
    refused = ScriptedResponse(status=401)
    await site.stub.script(Rule(label="kept", responses=(SLOW, refused)))
    objects = await site.bucket.names("outputs/")
    job = await _left_asleep(site, "kept")
    ended = await _ended_by_the_other(site, job, "failed")
    assert await site.bucket.names("outputs/") == objects
    before = await _recorded(site, ended)
    await _wake(site)
    await until(
        lambda: site.bucket.names("outputs/"),
        lambda names: len(names) == len(objects) + 1,
        what="the late answer is stored",
    )
    await _late_answer_handled(site, job)
    assert await _recorded(site, ended) == before
    assert await site.job(job) == ended

    [later] = await site.ended(await site.accepted(panel("kept", "a"), key="later"))
    assert later["state"] == "succeeded"
    assert later["seats"][0]["reused"] is True
    assert await site.requests("kept") == 2
    assert (await site.job(job))["terminal"] == ended["terminal"]


async def _left_asleep(site: Site, label: str) -> str:
    """A job whose call is answered to a process that no longer runs."""
    await site.stack.hold("evaluate", WAKER)
    job = await site.accepted(panel(label, "a"))
    await site.stub.wait_for(
        lambda stats: label in stats.labels and stats.labels[label].in_flight == 1
    )
    site.stack.kill("evaluate", signal.SIGSTOP, SLEEPER)
    await site.stack.release("evaluate", WAKER)
    await site.stub.wait_for(lambda stats: stats.labels[label].answered == 1)
    return job


async def _ended_by_the_other(site: Site, job: str, state: str) -> Json:
    [ended] = await site.ended(job)
    assert ended["state"] == state
    return ended


async def _wake(site: Site) -> None:
    site.stack.kill("evaluate", signal.SIGCONT, SLEEPER)


async def _late_answer_handled(site: Site, job: str) -> None:
    """Wait until the process that slept has said what came of its attempt."""
    log = site.stack.folder.logs / "evaluate.log"

    async def lines() -> list[str]:
        return [line for line in log.read_text().splitlines() if job in line]

    await until(
        lines,
        lambda found: any("attempt ended" in line for line in found),
        what="the late attempt ends",
    )


async def _recorded(site: Site, job: Json) -> Json:
    """All that is on record about the job and its only question, with the times of change."""
    [seat] = job["seats"]
    paths = [
        f"jobs/{job['id']}",
        f"jobs/{job['id']}/terminals/1",
        f"jobs/{job['id']}/seats/1.0",
        f"evaluations/{seat['work_key']}",
    ]
    return [await site.ledger.get(path) for path in paths]
