"""A provider in trouble, through real sockets: codes, requests, times and reports of a job."""

import hashlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.stub import RequestRecord, Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

KIBIBYTE = 1024
DEADLINE_SECONDS = 2
NEVER = ScriptedResponse(fault="never_answer")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("faults")) as running:
        yield running


async def _ended(site: Site, body: Json, *rules: Rule) -> Json:
    """Script the provider, submit, and wait for the end."""
    await site.stub.script(*rules)
    [job] = await site.ended(await site.accepted(body))
    return job


async def _ends(site: Site, job: Json) -> list[tuple[str, str | None, int | None]]:
    """Outcome, code and HTTP status of each attempt."""
    attempts = await site.attempts(job["id"])
    return [(a["outcome"], a["code"], a["http_status"]) for a in attempts]


async def _requests(site: Site, label: str) -> list[RequestRecord]:
    """The provider's records of one label, oldest first."""
    return [record for record in (await site.stub.stats()).requests if record.label == label]


async def test_a_refused_credential_fails_after_one_request(site: Site) -> None:
    """401 is permanent: the seat fails as `invalid_credential`, and nobody asks again."""
    rule = Rule(label="unauthorized", always=ScriptedResponse(status=401))
    job = await _ended(site, panel("unauthorized", "a"), rule)
    [seat] = job["seats"]
    assert (job["state"], job["terminal"]["state"], seat["state"]) == ("failed",) * 3
    assert seat["error"]["code"] == "invalid_credential"
    assert seat["error"]["retryable"] is False
    assert await _ends(site, job) == [("permanent", "invalid_credential", 401)]
    assert len(await _requests(site, "unauthorized")) == 1
    assert site.stub.api_key not in str(job)


async def test_a_used_up_quota_fails_after_one_request(site: Site) -> None:
    """A 429 that means "pay" is not waited for, unlike one that means "wait"."""
    answer = ScriptedResponse(status=429, error_code="insufficient_quota")
    job = await _ended(site, panel("quota", "a"), Rule(label="quota", always=answer))
    assert job["state"] == "failed"
    assert job["seats"][0]["error"]["code"] == "quota_exhausted"
    assert len(await _requests(site, "quota")) == 1


async def test_a_rate_limit_is_waited_for_as_long_as_the_provider_asks(site: Site) -> None:
    """429 with Retry-After: 1: two requests, the second not before the second is over."""
    answer = ScriptedResponse(status=429, headers={"retry-after": "1"})
    job = await _ended(site, panel("limited", "a"), Rule(label="limited", responses=(answer,)))
    assert job["state"] == "succeeded"
    assert await _ends(site, job) == [("retryable", "rate_limited", 429), ("succeeded", None, 200)]
    assert (await site.attempts(job["id"]))[0]["hint_seconds"] == 1
    first, second = await _requests(site, "limited")
    assert first.ended_monotonic is not None
    assert second.arrived_monotonic - first.ended_monotonic >= 1.0


@pytest.mark.parametrize(
    ("label", "answer", "end"),
    [
        ("busy", ScriptedResponse(status=503), ("retryable", "overloaded", 503)),
        ("broken", ScriptedResponse(status=500), ("retryable", "provider_error", 500)),
        (
            "reset",
            ScriptedResponse(fault="reset_before_answer"),
            ("unknown", "connection_error", None),
        ),
        ("half", ScriptedResponse(fault="close_mid_body"), ("unknown", "connection_error", None)),
        (
            "prose",
            ScriptedResponse(content="I would say 80."),
            ("invalid_output", "invalid_output", 200),
        ),
    ],
)
async def test_one_recoverable_fault_costs_one_more_request(
    site: Site, label: str, answer: ScriptedResponse, end: tuple[str, str, int | None]
) -> None:
    """One bad answer and then a good one: two attempts on record, two requests, success."""
    job = await _ended(site, panel(label, "a"), Rule(label=label, responses=(answer,)))
    assert job["state"] == "succeeded"
    assert await _ends(site, job) == [end, ("succeeded", None, 200)]
    assert len(await _requests(site, label)) == 2


async def test_two_unusable_answers_end_the_seat(site: Site) -> None:
    """No valid JSON twice: the seat fails as `invalid_output` after exactly two requests."""
    rule = Rule(label="babble", always=ScriptedResponse(content='{"score": 50'))
    job = await _ended(site, panel("babble", "a"), rule)
    assert job["state"] == "failed"
    assert job["seats"][0]["error"]["code"] == "invalid_output"
    assert await _ends(site, job) == [("invalid_output", "invalid_output", 200)] * 2
    assert len(await _requests(site, "babble")) == 2
    assert job["usage"]["output_tokens"] > 0


