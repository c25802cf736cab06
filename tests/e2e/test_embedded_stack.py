"""The embedded stack: the real functions in one process, where no emulator can be had."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from infra.local.errors import EmulatorsUnavailable, ProcessFailed, StackError
from infra.local.options import StackOptions
from infra.local.stack import Stack
from tests.e2e.site import TERMINAL_STATES, panel
from tests.e2e.waiting import until
from tests.receiver import receiving
from tests.stub import StubProvider


@pytest.fixture
def options(tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch) -> StackOptions:
    monkeypatch.delenv("EMPANEL_REQUIRE_EMULATORS", raising=False)
    return StackOptions(folder=tmp_path / ".local", project=project, model=False, embedded=True)


async def test_a_panel_runs_without_any_emulator(options: StackOptions) -> None:
    """A job is accepted, asked, stored and reported by the same functions, in one process."""
    async with (
        StubProvider() as stub,
        Stack(replace(options, environment=stub.environment)) as stack,
        httpx.AsyncClient(trust_env=False, timeout=30, base_url=stack.info.api) as client,
    ):
        client.headers["Authorization"] = f"Bearer {stack.info.api_key}"
        accepted = await client.post("/v1/jobs", json=panel("embedded"))
        path = accepted.headers["Location"]

        async def job() -> dict[str, str]:
            seen: dict[str, str] = (await client.get(path)).json()
            return seen

        await until(job, lambda seen: seen["state"] in TERMINAL_STATES, what="the job ends")
        report = await client.get(f"{path}/report")
        stats = await stub.stats()
    assert accepted.status_code == 202
    assert report.json()["complete"] is True
    assert stats.totals.requests == 2
    assert stack.info.embedded
    assert len({pid for pids in stack.info.pids.values() for pid in pids}) == 1


async def test_its_notifications_arrive_signed(options: StackOptions) -> None:
    """A receiver on loopback gets the call, signed by the secret that `stack.json` shows."""
    environment = {"EMPANEL_WEBHOOK_ALLOW_LOOPBACK": "1"}
    async with (
        receiving() as receiver,
        StubProvider() as stub,
        Stack(replace(options, environment={**stub.environment, **environment})) as stack,
        httpx.AsyncClient(trust_env=False, timeout=30, base_url=stack.info.api) as client,
    ):
        client.headers["Authorization"] = f"Bearer {stack.info.api_key}"
        body = panel("notified", notify={"url": receiver.url})
        accepted = await client.post("/v1/jobs", json=body)

        async def calls() -> int:
            return len(receiver.received)

        await until(calls, lambda count: count == 1, what="the receiver is called")
    assert accepted.status_code == 202
    receiver.received[0].verify(stack.info.webhook_secret)


async def test_its_push_targets_are_as_closed_as_the_real_ones(options: StackOptions) -> None:
    """Even in one process, `evaluate` and `reconcile` admit verified callers only."""
    async with (
        StubProvider() as stub,
        Stack(replace(options, environment=stub.environment)) as stack,
        httpx.AsyncClient(trust_env=False, timeout=30) as client,
    ):
        evaluate, reconcile = (stack.info.functions[name] for name in ("evaluate", "reconcile"))
        without = [await client.post(f"{url}/") for url in (evaluate, reconcile)]
        bad_key = await client.get(
            f"{stack.info.api}/v1/jobs", headers={"Authorization": "Bearer ek_wrong"}
        )
    assert [answer.status_code for answer in (*without, bad_key)] == [401, 401, 401]


async def test_its_end_is_the_end_of_the_stack(options: StackOptions) -> None:
    """The data went with the process, so nothing is started in its place."""
    async with (
        StubProvider() as stub,
        Stack(replace(options, environment=stub.environment)) as stack,
    ):
        with pytest.raises(StackError, match="process of their own"):
            stack.kill("api", signal.SIGKILL)
        os.kill(stack.info.parts["embedded"], signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="embedded ended"):
            await stack.run(asyncio.Event().wait())


async def test_missing_emulators_lead_to_it_by_themselves(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine with nothing but Python runs the stack, and says on what."""
    _hide_emulators(monkeypatch)
    async with StubProvider() as stub:
        chosen = replace(options, embedded=None, environment=stub.environment)
        async with Stack(chosen) as stack:
            assert stack.info.embedded
    assert "runs embedded" in caplog.text


async def test_demanded_emulators_are_never_replaced_by_it(
    options: StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI fails without emulators; it does not quietly test something else."""
    _hide_emulators(monkeypatch)
    monkeypatch.setenv("EMPANEL_REQUIRE_EMULATORS", "1")
    with pytest.raises(EmulatorsUnavailable):
        async with Stack(replace(options, embedded=None)):
            pass
    with pytest.raises(StackError, match="exclude each other"):
        async with Stack(options):
            pass


def _hide_emulators(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
