"""The local stack on the real emulators, with a stand-in for the functions."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.auth import jwt
from google.pubsub_v1.types import PubsubMessage, PushConfig, Subscription

from functions.core.access import key_hash
from infra.local.emulators import EmulatorHosts
from infra.local.errors import AlreadyRunning, ProcessFailed
from infra.local.info import StackInfo
from infra.local.options import StackOptions
from infra.local.pubsub import (
    open_channel,
    publisher,
    subscriber,
    subscription_path,
    topic_path,
)
from infra.local.stack import Stack

FUNCTION = Path(__file__).with_name("local_function.py")


@pytest.fixture
def options(emulator_hosts: EmulatorHosts, project: str, tmp_path: Path) -> StackOptions:
    return StackOptions(
        folder=tmp_path / ".local",
        project=project,
        model=False,
        embedded=False,
        emulators=emulator_hosts,
        serving=(sys.executable, str(FUNCTION)),
    )


class Probe:
    """Talks to one stand-in of a running stack."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = (await self._client.get(f"{self._url}/facts")).json()
        return facts

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while not condition(facts := await self.facts()):  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.02)
        return facts

    async def release(self) -> None:
        await self._client.post(f"{self._url}/release")


@asynccontextmanager
async def _probe(url: str) -> AsyncIterator[Probe]:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        yield Probe(client, url)


async def _publish(info: StackInfo, count: int = 1, **attributes: str) -> None:
    assert info.pubsub is not None
    async with open_channel(info.pubsub) as channel:
        await publisher(channel).publish(
            topic=topic_path(info.project, info.topics["evaluate"]),
            messages=[PubsubMessage(data=b"{}", attributes=attributes) for _ in range(count)],
        )


def _received(facts: dict[str, Any], count: int) -> bool:
    return len(facts["seen"]) >= count


async def test_a_message_reaches_its_function_as_a_push_delivery(options: StackOptions) -> None:
    """A published message arrives as the push envelope, with a token the function can verify."""
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        await _publish(stack.info, kind="seat")
        facts = await probe.until(lambda facts: _received(facts, 1))
        certificates = json.loads(stack.folder.certificates.read_text())
    (delivery,) = facts["seen"]
    token = delivery["headers"]["authorization"].removeprefix("Bearer ")
    audience = facts["environment"]["EMPANEL_PUSH_AUDIENCE"]
    claims = jwt.decode(token, certs=certificates, audience=audience)  # type: ignore[no-untyped-call]
    assert claims["email"] in facts["environment"]["EMPANEL_PUSH_ACCOUNTS"].split(",")
    assert delivery["body"]["message"]["attributes"] == {"kind": "seat"}
    assert delivery["body"]["deliveryAttempt"] == 1


async def test_the_envelope_has_the_shape_of_the_emulators_own_push(
    options: StackOptions,
) -> None:
    """The witness: what the emulator pushes has every field that the bridge sends, and no other.

    The bridge adds `deliveryAttempt`, which Pub/Sub sends and the emulator leaves out.
    """
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        info = stack.info
        await _push_without_bridge(info, f"{info.functions['evaluate']}/witness")
        await _publish(info, kind="seat")
        facts = await probe.until(lambda facts: _received(facts, 2))
    bodies = [delivery["body"] for delivery in facts["seen"][:2]]
    ours = next(body for body in bodies if body["subscription"].endswith("empanel-evaluate-push"))
    witness = next(body for body in bodies if body["subscription"].endswith("witness"))
    assert set(ours) == set(witness) | {"deliveryAttempt"}
    assert set(ours["message"]) == set(witness["message"])
    assert ours["message"]["data"] == witness["message"]["data"]
    assert ours["message"]["attributes"] == witness["message"]["attributes"]


async def _push_without_bridge(info: StackInfo, endpoint: str) -> None:
    assert info.pubsub is not None
    async with open_channel(info.pubsub) as channel:
        await subscriber(channel).create_subscription(
            request=Subscription(
                name=subscription_path(info.project, "witness"),
                topic=topic_path(info.project, info.topics["evaluate"]),
                push_config=PushConfig(push_endpoint=endpoint),
            )
        )


async def test_many_messages_are_in_flight_at_once(options: StackOptions) -> None:
    """96 deliveries wait in a function together, and the next ones follow as slots come free."""
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        await _publish(stack.info, 120, hold="1")
        facts = await probe.until(lambda facts: facts["in_flight"] == 96)
        assert len(facts["seen"]) == 96
        await probe.release()
        await probe.until(lambda facts: _received(facts, 120) and facts["in_flight"] == 0)


