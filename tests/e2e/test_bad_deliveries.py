"""Deliveries that nobody can work on: acknowledged, recorded once, and nothing is invented."""

import base64
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from google.pubsub_v1.types import PubsubMessage

from infra.local.bridge import Plan
from infra.local.emulators import EmulatorHosts
from infra.local.pubsub import open_channel, publisher, topic_path
from infra.local.tokens import SigningKey, issue_token, new_signing_key
from tests.e2e.site import Json, Site, dumped, open_site, panel
from tests.e2e.stored import Stored, stored
from tests.e2e.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1_000_000
UNKNOWN_JOB = "job_" + "2" * 32
UNKNOWN_KEY = "0" * 64


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("deliveries")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(site: Site) -> Json:
    """A job that is over."""
    [ended] = await site.ended(await site.accepted(panel("delivered")))
    return ended


def _envelope(data: bytes | str, /, **changes: Json) -> bytes:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    message = {
        "messageId": "m1",
        "publishTime": "2026-03-02T10:00:00Z",
        "attributes": {"job": "j1", "seat": "0"},
        "data": text,
        **changes,
    }
    return dumped({"message": message, "subscription": "projects/p/subscriptions/s"})


def _seat(**changes: Json) -> bytes:
    """A message of the right form for a job that does not exist, changed."""
    known = {"v": 1, "job": UNKNOWN_JOB, "run": 1, "seat": 0, "work_key": UNKNOWN_KEY}
    return _envelope(dumped({**known, **changes}))


UNREADABLE = {
    # Envelopes that Pub/Sub would never send, from reports of other projects.
    "prose": b"not json",
    "empty object": b"{}",
    "null message": b'{"message":null}',
    "data is no base64": _envelope("###notb64###"),
    "data is no UTF-8": _envelope("//4="),
    "another project's message": _envelope(b'{"job_id": "j1"}'),
    "a path for a job": _envelope(b'{"job_id": "../x", "seat": "a"}'),
    "no data": b'{"message": {"messageId": "m1", "attributes": {}}}',
    # Wrong shapes of the envelope.
    "no bytes": b"",
    "null": b"null",
    "array": b"[]",
    "message is a list": b'{"message": []}',
    "data is a number": _envelope("", data=5),
    "data is null": _envelope("", data=None),
    "data is not ASCII": _envelope("", data="\u0664\ud800"),
    "attributes are a list": _envelope(b"{}", attributes=["job"]),
    "ID is an object": _envelope(b"{}", messageId={"a": 1}),
    "ID is huge": _envelope(b"{}", messageId="m" * MEGABYTE),
    "not UTF-8": b'{"message": "\xff"}',
    "UTF-16": '{"message": {}}'.encode("utf-16"),
    "NUL bytes": b"\x00" * 100,
    "100,000 levels": b"[" * 100_000,
    "100,000 levels in the data": _envelope(b"[" * 100_000),
    "9 MB of one letter": b"x" * 9 * MEGABYTE,
    "9 MB of data": _envelope(b" " * 9 * MEGABYTE),
    # Wrong values in the message.
    "data is an array": _envelope(b"[]"),
    "data is NaN": _envelope(b"NaN"),
    "unknown version": _seat(v=2),
    "version is true": _seat(v=True),
    "job is null": _seat(job=None),
    "job is empty": _seat(job=""),
    "job is a path": _seat(job="a/b/c"),
    "job is a name that Firestore reserves": _seat(job="__job__"),
    "job has 5000 characters": _seat(job="j" * 5000),
    "job is not ASCII": _seat(job="jöb"),
    "work key is a path": _seat(work_key="../../jobs/x"),
    "work key is a name that Firestore reserves": _seat(work_key="__x__"),
    "work key has 5000 characters": _seat(work_key="0" * 5000),
    "run is 0": _seat(run=0),
    "run is text": _seat(run="1"),
    "run is true": _seat(run=True),
    "seat is negative": _seat(seat=-1),
    "seat is 0.5": _seat(seat=0.5),
    "seat is 10^30": _seat(seat=10**30),
    "seat has 5000 digits": _envelope(
        b'{"v":1,"job":"j","run":1,"work_key":"k","seat":' + b"9" * 5000 + b"}"
    ),
    "unknown job": _seat(),
}


async def _pushed(site: Site, body: bytes) -> tuple[Stored, Stored, Json]:
    """Deliver a body twice; what was stored before and after, and the incident it made."""
    before = await stored(site)
    for _ in range(2):
        answer = await site.push(body, site.stack.info.push_token)
        assert answer.status_code == 204, answer.text
    after = await stored(site)
    [incident] = after.incidents - before.incidents
    return before, after, (await site.ledger.get(incident)).data


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_delivery_nobody_can_work_on_is_one_incident(site: Site, body: bytes) -> None:
    """Acknowledged with 204 each time it comes, on record once, and no record is invented."""
    before, after, incident = await _pushed(site, body)
    assert after.without_incidents() == before.without_incidents()
    assert incident["kind"] == "unreadable_message"
    assert incident["status"] == "open"
    assert incident["digest"] == hashlib.sha256(body).hexdigest()
    assert incident["owner"]
    assert incident["detail"]