async def test_tries_are_spent_and_no_more(site: Site) -> None:
    """A provider that stays overloaded gets `max_attempts` requests and not one more."""
    rule = Rule(label="overloaded", always=ScriptedResponse(status=503))
    body = panel("overloaded", "a", policy={"max_attempts": 2})
    job = await _ended(site, body, rule)
    assert job["seats"][0]["error"]["code"] == "attempts_exhausted"
    assert len(await _ends(site, job)) == len(await _requests(site, "overloaded")) == 2


async def test_a_report_names_who_is_missing(site: Site) -> None:
    """One seat failed: 409 with its name; asked for the partial report, the rest is there."""
    rule = Rule(label="partial", model="b", always=ScriptedResponse(status=401))
    job = await _ended(site, panel("partial"), rule)
    assert job["state"] == "failed"
    path = f"/v1/jobs/{job['id']}/report"
    refused = await site.call("GET", path)
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    [missing] = refused.json()["missing"]
    assert (missing["seat"], missing["state"]) == ("openai/b", "failed")
    assert missing["code"] == "invalid_credential"
    assert missing["reason"]
    report = await site.read(f"{path}?partial=true")
    assert report["complete"] is False
    assert report["missing"] == [missing]
    assert [seat["seat"] for seat in report["seats"]] == ["openai/a"]
    assert (report["summary"]["n"], report["summary"]["of"]) == (1, 2)


async def test_enough_seats_succeed_though_one_fails(site: Site) -> None:
    """With `required_seats` 1 the job succeeds, and its report still is not called complete."""
    rule = Rule(label="enough", model="b", always=ScriptedResponse(status=401))
    job = await _ended(site, panel("enough", policy={"required_seats": 1}), rule)
    assert job["state"] == job["terminal"]["state"] == "succeeded"
    assert [seat["state"] for seat in job["seats"]] == ["succeeded", "failed"]
    assert (await site.call("GET", f"/v1/jobs/{job['id']}/report")).status_code == 409
    report = await site.read(f"/v1/jobs/{job['id']}/report?partial=true")
    assert report["complete"] is False
    assert [seat["seat"] for seat in report["missing"]] == ["openai/b"]


async def test_large_facts_are_kept_as_objects(site: Site) -> None:
    """Facts over 32 KiB go to the bucket under their digest, reach the model, and succeed."""
    text = "x" * (40 * KIBIBYTE)
    job = await _ended(site, panel("large", "a", facts={"stub-key": "large", "text": text}))
    assert job["state"] == "succeeded"
    inputs = (await site.ledger.get(f"jobs/{job['id']}")).data["inputs"]
    assert "facts" not in inputs
    content = await site.bucket.read(inputs["facts_object"])
    assert hashlib.sha256(content).hexdigest() == job["digests"]["facts"]
    assert inputs["facts_object"] == f"inputs/local/{job['digests']['facts']}"
    sent = [
        kept.body for kept in (await site.stub.stats(bodies=True)).bodies if kept.label == "large"
    ]
    assert len(sent) == 1
    assert text in str(sent[0]["messages"])


async def test_a_job_expires_at_its_deadline(site: Site) -> None:
    """A silent provider: the job ends `expired` in time, names its seats and hangs up."""
    body = panel("silent", policy={"deadline_seconds": DEADLINE_SECONDS})
    job = await _ended(site, body, Rule(label="silent", always=NEVER))
    assert job["state"] == job["terminal"]["state"] == "expired"
    stats = await site.stub.wait_for(lambda stats: stats.labels["silent"].client_gone == 2)
    assert stats.labels["silent"].requests == 2
    for record in await _requests(site, "silent"):
        assert record.ended_monotonic is not None
        assert record.ended_monotonic - record.arrived_monotonic < DEADLINE_SECONDS + 1
    report = await site.read(f"/v1/jobs/{job['id']}/report?partial=true")
    assert report["complete"] is False
    assert [(m["seat"], m["state"], m["code"]) for m in report["missing"]] == [
        ("openai/a", "expired", "deadline_exceeded"),
        ("openai/b", "expired", "deadline_exceeded"),
    ]
    assert await _ends(site, job) == [("canceled", "deadline_exceeded", None)] * 2
    assert (await site.job(job["id"]))["terminal"] == job["terminal"]


async def test_a_retry_that_would_come_after_the_deadline_ends_the_seat(site: Site) -> None:
    """A hint beyond the deadline ends the seat at once, with the time it would have been due."""
    answer = ScriptedResponse(status=429, headers={"retry-after": "600"})
    body = panel("too-late", "paused-for-long", policy={"deadline_seconds": 60})
    job = await _ended(site, body, Rule(label="too-late", always=answer))
    [seat] = job["seats"]
    assert (job["state"], seat["error"]["code"]) == ("failed", "rate_limited")
    assert seat["due_at"] is not None
    assert len(await _requests(site, "too-late")) == 1
