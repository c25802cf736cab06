"""The evaluate process dies or is told to end while requests are in flight; the work goes on."""

import asyncio
import signal
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEATS = 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("processes")) as running:
        yield running


async def test_every_job_ends_when_the_process_is_killed_in_the_middle(site: Site) -> None:
    """kill -9 with calls in flight: all jobs succeed, each ends once, and no request is hidden."""
    await site.stub.script(latency_seconds=1.5)
    ids = await _submitted(site, "killed", 20)
    await site.stub.wait_for(lambda stats: stats.totals.in_flight >= 10)
    pid = site.stack.kill("evaluate", signal.SIGSTOP)  # what is read now is what dies
    claimed = await _claimed_attempts(site)
    assert site.stack.kill("evaluate", signal.SIGKILL) == pid
    assert await site.stack.restarted("evaluate", pid) != pid
    jobs = await site.ended(*ids, timeout_seconds=60)

    assert {job["state"] for job in jobs} == {"succeeded"}
    await _assert_each_ended_once(site, ids)
    attempts = [attempt for job in ids for attempt in await site.attempts(job)]
    requests = await site.requests("killed-")
    assert (await site.stub.stats(requests=False)).totals.client_gone > 0
    assert requests <= len(attempts) <= requests + claimed
    assert len(attempts) <= len(ids) * SEATS + claimed
    successes = [attempt for attempt in attempts if attempt["outcome"] == "succeeded"]
    assert len(successes) == len(ids) * SEATS
    assert {a["outcome"] for a in attempts} == {"succeeded", "unknown"}


async def test_calls_in_flight_finish_within_the_grace_time(site: Site) -> None:
    """After SIGTERM the calls in flight bring their answers in; none of them is sent again."""
    await site.stub.script(latency_seconds=3.0)
    gone = (await site.stub.stats(requests=False)).totals.client_gone
    ids = await _submitted(site, "graceful", 8)
    await _all_in_flight(site, "graceful", 8)
    pid = site.stack.kill("evaluate", signal.SIGTERM)
    await site.stack.restarted("evaluate", pid)
    jobs = await site.ended(*ids)

    assert {job["state"] for job in jobs} == {"succeeded"}
    assert await site.requests("graceful-") == len(ids) * SEATS
    assert (await site.stub.stats(requests=False)).totals.client_gone == gone
    for job in ids:
        assert {(a["number"], a["outcome"]) for a in await site.attempts(job)} == {(1, "succeeded")}
    await _assert_each_ended_once(site, ids)


async def test_calls_beyond_the_grace_time_are_cut_and_made_again(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Calls longer than the grace time are dropped, recorded as interrupted and bought afresh."""
    folder = tmp_path_factory.mktemp("hasty")
    environment = {"EMPANEL_GRACE_SECONDS": "1"}
    async with open_site(
        emulator_hosts, folder, latency_seconds=10.0, environment=environment
    ) as site:
        ids = await _submitted(site, "hasty", 5)
        await _all_in_flight(site, "hasty", 5)
        pid = site.stack.kill("evaluate", signal.SIGTERM)
        await site.stub.wait_for(lambda stats: stats.totals.client_gone == 5 * SEATS)
        await site.stub.script(latency_seconds=0.05)
        await site.stack.restarted("evaluate", pid)
        jobs = await site.ended(*ids)

        assert {job["state"] for job in jobs} == {"succeeded"}
        for job in ids:
            assert await _ends_of_seats(site, job) == {
                "openai/a": [("canceled", "interrupted"), ("succeeded", None)],
                "openai/b": [("canceled", "interrupted"), ("succeeded", None)],
            }
        assert await site.requests("hasty-") == 2 * len(ids) * SEATS
        await _assert_each_ended_once(site, ids)


async def _submitted(site: Site, label: str, count: int) -> list[str]:
    bodies = [panel(f"{label}-{number}") for number in range(count)]
    return await asyncio.gather(*(site.accepted(body) for body in bodies))


async def _all_in_flight(site: Site, label: str, count: int) -> None:
    """Wait until the provider works on every seat of the jobs at the same time."""
    await site.stub.wait_for(
        lambda stats: (
            sum(counts.in_flight for name, counts in stats.labels.items() if name.startswith(label))
            == count * SEATS
        )
    )


async def _claimed_attempts(site: Site) -> int:
    """How many attempts have been written down and not ended."""
    evaluations = await site.ledger.group("evaluations")
    attempts = [attempt for found in evaluations for attempt in found.data["attempts"]]
    return sum(attempt["outcome"] == "running" for attempt in attempts)


async def _assert_each_ended_once(site: Site, ids: list[str]) -> None:
    """Each job has one terminal record, which nobody has written to since it was created."""
    of_job: defaultdict[str, list[Json]] = defaultdict(list)
    for found in await site.ledger.group("terminals"):
        of_job[found.data["job"]].append(found)
    for job in ids:
        [terminal] = of_job[job]
        assert terminal.path == f"jobs/{job}/terminals/1"
        assert terminal.update_time == terminal.create_time


async def _ends_of_seats(site: Site, job: str) -> dict[str, list[tuple[str, str | None]]]:
    ends: defaultdict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for attempt in await site.attempts(job):
        ends[attempt["seat"]].append((attempt["outcome"], attempt["code"]))
    return dict(ends)