WRONG = {
    "seat beyond the panel": {"seat": 2},
    "another seat's work key": {"seat": 1},
    "unknown work key": {"work_key": UNKNOWN_KEY},
    "a run that was never asked for": {"run": 2},
    "run 10^30": {"run": 10**30},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG.keys())
async def test_a_delivery_that_contradicts_its_job_is_one_incident(
    site: Site, job: Json, changes: Json
) -> None:
    """A seat, run or work key that the job does not have is recorded; the job stays as it is."""
    work_key = job["seats"][0]["work_key"]
    requests = await site.requests("delivered")
    body = _seat(**{"job": job["id"], "work_key": work_key, **changes})
    before, after, incident = await _pushed(site, body)
    assert after.without_incidents() == before.without_incidents()
    assert incident["digest"] == hashlib.sha256(body).hexdigest()
    assert await site.job(job["id"]) == job
    assert await site.requests("delivered") == requests


async def test_a_delivery_of_an_ended_seat_changes_nothing(site: Site, job: Json) -> None:
    """The right message, late and twice, is acknowledged without an incident or a request."""
    requests = await site.requests("delivered")
    before = await stored(site)
    body = _seat(job=job["id"], work_key=job["seats"][0]["work_key"])
    for _ in range(2):
        assert (await site.push(body, site.stack.info.push_token)).status_code == 204
    assert await stored(site) == before
    assert await site.job(job["id"]) == job
    assert await site.requests("delivered") == requests


async def test_an_unreadable_message_on_the_topic_is_recorded_and_does_not_come_again(
    site: Site,
) -> None:
    """Published for real, it becomes one incident, and the good work behind it is done."""
    before = (await stored(site)).incidents
    info = site.stack.info
    assert info.pubsub is not None
    async with open_channel(info.pubsub) as channel:
        await publisher(channel).publish(
            topic=topic_path(info.project, info.topics["evaluate"]),
            messages=[PubsubMessage(data=b"\xff\xfe no seat of ours")],
        )
    [behind] = await site.ended(await site.accepted(panel("behind")))
    assert behind["state"] == "succeeded"
    after = await until(
        lambda: stored(site), lambda seen: seen.incidents > before, what="an incident is opened"
    )
    assert len(after.incidents - before) == 1


async def test_without_a_token_a_delivery_is_refused(site: Site) -> None:
    """401, and nothing is stored."""
    before = await stored(site)
    assert (await site.push(_seat(), None)).status_code == 401
    assert await stored(site) == before


def _resigned(key: SigningKey) -> SigningKey:
    """Another key pair under the name of the right one."""
    return dataclasses.replace(new_signing_key(), key_id=key.key_id)


def _issued(
    key: SigningKey, plan: Plan, *, audience: str = "", account: str = "", seconds: int = 3600
) -> str:
    return issue_token(
        key,
        audience=audience or plan.audience,
        account=account or plan.account,
        lifetime_seconds=seconds,
    )


def _unsigned(plan: Plan) -> str:
    """The right claims with `alg` none and no signature."""
    claims = _issued(plan.key, plan).split(".")[1]
    header = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
    return f"{header}.{claims}."


WRONG_TOKENS: dict[str, Callable[[Plan], str]] = {
    "no token at all": lambda plan: "nonsense",
    "three parts of nonsense": lambda plan: "a.b.c",
    "unsigned": _unsigned,
    "of another key": lambda plan: _issued(new_signing_key(), plan),
    "of another key under the right name": lambda plan: _issued(_resigned(plan.key), plan),
    "for another audience": lambda plan: _issued(plan.key, plan, audience="https://example.com"),
    "of another account": lambda plan: _issued(
        plan.key, plan, account="x@y.iam.gserviceaccount.com"
    ),
    "expired": lambda plan: _issued(plan.key, plan, seconds=-3600),
}


@pytest.mark.parametrize("forge", WRONG_TOKENS.values(), ids=WRONG_TOKENS.keys())
async def test_with_a_wrong_token_a_delivery_is_refused(
    site: Site, forge: Callable[[Plan], str]
) -> None:
    """403, and nothing is stored: not even a message that would have been an incident."""
    token = forge(Plan.load(site.stack.folder.bridge_plan))
    before = await stored(site)
    for body in (_seat(), b"not json"):
        assert (await site.push(body, token)).status_code == 403
    assert await stored(site) == before


async def test_the_api_key_opens_no_push_target(site: Site) -> None:
    """An operator's key is no identity token."""
    assert (await site.push(_seat(), site.stack.info.api_key)).status_code == 403
