"""The books on a running stack: what was accepted, what came of it, what an operator reads."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("books")) as running:
        yield running


async def audited(site: Site) -> tuple[int, Json]:
    """Run an audit as the scheduler does."""
    url, token = site.stack.info.functions["reconcile"], site.stack.info.push_token
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        answer = await http.post(
            f"{url}/", params={"mode": "audit"}, headers={"Authorization": f"Bearer {token}"}
        )
    return answer.status_code, answer.json()


async def lose_object(site: Site, uri: str) -> None:
    """Delete an object behind Empanel's back."""
    info = site.stack.info
    name = uri.removeprefix(f"gs://{info.bucket}/")
    url = f"{info.storage}/storage/v1/b/{info.bucket}/o/{quote(name, safe='')}"
    response = await site.client.delete(url)
    assert response.is_success, response.text


async def test_a_window_shows_every_accepted_job(site: Site) -> None:
    """Three jobs that succeeded are three in the hour they were asked for, with nothing missing."""
    jobs = [await site.accepted(panel("counted", f"m{n}")) for n in range(3)]
    [job, *_] = await site.ended(*jobs)
    status, result = await audited(site)
    assert (status, result["complete"]) == (200, True)
    audit = await site.read(f"/v1/audits/{job['window']}")
    assert audit["population"] == sum(audit["counts"].values()) >= 3
    assert audit["missing_terminal"] == audit["missing_output"] == audit["orphan_outputs"] == []
    assert audit["attempts"] >= 3
    listed = (await site.read(f"/v1/audits?from={job['window']}"))["audits"]
    assert listed[0]["counts"] == audit["counts"]
    assert (await site.call("GET", "/v1/audits/2020-01-01T00")).status_code == 404
    assert (await site.call("GET", "/v1/audits?from=noon")).status_code == 400


async def test_a_lost_output_is_an_incident_until_an_operator_answers(site: Site) -> None:
    """The audit names job, seat and object; the incident is the job's owner's, and is resolved."""
    [job] = await site.ended(await site.accepted(panel("lost", "a", owner="catalog-team")))
    uri = job["seats"][0]["output"]["uri"]
    await lose_object(site, uri)
    await audited(site)
    audit = await site.read(f"/v1/audits/{job['window']}")
    [gap] = [gap for gap in audit["missing_output"] if gap["uri"] == uri]
    assert (gap["job_id"], gap["seat"]) == (job["id"], job["seats"][0]["seat"])
    incidents = (await site.read("/v1/incidents?status=open"))["incidents"]
    [incident] = [found for found in incidents if found["job_id"] == job["id"]]
    assert (incident["kind"], incident["owner"]) == ("output_missing", "catalog-team")
    assert incident["escalate_at"] > incident["opened_at"]
    path = f"/v1/incidents/{incident['id']}/resolve"
    assert (await site.call("POST", path, json={"note": ""})).status_code == 422
    answer = await site.call("POST", path, json={"note": "deleted by hand"})
    assert (answer.status_code, answer.json()["status"]) == (200, "resolved")
    left = (await site.read("/v1/incidents?status=open"))["incidents"]
    assert incident["id"] not in [found["id"] for found in left]
    unknown = await site.call("POST", "/v1/incidents/inc_0/resolve", json={"note": "x"})
    assert unknown.status_code == 404


async def test_one_consumer_acts_on_a_decision(site: Site) -> None:
    """The first holder gets 201, then 200 as often as it asks; any other is told whose it is."""
    [job] = await site.ended(await site.accepted(panel("decided", "a")))
    path = f"/v1/decisions/{job['decision_id']}/actions/publish"
    answers = [
        await site.call("PUT", path, json={"holder": holder}) for holder in ("me", "me", "you")
    ]
    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert [answer.json()["first"] for answer in answers] == [True, True, False]
    assert {answer.json()["holder"] for answer in answers} == {"me"}
    unknown = "/v1/decisions/dec_0/actions/publish"
    assert (await site.call("PUT", unknown, json={"holder": "me"})).status_code == 404
    assert (await site.call("PUT", path, json={"holder": 1})).status_code == 422


async def test_an_answer_can_wait_for_the_end(site: Site) -> None:
    """`Prefer: wait` answers 200 with the ended job, a request without it 202 at once."""
    asked = panel("waited", "a")
    answer = await site.call("POST", "/v1/jobs", json=asked, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
    assert answer.headers["preference-applied"] == "wait=60"
    plain = await site.call("POST", "/v1/jobs", json=panel("waited", "b"))
    assert plain.status_code == 202