async def test_a_nacked_message_comes_again(options: StackOptions) -> None:
    """A 503 brings the message back with a higher attempt count; a good message is not lost."""
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        await _publish(stack.info, status="503")
        facts = await probe.until(lambda facts: _received(facts, 2))
    attempts = [delivery["body"]["deliveryAttempt"] for delivery in facts["seen"][:2]]
    assert attempts == [1, 2]


async def test_messages_in_flight_survive_a_killed_function(options: StackOptions) -> None:
    """kill -9 with 20 deliveries in flight: the successor gets all 20, and stack.json names it."""
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        await _publish(stack.info, 20, hold="1")
        await probe.until(lambda facts: facts["in_flight"] == 20)
        killed = stack.kill("evaluate", signal.SIGKILL)
        successor = await stack.restarted("evaluate", killed)
        await probe.until(lambda facts: facts["in_flight"] == 20)
        assert StackInfo.load(stack.folder.info).pids["evaluate"] == [successor]
        await probe.release()
        await probe.until(lambda facts: facts["in_flight"] == 0)


async def test_messages_wait_for_a_function_that_is_down(options: StackOptions) -> None:
    """During an outage nothing is pushed; afterwards all arrives, at the second attempt at most."""
    async with Stack(options) as stack, _probe(stack.info.functions["evaluate"]) as probe:
        await _publish(stack.info)
        await probe.until(lambda facts: _received(facts, 1))
        await stack.hold("evaluate")
        await _publish(stack.info, 30)
        await stack.release("evaluate")
        facts = await probe.until(lambda facts: _received(facts, 30))
    assert max(delivery["body"]["deliveryAttempt"] for delivery in facts["seen"]) <= 2


async def test_several_instances_share_the_messages(options: StackOptions) -> None:
    """With two evaluate processes the deliveries are spread evenly over both."""
    async with Stack(replace(options, evaluate_processes=2)) as stack:
        urls = stack.urls("evaluate")
        async with _probe(urls[0]) as first, _probe(urls[1]) as second:
            await _publish(stack.info, 20, hold="1")
            await first.until(lambda facts: facts["in_flight"] == 10)
            await second.until(lambda facts: facts["in_flight"] == 10)
            await first.release()
            await second.release()


async def test_the_scheduler_calls_reconcile(options: StackOptions) -> None:
    """Repair runs without anybody asking for it, with the scheduler's own identity."""
    async with Stack(options) as stack, _probe(stack.info.functions["reconcile"]) as probe:
        facts = await probe.until(lambda facts: _received(facts, 1))
    assert facts["seen"][0]["query"] == "mode=repair"
    assert facts["seen"][0]["headers"]["x-cloudscheduler-jobname"] == "empanel-repair"


async def test_the_file_of_facts_lives_as_long_as_the_stack(options: StackOptions) -> None:
    """stack.json is complete once the stack is up, and gone with it; the API key is recorded."""
    async with Stack(options) as stack:
        info = StackInfo.load(stack.folder.info)
        assert info == stack.info
        documents = f"projects/{info.project}/databases/(default)/documents"
        async with httpx.AsyncClient(trust_env=False) as client:
            for url in (info.api, *info.functions.values()):
                assert (await client.get(f"{url}/health")).status_code == 200
            bucket = await client.get(f"{info.storage}/storage/v1/b/{info.bucket}")
            key = await client.get(
                f"http://{info.firestore}/v1/{documents}/api_keys/{key_hash(info.api_key)}",
                headers={"Authorization": "Bearer owner"},
            )
        assert bucket.status_code == 200
        fields = key.json()["fields"]
        assert fields["tenant"] == {"stringValue": "local"}
        assert fields["role"] == {"stringValue": "operator"}
        assert set(fields) == {"v", "tenant", "role", "name", "created_at"}
    assert not stack.folder.info.exists()


async def test_two_stacks_do_not_share_a_checkout(options: StackOptions) -> None:
    """The second start is refused, and the first one does not notice."""
    async with Stack(options) as stack:
        with pytest.raises(AlreadyRunning):
            async with Stack(options):
                pass
        assert stack.folder.info.exists()


async def test_the_end_of_a_part_with_data_is_the_end_of_the_stack(options: StackOptions) -> None:
    """When the bucket's server dies, the work is cancelled and the error names the part."""
    async with Stack(options) as stack:
        os.kill(stack.info.parts["storage"], signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="storage ended"):
            await stack.run(asyncio.Event().wait())
    assert not stack.folder.info.exists()


async def test_emulators_that_the_stack_starts_end_with_it(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With emulators of its own, a stack leaves no process behind."""
    for variable in ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST"):
        monkeypatch.delenv(variable, raising=False)
    async with Stack(replace(options, emulators=None)) as stack:
        parts = stack.info.parts
        pids = [pid for processes in stack.info.pids.values() for pid in processes]
    assert set(parts) == {"firestore", "pubsub", "storage", "bridge"}
    pids += parts.values()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
