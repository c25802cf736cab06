"""Notifications on a running stack: real signatures, real receivers, real topics."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from google.pubsub_v1.types import ReceivedMessage, Subscription

from infra.local.emulators import EmulatorHosts
from infra.local.pubsub import open_channel, subscriber, subscription_path, topic_path
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until
from tests.receiver import OK, Received, Receiver, receiving, status

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD_SECRET = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW_SECRET = "whsec_" + base64.b64encode(b"n" * 32).decode()
CLAIM_AND_REPAIR_SECONDS = 90.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    environment = {
        "EMPANEL_WEBHOOK_ALLOW_LOOPBACK": "1",
        "EMPANEL_WEBHOOK_SECRETS": f"{NEW_SECRET},{OLD_SECRET}",
    }
    folder = tmp_path_factory.mktemp("notifications")
    async with open_site(emulator_hosts, folder, environment=environment) as running:
        yield running


async def ended(site: Site, label: str, url: str | None) -> Json:
    """Let a job with a webhook end; the job."""
    notify = {} if url is None else {"notify": {"url": url}}
    [job] = await site.ended(await site.accepted(panel(label, **notify)))
    return job


async def log_of(site: Site, job: Json, *states: str, timeout_seconds: float = 60.0) -> Json:
    """Wait until the job's notification is in one of the states; the notification."""
    name = f"{job['terminal']['decision_id']}.{job['run']}"
    return await until(
        lambda: site.read(f"/v1/notifications/{name}"),
        lambda seen: seen["state"] in states,
        what=f"the notification is {states}",
        timeout_seconds=timeout_seconds,
    )


async def test_a_receiver_gets_one_signed_call_and_sees_the_end(site: Site) -> None:
    """Inside the call it finds the job ended and the object there; the event says the same."""
    seen: list[tuple[Json, bytes]] = []

    async def ask(received: Received, writer: asyncio.StreamWriter) -> None:
        job = await site.job(json.loads(received.body)["data"]["job_id"])
        seen.append((job, await site.bucket.read(job["seats"][0]["output"]["uri"])))
        writer.write(OK)

    await listen(site, "one-call")
    async with receiving(ask) as receiver:
        job = await ended(site, "one-call", receiver.url)
        found = await log_of(site, job, "delivered")
        events = await pulled(site, "one-call", job)
        [received] = receiver.received
    received.verify(NEW_SECRET)
    received.verify(OLD_SECRET)
    [(inside, content)] = seen
    assert inside["state"] == inside["terminal"]["state"] == "succeeded"
    assert content
    assert received.headers["webhook-id"] == found["id"]
    assert json.loads(received.body) == {
        "type": "job.succeeded",
        "timestamp": job["terminal"]["completed_at"],
        "data": {
            "job_id": job["id"],
            "run": 1,
            "decision_id": job["terminal"]["decision_id"],
            "state": "succeeded",
        },
    }
    [event] = events
    assert event.message.data == received.body
    attributes = dict(event.message.attributes)
    assert attributes["ce-id"] == found["id"]
    assert (attributes["ce-specversion"], attributes["ce-type"]) == ("1.0", "job.succeeded")
    [delivery] = found["deliveries"]
    assert (delivery["outcome"], delivery["http_status"]) == ("delivered", 200)


async def test_a_failed_call_is_made_again_with_the_same_bytes(site: Site) -> None:
    """500, then 200; and once more when an operator asks: one ID, one body, fresh signatures."""
    async with receiving(status(500, body=b"SECRET")) as receiver:
        job = await ended(site, "twice", receiver.url)
        found = await log_of(site, job, "delivered")
        assert [d["http_status"] for d in found["deliveries"]] == [500, 200]
        assert "SECRET" not in json.dumps(found)
        again = await site.call("POST", f"/v1/notifications/{found['id']}/redeliver")
        assert again.status_code == 202, again.text
        await calls(receiver, 3)
        found = await log_of(site, job, "delivered")
    assert [d["number"] for d in found["deliveries"]] == [1, 2, 3]
    assert len({r.body for r in receiver.received}) == 1
    assert {r.headers["webhook-id"] for r in receiver.received} == {found["id"]}
    for received in receiver.received:
        received.verify(NEW_SECRET)


async def test_a_receiver_that_hangs_delays_no_other(site: Site) -> None:
    """Its job has ended, and another job's call is made and answered while it still hangs."""
    release = asyncio.Event()

    async def hang(_: Received, __: asyncio.StreamWriter) -> None:
        await release.wait()

    async with receiving(*[hang] * 20) as slow, receiving() as quick:
        stuck = [await ended(site, f"stuck-{n}", slow.url) for n in range(12)]
        await calls(slow, 8)
        job = await ended(site, "quick", quick.url)
        await log_of(site, job, "delivered", timeout_seconds=14)
        assert {job["state"] for job in stuck} == {"succeeded"}
        release.set()


