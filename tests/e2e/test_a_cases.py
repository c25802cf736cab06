"""A: slow, broken and lost answers over real sockets, and the requests that they cost."""

import asyncio
import base64
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from functions.dispatch import SeatMessage, encode
from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, dumped, open_site, panel
from tests.stub import RequestRecord, Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_SECONDS = 2
HEADER = "Idempotency-Key"
PROVIDERS = f"""
[providers.openai]
idempotency_header = "{HEADER}"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("a-cases")
    providers = folder / "providers.toml"
    providers.write_text(PROVIDERS)
    environment = {
        "EMPANEL_PROVIDER_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
        "EMPANEL_PROVIDERS": str(providers),
    }
    async with open_site(emulator_hosts, folder, environment=environment) as running:
        yield running


async def _ended(site: Site, body: Json, *rules: Rule) -> Json:
    """Script the provider, submit, and wait for the end."""
    await site.stub.script(*rules)
    [job] = await site.ended(await site.accepted(body))
    return job


async def _requests(site: Site, label: str) -> list[RequestRecord]:
    return [record for record in (await site.stub.stats()).requests if record.label == label]


async def _ends(site: Site, job: Json) -> list[tuple[str, str | None]]:
    return [(a["outcome"], a["code"]) for a in await site.attempts(job["id"])]


@pytest.mark.parametrize(
    ("label", "slow"),
    [
        ("drip", ScriptedResponse(fault="slow_drip", drip_seconds=0.1, drip_endless=True)),
        ("stall", ScriptedResponse(fault="stall_mid_body")),
        ("silence", ScriptedResponse(fault="never_answer")),
    ],
)
async def test_a26_an_answer_without_an_end_is_given_up(
    site: Site, label: str, slow: ScriptedResponse
) -> None:
    """At the deadline, however lively the connection is: closed, unknown, charged, asked again."""
    job = await _ended(site, panel(label, "a"), Rule(label=label, responses=(slow,)))
    assert job["state"] == "succeeded"
    assert await _ends(site, job) == [("unknown", "timeout"), ("succeeded", None)]
    assert job["usage"]["requests"] == 2
    first, second = await _requests(site, label)
    assert first.outcome == "client_gone"
    assert first.ended_monotonic is not None
    lasted_seconds = first.ended_monotonic - first.arrived_monotonic
    assert DEADLINE_SECONDS - 0.5 <= lasted_seconds <= DEADLINE_SECONDS + 2
    assert second.arrived_monotonic > first.ended_monotonic


@pytest.mark.parametrize(
    ("label", "cut"),
    [
        ("half", ScriptedResponse(fault="close_mid_body")),
        ("short", ScriptedResponse(fault="wrong_content_length")),
        ("nothing", ScriptedResponse(fault="close_before_answer")),
        ("garbage", ScriptedResponse(fault="garbage")),
    ],
)
async def test_a27_a_cut_answer_is_no_answer(site: Site, label: str, cut: ScriptedResponse) -> None:
    """Also where the text that did arrive is a whole verdict: unknown, charged, asked again."""
    job = await _ended(site, panel(label, "a"), Rule(label=label, responses=(cut,)))
    assert job["state"] == "succeeded"
    assert await _ends(site, job) == [("unknown", "connection_error"), ("succeeded", None)]
    assert (job["usage"]["requests"], len(await _requests(site, label))) == (2, 2)


async def test_a32_five_redeliveries_and_three_attempts_are_three_requests(site: Site) -> None:
    """The provider's own count and the record agree, whatever the transport repeats."""
    limited = ScriptedResponse(
        status=429, error_code="rate_limit_exceeded", headers={"retry-after": "0"}
    )
    await site.stub.script(Rule(label="again", always=limited))
    job = await site.accepted(panel("again", "a", policy={"max_attempts": 3}))
    [seat] = (await site.job(job))["seats"]
    token = site.stack.info.push_token
    body = _push(SeatMessage(job=job, run=1, seat=0, work_key=seat["work_key"]))
    pushed: list[httpx.Response] = list(
        await asyncio.gather(*(site.push(body, token) for _ in range(5)))
    )
    await site.ended(job)
    pushed.append(await site.push(body, token))
    assert [answer.status_code for answer in pushed] == [204] * 6
    assert len(await site.attempts(job)) == len(await _requests(site, "again")) == 3


def _push(seat: SeatMessage) -> bytes:
    message = encode(seat)
    data = base64.b64encode(message.data).decode()
    return dumped({"message": {"data": data, "attributes": dict(message.attributes)}})


async def test_a33_a_timed_out_request_is_counted_and_sent_with_its_key(site: Site) -> None:
    """Two requests on record and charged; the header is there where the configuration names it."""
    slow = ScriptedResponse(delay_seconds=30)
    job = await _ended(site, panel("twice", "a"), Rule(label="twice", responses=(slow,)))
    assert job["state"] == "succeeded"
    assert await _ends(site, job) == [("unknown", "timeout"), ("succeeded", None)]
    assert job["usage"]["requests"] == 2
    for record in await _requests(site, "twice"):
        assert HEADER.lower() in {name.lower() for name in record.header_names}


async def test_a33_with_a_budget_of_one_a_lost_request_is_not_repeated(site: Site) -> None:
    """Nothing relies on the provider to answer the same request twice for one price."""
    slow = ScriptedResponse(delay_seconds=30)
    body = panel("once", "a", policy={"max_requests": 1})
    job = await _ended(site, body, Rule(label="once", responses=(slow,)))
    assert job["seats"][0]["error"]["code"] == "budget_exhausted"
    assert len(await _requests(site, "once")) == 1
