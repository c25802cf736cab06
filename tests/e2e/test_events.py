"""A job's events from a running stack: over real connections, through restarts and revoked keys."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from functions.cli.client import Api
from functions.cli.events import Event, read_events
from functions.cli.watching import watch
from functions.web.authentication import CACHE_SECONDS
from functions.web.permits import CHECK_SECONDS
from infra.local.emulators import EmulatorHosts
from tests.e2e.site import TERMINAL_STATES, Site, open_site, panel
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse
from tests.unit.test_cli import call

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACES = 3
PROMPT_SECONDS = 8.0  # for what happens at once, on a machine that is busy
ORDER = ["accepted", "running", "succeeded"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("events")
    environment = {"EMPANEL_TENANT_WAITS": str(PLACES)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("functions.cli.key_store.CHECKOUT", folder)
        async with open_site(emulator_hosts, folder, environment=environment) as running:
            await running.stub.script(
                Rule(label="held-*", always=ScriptedResponse(delay_seconds=300)),
                Rule(label="slow-*", model="b", always=ScriptedResponse(delay_seconds=2.5)),
            )
            yield running


@asynccontextmanager
async def connected(
    site: Site, job: str, *, last_event_id: str = "", api_key: str | None = None
) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[Event]]]:
    """A connection to a job's events: the answer's head, and the events as they come."""
    headers = {"Authorization": f"Bearer {api_key or site.stack.info.api_key}"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    url = f"{site.stack.info.api}/v1/jobs/{job}/events"
    async with (
        site.client.stream("GET", url, headers=headers) as answer,
        aclosing(read_events(answer.aiter_bytes())) as events,
    ):
        yield answer, events


async def first_of(events: AsyncIterator[Event]) -> Event:
    """The next event."""
    async with asyncio.timeout(PROMPT_SECONDS):
        return await anext(aiter(events))


async def rest_of(events: AsyncIterator[Event], within_seconds: float = 30.0) -> list[Event]:
    """All events until the stream has ended in order."""
    async with asyncio.timeout(within_seconds):
        return [event async for event in events]


async def held(site: Site, label: str) -> str:
    """A job that stays open until it is canceled."""
    return await site.accepted(panel(f"held-{label}", "a"))


async def test_the_states_come_as_they_happen_and_end(site: Site) -> None:
    """In order, each once, the first long before the last; the end is what GET shows."""
    job = await site.accepted(panel("slow-states", "a", "b"))
    began = time.monotonic()
    async with connected(site, job) as (answer, events):
        assert answer.status_code == 200
        assert answer.headers["transfer-encoding"] == "chunked"
        first = await first_of(events)
        waited = time.monotonic() - began
        told = [first, *await rest_of(events)]
    assert time.monotonic() - began > waited + 1.0
    states = [json.loads(event.data)["state"] for event in told]
    assert states == sorted(states, key=ORDER.index)
    assert states[-1] == "succeeded"
    assert len({event.identity for event in told}) == len(told)
    shown = await site.call("GET", f"/v1/jobs/{job}")
    assert (shown.headers["etag"], shown.content) == (told[-1].identity, told[-1].data)
    whole = await site.call("GET", f"/v1/jobs/{job}/events")
    assert whole.content.endswith(b"\ndata: " + shown.content + b"\n\n")
    known = {"Last-Event-ID": told[-1].identity}
    assert (await site.call("GET", f"/v1/jobs/{job}/events", headers=known)).status_code == 204
    assert (await site.call("HEAD", f"/v1/jobs/{job}/events")).status_code == 200


async def test_a_dropped_connection_is_resumed_without_repetition(site: Site) -> None:
    """What was told before the drop is not told after it."""
    job = await site.accepted(panel("slow-dropped", "a", "b"))
    async with connected(site, job) as (_, events):
        before = await first_of(events)
    async with connected(site, job, last_event_id=before.identity) as (_, events):
        after = await rest_of(events)
    assert before.identity not in {event.identity for event in after}
    assert json.loads(after[-1].data)["state"] == "succeeded"


async def test_a_tenants_places_are_counted_and_given_back(site: Site) -> None:
    """One too many is 429; a caller who leaves makes room within seconds."""
    job = await held(site, "places")
    path = f"/v1/jobs/{job}/events"
    leaving = connected(site, job)
    await first_of((await leaving.__aenter__())[1])
    async with connected(site, job) as (_, second), connected(site, job) as (_, third):
        await asyncio.gather(first_of(second), first_of(third))
        refused = await site.call("GET", path)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        await leaving.__aexit__(None, None, None)

        async def asked() -> int:
            async with connected(site, job) as (answer, _):
                return answer.status_code

        await until(asked, lambda status: status == 200, what="there is room", timeout_seconds=5)
        await site.call("POST", f"/v1/jobs/{job}/cancel")
        ends = await asyncio.gather(rest_of(second), rest_of(third))
    assert [json.loads(told[-1].data)["state"] for told in ends] == ["canceled", "canceled"]


async def test_a_process_that_ends_ends_its_streams_in_order(site: Site) -> None:
    """SIGTERM: at once and complete; the next process goes on where this one stopped."""
    job = await held(site, "restart")
    async with connected(site, job) as (_, events):
        told = await first_of(events)
        while json.loads(told.data)["state"] != "running":
            told = await first_of(events)
        killed = site.stack.kill("api", signal.SIGTERM)
        assert await rest_of(events, PROMPT_SECONDS) == []
    await site.stack.restarted("api", killed)
    async with connected(site, job, last_event_id=told.identity) as (_, events):
        await site.call("POST", f"/v1/jobs/{job}/cancel")
        after = await rest_of(events)
    assert told.identity not in {event.identity for event in after}
    assert json.loads(after[-1].data)["state"] == "canceled"


async def test_watch_needs_one_request(site: Site) -> None:
    """The command's way to follow a job: by its events, and no read beside them."""
    job = await site.accepted(panel("slow-watched", "a", "b"))
    paths: list[str] = []

    async def noted(request: httpx.Request) -> None:
        paths.append(request.url.path)

    headers = {"Authorization": f"Bearer {site.stack.info.api_key}"}
    async with httpx.AsyncClient(
        base_url=site.stack.info.api,
        headers=headers,
        trust_env=False,
        event_hooks={"request": [noted]},
    ) as http:
        states: list[str] = []
        received = await watch(Api(http), job, lambda shown: states.append(shown.state))
    assert received.value.state in TERMINAL_STATES
    assert paths == [f"/v1/jobs/{job}/events"]
    assert states[-1] == "succeeded"
    assert len(states) > 1


@pytest.mark.long
async def test_a_revoked_key_ends_its_stream(site: Site) -> None:
    """Within the time of the checks and of the ring's memory, while another key's goes on."""
    made = await _keys("create", "--tenant", "local", "--role", "submitter", "--name", "short")
    key, job = made.strip(), await held(site, "revoked")
    async with (
        connected(site, job, api_key=key) as (answer, events),
        connected(site, job) as (_, others),
    ):
        assert answer.status_code == 200
        await asyncio.gather(first_of(events), first_of(others))
        await _keys("revoke", "short")
        await rest_of(events, CHECK_SECONDS + CACHE_SECONDS + PROMPT_SECONDS)
        await site.call("POST", f"/v1/jobs/{job}/cancel")
        assert json.loads((await rest_of(others))[-1].data)["state"] == "canceled"


async def _keys(*args: str) -> str:
    """Run a `keys` command; what it prints."""
    result = await asyncio.to_thread(call, None, "keys", *args)
    assert result.exit_code == 0, result.stderr
    return str(result.stdout)
