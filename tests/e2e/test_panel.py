"""Fifty panels end to end, then the same questions again: each answer is bought once."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOBS, SEATS = 50, 2
RACERS = 20


@dataclass(frozen=True, kw_only=True)
class Fifty:
    """The submissions with their keys, and the jobs after their end, in the same order."""

    submissions: list[tuple[Json, str | None]]
    jobs: list[Json]

    @property
    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]

    @property
    def seats(self) -> list[Json]:
        return [seat for job in self.jobs for seat in job["seats"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("panel")
    providers = folder / "providers.toml"
    providers.write_text("[providers.openai.prices]\ninput = 1.0\noutput = 10.0\n")
    async with open_site(
        emulator_hosts,
        folder,
        latency_seconds=0.1,
        environment={"EMPANEL_PROVIDERS": str(providers)},
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fifty(site: Site) -> Fifty:
    """Every second job has an idempotency key, the others are known by their body."""
    submissions = [
        (panel(f"fifty-{number}"), f"key-{number}" if number % 2 else None)
        for number in range(JOBS)
    ]
    ids = await asyncio.gather(*(site.accepted(body, key) for body, key in submissions))
    jobs = await site.ended(*ids, timeout_seconds=60)
    return Fifty(submissions=submissions, jobs=jobs)


async def test_fifty_panels_succeed_with_one_request_a_seat(site: Site, fifty: Fifty) -> None:
    """50 jobs of 2 seats all succeed, and the provider got exactly 100 requests."""
    assert len(set(fifty.ids)) == JOBS
    assert {job["state"] for job in fifty.jobs} == {"succeeded"}
    assert {job["terminal"]["state"] for job in fifty.jobs} == {"succeeded"}
    assert {seat["state"] for seat in fifty.seats} == {"succeeded"}
    totals = (await site.stub.stats(requests=False)).totals
    assert (totals.requests, totals.answered) == (JOBS * SEATS, JOBS * SEATS)
    assert totals.distinct_keys == JOBS * SEATS
    assert totals.wrong_authorization == 0


async def test_every_report_is_complete(site: Site, fifty: Fifty) -> None:
    """Each report holds both scores, names nobody as missing and counts both seats."""
    for job in fifty.jobs:
        report = await site.read(f"/v1/jobs/{job['id']}/report")
        assert report["complete"] is True
        assert report["missing"] == []
        assert report["warnings"] == []
        assert [seat["seat"] for seat in report["seats"]] == ["openai/a", "openai/b"]
        assert [seat["output"] for seat in report["seats"]] == [
            seat["output"] for seat in job["seats"]
        ]
        assert (report["summary"]["n"], report["summary"]["of"]) == (SEATS, SEATS)


async def test_every_object_is_the_one_on_record(site: Site, fifty: Fifty) -> None:
    """The SHA-256 of each object's bytes is that of the API, the seat, the evaluation, the end."""
    evaluations = {d.data["work_key"]: d.data for d in await site.ledger.group("evaluations")}
    seats = {d.path: d.data for d in await site.ledger.group("seats")}
    terminals = {d.path: d.data for d in await site.ledger.group("terminals")}
    names = await site.bucket.names("outputs/")
    assert len(names) == len(evaluations) == len(seats) == JOBS * SEATS
    for job in fifty.jobs:
        terminal = terminals[f"jobs/{job['id']}/terminals/1"]
        for index, seat in enumerate(job["seats"]):
            shown = seat["output"]
            content = await site.bucket.read(shown["uri"])
            assert hashlib.sha256(content).hexdigest() == shown["sha256"]
            record = seats[f"jobs/{job['id']}/seats/1.{index}"]
            for output in (record["output"], evaluations[seat["work_key"]]["output"]):
                assert {name: output[name] for name in shown} == shown
            assert terminal["seats"][index]["sha256"] == shown["sha256"]


async def test_each_seat_shows_its_one_attempt(site: Site, fifty: Fifty) -> None:
    """Every job lists one successful attempt for each of its seats, with the tokens it cost."""
    for job in fifty.jobs:
        attempts = await site.attempts(job["id"])
        assert [(a["seat"], a["number"], a["outcome"]) for a in attempts] == [
            ("openai/a", 1, "succeeded"),
            ("openai/b", 1, "succeeded"),
        ]
        assert job["usage"]["requests"] == SEATS
        assert job["usage"]["output_tokens"] == sum(a["usage"]["output_tokens"] for a in attempts)


