"""Cancel against 64 calls of ten seconds: they stop, what others wait for goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.load import (
    CALLS_AT_ONCE,
    LOAD_SETTINGS,
    all_ended,
    assert_ended_once,
    books,
    moment,
    submitted,
)
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until

# Long, as the other loads are.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

JOBS = 100
CANCELED = 50
RACES = 30
CUT_SECONDS = 2.0
ANSWER_SECONDS = 2.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("cancel")
    settings = LOAD_SETTINGS | {"EMPANEL_REPAIR_SECONDS": "2", "EMPANEL_LEASE_SECONDS": "5"}
    async with open_site(emulator_hosts, folder, environment=settings) as running:
        yield running


async def test_calls_of_canceled_jobs_end_within_two_seconds(site: Site) -> None:
    """50 of 100 jobs canceled: their calls are cut in time, none is claimed, the others succeed.

    A request may leave after the cancel only when its claim was made before it.
    """
    await site.stub.script(latency_seconds=10.0)
    ids = await submitted(site, (panel(f"stop-{number}", "a") for number in range(JOBS)))
    await site.stub.wait_for(lambda stats: stats.totals.in_flight == CALLS_AT_ONCE)
    stopped, kept = ids[::2], ids[1::2]
    assert len(stopped) == CANCELED
    answers = await asyncio.gather(*(_canceled(site, job) for job in stopped))
    assert {job["state"] for job in answers} == {"canceled"}
    await site.stub.script(latency_seconds=0.2)  # for the calls that begin from now on
    await all_ended(site)
    await _all_seats_ended(site, stopped)

    found = await books(site, ids, "stop-")
    assert_ended_once(found, ids)
    assert found.states == dict.fromkeys(stopped, "canceled") | dict.fromkeys(kept, "succeeded")
    moments = {t.data["job"]: moment(t.create_time) for t in found.terminals}
    labels = {f"stop-{number}": job for number, job in enumerate(ids)}
    lasted, late = [], []
    for record in found.requests:
        stopped_at = moments[labels[record.label or ""]]
        if labels[record.label or ""] in stopped:
            assert record.outcome == "client_gone"
            assert record.ended_at is not None
            lasted.append((record.ended_at - stopped_at).total_seconds())
            late += [record] if record.arrived_at > stopped_at else []
    print(
        f"cancel: {len(lasted)} calls cut, the last {max(lasted):.2f} s after its cancel; "
        f"{len(late)} were claimed before it and sent after it"
    )
    assert max(lasted) <= CUT_SECONDS
    _assert_spent_as_canceled(found.attempts, set(stopped), moments)
    assert sum(a["job"] in set(stopped) and a["sent"] for a in found.attempts) == len(lasted)


async def test_another_job_buys_again_what_a_canceled_one_was_asking(site: Site) -> None:
    """Two jobs, one question: the cancel of the asker costs exactly one request more."""
    await site.stub.script(latency_seconds=10.0)
    asker = await site.accepted(panel("both", "a"), key="asker")
    await _in_flight(site, "both", 1)
    waiter = await site.accepted(panel("both", "a"), key="waiter")
    await until(
        lambda: site.job(waiter),
        lambda job: job["seats"][0]["state"] == "running",
        what="the other job waits for the same call",
    )
    await site.stub.script(latency_seconds=0.1)
    await _canceled(site, asker)
    [job] = await site.ended(waiter)
    assert job["state"] == "succeeded"
    assert (await site.job(asker))["state"] == "canceled"
    assert await site.requests("both") == 2
    assert [a["outcome"] for a in await site.attempts(asker)] == ["canceled"]
    assert [a["outcome"] for a in await site.attempts(waiter)] == ["succeeded"]
    assert job["seats"][0]["reused"] is False


async def test_a_cancel_that_races_with_the_answer_has_one_winner(site: Site) -> None:
    """Canceled around the moment of the answer: one terminal record each, and it stays as it is."""
    await site.stub.reset()
    await site.stub.script(latency_seconds=ANSWER_SECONDS, jitter=0.0)
    labels = [f"race-{number}" for number in range(RACES)]
    ids = await submitted(site, (panel(label, "a") for label in labels))
    answers = await _canceled_at_their_answers(site, dict(zip(labels, ids, strict=True)))
    await all_ended(site)
    await _all_seats_ended(site, ids)

    found = await books(site, ids, "race-")
    assert_ended_once(found, ids)
    assert found.states == {job["id"]: job["state"] for job in answers}
    print(f"race: {sorted(found.states.values()).count('succeeded')} of {RACES} answers won")
    assert set(found.states.values()) <= {"succeeded", "canceled"}
    assert len(found.requests) == RACES
    for answer in answers:
        job = await site.job(answer["id"])
        assert (job["state"], job["terminal"]) == (answer["state"], answer["terminal"])
        [seat] = job["seats"]
        assert seat["state"] == job["state"] or seat["output"] is not None
        [attempt] = await site.attempts(job["id"])
        assert attempt["outcome"] in ("succeeded", "canceled")
        assert job["state"] == "canceled" or attempt["outcome"] == "succeeded"


async def _canceled(site: Site, job: str) -> Json:
    response = await site.call("POST", f"/v1/jobs/{job}/cancel")
    assert response.status_code == 200, response.text
    return response.json()


async def _canceled_at_their_answers(site: Site, jobs: dict[str, str]) -> list[Json]:
    """Cancel each job from 0.15 s before the provider answers its call to 0.3 s after."""
    canceling = []
    deadline = time.monotonic() + 30
    while jobs:
        assert time.monotonic() < deadline
        for record in (await site.stub.stats()).requests:
            label = record.label or ""
            if label not in jobs:
                continue
            due_seconds = ANSWER_SECONDS - 0.15 + 0.05 * int(label[-1])
            if time.monotonic() - record.arrived_monotonic >= due_seconds:
                canceling.append(asyncio.create_task(_canceled(site, jobs.pop(label))))
    return await asyncio.gather(*canceling)


async def _in_flight(site: Site, label: str, count: int) -> None:
    await site.stub.wait_for(
        lambda stats: label in stats.labels and stats.labels[label].in_flight == count
    )


async def _all_seats_ended(site: Site, ids: list[str]) -> None:
    """Wait until the seats of all these jobs have their records."""
    jobs = set(ids)
    await until(
        lambda: site.ledger.group("seats"),
        lambda seats: jobs <= {seat.path.split("/")[1] for seat in seats},
        what="the seats of stopped runs have their records",
    )


def _assert_spent_as_canceled(
    attempts: list[Json], stopped: set[str], moments: dict[str, datetime]
) -> None:
    """A canceled job's attempts ended canceled; one claimed after the stop was never sent."""
    for attempt in attempts:
        if attempt["job"] in stopped:
            assert (attempt["outcome"], attempt["code"]) == ("canceled", "canceled")
            claimed_late = moment(attempt["started_at"]) > moments[attempt["job"]]
            assert not (claimed_late and attempt["sent"])