@pytest.mark.long  # half a minute of waiting for the lease of a dead sender
async def test_a_sender_that_dies_is_followed_by_another(site: Site) -> None:
    """A kill while the receiver is answering: the call is made again under the same ID."""
    killed: list[int] = []

    async def kill(_: Received, __: asyncio.StreamWriter) -> None:
        killed.append(site.stack.kill("notify"))

    async with receiving(kill) as receiver:
        job = await ended(site, "killed", receiver.url)
        found = await log_of(site, job, "delivered", timeout_seconds=CLAIM_AND_REPAIR_SECONDS)
    await site.stack.restarted("notify", killed[0])
    assert [d["outcome"] for d in found["deliveries"]] == ["unknown", "delivered"]
    first, second = receiver.received
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == found["id"]


async def test_without_a_webhook_the_event_is_all(site: Site) -> None:
    """A job that names no receiver has its event published, and its notification delivered."""
    await listen(site, "no-webhook")
    job = await ended(site, "no-webhook", None)
    found = await log_of(site, job, "delivered")
    assert (found["url"], found["event_published"]) == (None, True)
    assert len(await pulled(site, "no-webhook", job)) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://169.254.169.254/",
        "https://[::ffff:10.0.0.1]/",
        "https://localhost/",
        "https://user@example.com/",
        "https://example.com:22/",
        "http://127.0.0.2:80/",
    ],
)
async def test_a_refused_address_stores_nothing(site: Site, url: str) -> None:
    """The answer points at /notify/url, and there is no job more than before."""
    before = len(await site.ledger.group("jobs"))
    response = await site.submit(panel("refused", notify={"url": url}))
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/notify/url"]
    assert len(await site.ledger.group("jobs")) == before


@pytest.mark.parametrize("name", ["dec_x.1", "dec_x", "..", "dec_x.1.1", "dec_x.-1", "x" * 300])
async def test_an_unknown_notification_is_404(site: Site, name: str) -> None:
    """Unknown names and names that none can have are answered alike, for both calls."""
    for method, path in (("GET", ""), ("POST", "/redeliver")):
        response = await site.call(method, f"/v1/notifications/{name}{path}")
        assert response.status_code == 404


async def test_a_foreign_notification_looks_like_an_unknown_one(site: Site) -> None:
    """Another tenant neither sees nor sends what is not its own; nothing of it changes."""
    key = "ek_other"
    digest = hashlib.sha256(key.encode()).hexdigest()
    fields = {"tenant": "other", "role": "operator", "name": "other"}
    await site.ledger.create("api_keys", digest, fields)
    found = await log_of(site, await ended(site, "foreign", None), "delivered")
    own, unknown = found["id"], found["id"].replace("dec_", "dec_a")
    for method, path in (("GET", ""), ("POST", "/redeliver")):
        answers = [
            await site.call(method, f"/v1/notifications/{name}{path}", api_key=key)
            for name in (own, unknown)
        ]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].content == answers[1].content
    assert await site.read(f"/v1/notifications/{own}") == found


async def calls(receiver: Receiver, count: int) -> None:
    """Wait until the receiver was called so often."""

    async def look() -> int:
        return len(receiver.received)

    await until(look, lambda n: n >= count, what=f"{count} calls", timeout_seconds=60)


async def listen(site: Site, name: str) -> None:
    """Subscribe to the events' topic."""
    info = site.stack.info
    assert info.pubsub is not None
    async with open_channel(info.pubsub) as channel:
        await subscriber(channel).create_subscription(
            request=Subscription(
                name=subscription_path(info.project, name),
                topic=topic_path(info.project, info.topics["events"]),
            )
        )


async def pulled(site: Site, name: str, job: Json) -> list[ReceivedMessage]:
    """Return the job's events: those that arrive until there is one, and what comes with it."""
    info = site.stack.info
    assert info.pubsub is not None
    request: dict[str, Any] = {
        "subscription": subscription_path(info.project, name),
        "max_messages": 100,
    }
    async with open_channel(info.pubsub) as channel, asyncio.timeout(30):
        while True:
            answer = await subscriber(channel).pull(request=request)
            own = [
                message
                for message in answer.received_messages
                if message.message.attributes.get("ce-subject") == job["id"]
            ]
            if own:
                return own
