"""Replay and purge over HTTP, on the emulators: what is bought again, what is gone, what stays."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED = ScriptedResponse(status=400)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("ended")) as running:
        yield running


async def partial(site: Site, label: str) -> Json:
    """A job that has ended with one answer of two; from now on both models answer."""
    await site.stub.script(Rule(label=label, model="b", always=REFUSED))
    [job] = await site.ended(await site.accepted(panel(label, policy={"required_seats": 1})))
    await site.stub.script()
    return job


async def test_a_replay_buys_only_the_open_seats(site: Site) -> None:
    """The failed seat is asked once more, the other not; the report is complete afterwards."""
    job = await partial(site, "replay")
    path = f"/v1/jobs/{job['id']}"
    incomplete = await site.call("GET", f"{path}/report")
    assert incomplete.status_code == httpx.codes.CONFLICT
    answer = await site.call("POST", f"{path}/replay")
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    assert (answer.json()["run"], answer.json()["id"]) == (2, job["id"])
    [after] = await site.ended(job["id"])
    assert (after["run"], after["state"], after["terminal"]["run"]) == (2, "succeeded", 2)
    assert after["decision_id"] == job["decision_id"]
    assert after["seats"][0]["output"] == job["seats"][0]["output"]
    assert await site.requests("replay") == 3
    report = await site.read(f"{path}/report")
    assert (report["complete"], report["run"]) == (True, 2)
    runs = [(a["run"], a["seat"]) for a in await site.attempts(job["id"])]
    assert sorted(runs) == [(1, "openai/a"), (1, "openai/b"), (2, "openai/b")]
    again = await site.call("POST", f"{path}/replay")
    assert again.status_code == httpx.codes.CONFLICT
    assert "every seat" in again.json()["detail"]
    first = await site.ledger.get(f"jobs/{job['id']}/terminals/1")
    assert first.data["seats"][1]["state"] == "failed"


async def test_open_and_unknown_jobs_are_neither_replayed_nor_purged(site: Site) -> None:
    """409 while a job is open, 404 for one that is not the tenant's."""
    await site.stub.script(Rule(label="open", always=ScriptedResponse(fault="never_answer")))
    job = await site.accepted(panel("open"))
    for method, path in (("POST", f"/v1/jobs/{job}/replay"), ("DELETE", f"/v1/jobs/{job}")):
        assert (await site.call(method, path)).status_code == httpx.codes.CONFLICT
        unknown = path.replace(job, "job_unknown")
        assert (await site.call(method, unknown)).status_code == httpx.codes.NOT_FOUND
    await site.call("POST", f"/v1/jobs/{job}/cancel")
    await site.stub.script()


async def test_a_canceled_job_can_be_replayed_at_once(site: Site) -> None:
    """The replay waits for the calls that the cancel cuts, and its run succeeds."""
    await site.stub.script(Rule(label="stopped", always=ScriptedResponse(fault="never_answer")))
    job = await site.accepted(panel("stopped"))
    await until(
        lambda: site.requests("stopped"),
        lambda sent: sent == 2,
        what="both seats are asked",
        timeout_seconds=30,
    )
    assert (await site.call("POST", f"/v1/jobs/{job}/cancel")).status_code == httpx.codes.OK
    await site.stub.script()
    answer = await site.call("POST", f"/v1/jobs/{job}/replay")
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    [after] = await site.ended(job)
    assert (after["run"], after["state"]) == (2, "succeeded")
    assert [a["outcome"] for a in await site.attempts(job)].count("canceled") == 2


async def test_a_purged_question_is_bought_again(site: Site) -> None:
    """Inputs and answers are gone, a late upload too; the same question is asked anew."""
    [job] = await site.ended(await site.accepted(panel("purge")))
    [sharing] = await site.ended(await site.accepted(panel("purge"), "sharing"))
    path = f"/v1/jobs/{job['id']}"
    answer = await site.call("DELETE", path)
    assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    names = [seat["output"]["uri"].split("/", 3)[-1] for seat in job["seats"]]
    assert not await site.bucket.names() & set(names)
    assert (await site.call("GET", f"{path}/report")).status_code == httpx.codes.GONE
    assert (await site.call("POST", f"{path}/replay")).status_code == httpx.codes.GONE
    shown = await site.job(job["id"])
    assert shown["purged_at"] is not None
    assert shown["digests"] == job["digests"]
    stored = await site.ledger.get(f"jobs/{job['id']}")
    assert stored.data["inputs"] == {}
    report = await site.read(f"/v1/jobs/{sharing['id']}/report?partial=true")
    reasons = [(m["code"], m["reason"]) for m in report["missing"]]
    assert reasons == [("output_missing", "purged")] * 2
    [later] = await site.ended(await site.accepted(panel("purge"), "later"))
    assert later["state"] == "succeeded"
    assert await site.requests("purge") == 4
    await _upload(site, names[0])
    await _look_now(site, job["id"])
    await until(
        site.bucket.names,
        lambda there: names[0] not in there,
        what="the late upload is deleted",
        timeout_seconds=30,
    )
    assert (await site.read(f"/v1/jobs/{later['id']}/report"))["complete"] is True


async def _upload(site: Site, name: str) -> None:
    """Store an object as a call would that outlived everything."""
    info = site.stack.info
    response = await site.client.post(
        f"{info.storage}/upload/storage/v1/b/{info.bucket}/o?uploadType=media&name={quote(name)}",
        content=b"{}",
    )
    response.raise_for_status()


async def _look_now(site: Site, job: str) -> None:
    """Let repair's next look at a job come now."""
    info = site.stack.info
    documents = f"http://{info.firestore}/v1/projects/{info.project}/databases/(default)/documents"
    response = await site.client.patch(
        f"{documents}/jobs/{job}?updateMask.fieldPaths=check_at",
        headers={"Authorization": "Bearer owner"},
        json={"fields": {"check_at": {"timestampValue": "2020-01-01T00:00:00Z"}}},
    )
    response.raise_for_status()
