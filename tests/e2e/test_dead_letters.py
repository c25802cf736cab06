"""Dead letters on a running stack: what a topic gave up reaches an operator, and harms nothing."""

import base64
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from google.pubsub_v1.types import PubsubMessage

from functions.dead_letters import DELIVERIES, SUBSCRIPTION
from infra.local.emulators import EmulatorHosts
from infra.local.pubsub import open_channel, publisher, topic_path
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.stored import stored
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse

SOURCE = {SUBSCRIPTION: "empanel-evaluate-push", DELIVERIES: "100"}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("letters")) as running:
        yield running


async def bury(site: Site, data: bytes) -> None:
    """Publish to the dead-letter topic, as Pub/Sub does with what it gave up."""
    info = site.stack.info
    assert info.pubsub is not None
    message = PubsubMessage(data=data, attributes=SOURCE)
    async with open_channel(info.pubsub) as channel:
        await publisher(channel).publish(
            topic=topic_path(info.project, info.topics["dead_letter"]), messages=[message]
        )


def seat_message(job: Json) -> bytes:
    """The message of the job's first seat."""
    return json.dumps(
        {"v": 1, "job": job["id"], "run": 1, "seat": 0, "work_key": job["seats"][0]["work_key"]}
    ).encode()


async def incidents(site: Site) -> list[Json]:
    """The open incidents, as the stack's operator is shown them."""
    found: list[Json] = (await site.read("/v1/incidents?status=open"))["incidents"]
    return found


async def test_a_message_of_an_open_job_is_told_to_its_owner(site: Site) -> None:
    """The incident names job, seat and subscription; the job itself goes on to its end."""
    refusal = ScriptedResponse(status=429, headers={"retry-after": "8"})
    await site.stub.script(Rule(label="given-up", responses=(refusal,)))
    job_id = await site.accepted(panel("given-up", "a", owner="catalog-team"))
    await bury(site, seat_message(await site.job(job_id)))
    found = await until(
        lambda: incidents(site),
        lambda seen: any(one["job_id"] == job_id for one in seen),
        what="the incident is shown",
    )
    [incident] = [one for one in found if one["job_id"] == job_id]
    assert (incident["kind"], incident["owner"]) == ("dead_letter", "catalog-team")
    assert incident["seat"] == "openai/a"
    assert incident["message"]["subscription"] == SOURCE[SUBSCRIPTION]
    assert incident["message"]["preview"] is None
    [job] = await site.ended(job_id)
    assert job["state"] == "succeeded"


async def test_a_message_of_a_finished_job_changes_nothing(site: Site) -> None:
    """Acknowledged, and every record, incident and request is as it was."""
    [job] = await site.ended(await site.accepted(panel("finished", "a")))
    before, requests = await stored(site), await site.requests("finished")
    data = base64.b64encode(seat_message(job)).decode()
    info = site.stack.info
    answer = await site.client.post(
        f"{info.functions['dead_letter']}/",
        headers={"Authorization": f"Bearer {info.push_token}"},
        json={"message": {"data": data, "attributes": SOURCE, "messageId": "m1"}},
    )
    assert answer.status_code == 204
    assert await stored(site) == before
    assert await site.requests("finished") == requests == 1
    assert await site.job(job["id"]) == job


async def test_a_message_nobody_can_read_is_shown_to_the_operator(site: Site) -> None:
    """It belongs to no tenant; the local stack's operator sees and resolves it all the same."""
    await bury(site, b"not json")
    found = await until(
        lambda: incidents(site),
        lambda seen: any(one["job_id"] is None for one in seen),
        what="the incident is shown",
    )
    [incident] = [one for one in found if one["job_id"] is None]
    assert (incident["kind"], incident["owner"]) == ("dead_letter", "operator")
    assert incident["message"]["subscription"] == SOURCE[SUBSCRIPTION]
    assert incident["message"]["preview"] == "not json"
    answer = await site.call(
        "POST", f"/v1/incidents/{incident['id']}/resolve", json={"note": "a test's"}
    )
    assert answer.status_code == 200
    assert incident["id"] not in [one["id"] for one in await incidents(site)]