async def test_the_cost_follows_from_the_configured_prices(site: Site, fifty: Fifty) -> None:
    """1 USD in and 10 USD out per million tokens, on attempts, seats, jobs and reports alike."""
    for job in fifty.jobs[:5]:
        attempts = await site.attempts(job["id"])
        usages = [attempt["usage"] for attempt in attempts]
        costs = [round((u["input_tokens"] + 10 * u["output_tokens"]) / 1e6, 12) for u in usages]
        assert min(costs) > 0
        assert [attempt["cost_usd"] for attempt in attempts] == costs
        assert [seat["cost_usd"] for seat in job["seats"]] == costs
        assert job["usage"]["cost_usd"] == round(sum(costs), 12)
        report = await site.read(f"/v1/jobs/{job['id']}/report")
        assert [seat["cost_usd"] for seat in report["seats"]] == costs


async def test_the_same_submissions_again_are_the_same_jobs(site: Site, fifty: Fifty) -> None:
    """Sent again, each submission answers 200 with its job as it is, and nothing is asked."""
    before = await site.requests("fifty-")
    answers = await asyncio.gather(*(site.submit(body, key) for body, key in fifty.submissions))
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json() for answer in answers] == fifty.jobs
    assert await site.requests("fifty-") == before
    assert len(await site.ledger.group("jobs")) >= JOBS


async def test_the_same_questions_under_new_keys_are_reused(site: Site, fifty: Fifty) -> None:
    """A new job with a known question succeeds from what is stored: no request, no attempt."""
    before = await site.requests("fifty-")
    originals = fifty.jobs[:5]
    bodies = [body for body, _ in fifty.submissions[:5]]
    ids = [await site.accepted(body, f"again-{n}") for n, body in enumerate(bodies)]
    assert not set(ids) & set(fifty.ids)
    for again, first in zip(await site.ended(*ids), originals, strict=True):
        assert again["state"] == "succeeded"
        assert [seat["reused"] for seat in again["seats"]] == [True, True]
        assert [seat["reused"] for seat in first["seats"]] == [False, False]
        assert [s["output"] for s in again["seats"]] == [s["output"] for s in first["seats"]]
        assert await site.attempts(again["id"]) == []
        assert again["usage"]["requests"] == 0
        report = await site.read(f"/v1/jobs/{again['id']}/report")
        assert report["complete"] is True
    assert await site.requests("fifty-") == before


@pytest.mark.parametrize("key", ["race", None], ids=["key", "body"])
async def test_racing_submissions_are_one_job(site: Site, key: str | None) -> None:
    """20 callers with one identity at once: one is told 202, the others 200, all the same job."""
    label = f"race-{key}"
    answers = await asyncio.gather(*(site.submit(panel(label), key) for _ in range(RACERS)))
    assert sorted(answer.status_code for answer in answers) == [200] * (RACERS - 1) + [202]
    ids = {answer.json()["id"] for answer in answers}
    assert len(ids) == 1
    [job] = await site.ended(*ids)
    assert job["state"] == "succeeded"
    assert await site.requests(label) == SEATS
    jobs = await site.ledger.group("jobs")
    assert sum(d.data["digests"] == job["digests"] for d in jobs) == 1


async def test_racing_jobs_with_one_question_share_its_answer(site: Site) -> None:
    """Ten jobs that ask the same at once all succeed, and each answer is bought once."""
    ids = await asyncio.gather(*(site.accepted(panel("shared"), f"shared-{n}") for n in range(10)))
    jobs = await site.ended(*ids)
    assert {job["state"] for job in jobs} == {"succeeded"}
    assert await site.requests("shared") == SEATS
    attempts = [await site.attempts(job["id"]) for job in jobs]
    assert sum(map(len, attempts)) == SEATS
    bought = sum(not seat["reused"] for job in jobs for seat in job["seats"])
    assert bought == SEATS


async def test_another_body_under_a_used_key_is_refused(site: Site) -> None:
    """422 that names the conflict; the first job stays as it is and nothing new is recorded."""
    first = await site.accepted(panel("taken"), "taken")
    [job] = await site.ended(first)
    jobs = len(await site.ledger.group("jobs"))
    answer = await site.submit(panel("taken", "c"), "taken")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("key-conflict")
    assert await site.job(first) == job
    assert len(await site.ledger.group("jobs")) == jobs
    assert await site.requests("taken") == SEATS
