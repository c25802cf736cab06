"""Every drill on a running stack: what it reports, and what the ledger says past every line of it.

All drills but one run at the same time on one stack; the one that kills the stack's own processes
refuses while other jobs are open, and so runs after them.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from functions.cli import app, drill_command
from functions.drill.catalog import BY_NAME, DRILLS
from functions.drill.deployment import DrillRefused, read_stack
from functions.drill.injected import Injected
from functions.drill.running import Account, chosen, run_one
from functions.drill.site import Asked, open_site
from functions.drill.site import Site as DrillSite
from functions.providers.presets import provider_variables
from infra.local.emulators import EmulatorHosts
from tests.e2e.records import Document
from tests.e2e.site import Json, Site, panel
from tests.e2e.site import open_site as open_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAST = "killed-evaluate"
TOGETHER = [drill.name for drill in DRILLS if drill.name != LAST]
STACK_SECONDS = 0.4  # what a call takes, so that a kill finds some in flight


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("drills")
    async with open_stack(emulator_hosts, folder, latency_seconds=STACK_SECONDS) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(stack: Site) -> AsyncIterator[DrillSite]:
    deployment = read_stack(stack.stack.folder.info)
    asked = Asked(provider="openai", model="drilled")
    async with open_site(deployment, asked, patience_seconds=240) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accounts(site: DrillSite) -> dict[str, Account]:
    """The accounts of all drills that can run side by side."""
    made = await asyncio.gather(*(run_one(site, BY_NAME[name]) for name in TOGETHER))
    return dict(zip(TOGETHER, made, strict=True))


@pytest.mark.parametrize("name", TOGETHER)
async def test_a_drill_is_accounted_for(accounts: dict[str, Account], name: str) -> None:
    """The books say exactly what the drill has done: every promise is kept."""
    view = accounts[name].view()
    assert view["error"] is None
    assert [check for check in view["checks"] if not check["kept"]] == []
    assert view["accounted"] is True


async def _documents(stack: Site, collection: str, job: str) -> list[Document]:
    return [
        found
        for found in await stack.ledger.group(collection)
        if found.data.get("job") == job or f"/{job}/" in f"/{found.path}/"
    ]


async def _attempts(stack: Site, job: str) -> Counter[str]:
    """How the attempts on the job's seat records ended."""
    seats = await _documents(stack, "seats", job)
    return Counter(
        attempt["outcome"] for seat in seats for attempt in seat.data.get("attempts", [])
    )


async def _on_record(stack: Site, account: Account) -> tuple[list[str], Counter[str], list[str]]:
    """The states of terminal records, the repairs by kind, and the incidents of a drill's jobs."""
    terminals, repairs, incidents = [], Counter[str](), []
    for job in account.jobs:
        terminals += [str(d.data["state"]) for d in await _documents(stack, "terminals", job)]
        repairs.update(str(d.data["kind"]) for d in await _documents(stack, "repairs", job))
        incidents += [str(d.data["kind"]) for d in await _documents(stack, "incidents", job)]
    return terminals, repairs, incidents


async def test_a_lost_dispatch_is_on_record(stack: Site, accounts: dict[str, Account]) -> None:
    """The ledger holds one terminal record, one attempt, and the repair that brought it about."""
    account = accounts["lost-dispatch"]
    terminals, repairs, incidents = await _on_record(stack, account)
    assert (terminals, incidents) == (["succeeded"], [])
    assert repairs["dispatched"] >= 1
    assert await _attempts(stack, account.jobs[0]) == {"succeeded": 1}


async def test_a_lost_notification_is_delivered_in_the_end(
    stack: Site, accounts: dict[str, Account]
) -> None:
    """The notification is delivered, and its repair is on record."""
    account = accounts["lost-notification"]
    [told] = await _documents(stack, "notifications", account.jobs[0])
    assert told.data["delivered"] is True
    assert (await _on_record(stack, account))[1]["announced"] >= 1


@pytest.mark.parametrize("name", ["lost-upload", "lost-notification-and-upload"])
async def test_a_lost_upload_stays_open(
    stack: Site, accounts: dict[str, Account], name: str
) -> None:
    """The object is gone, its incident is open, and the account names both as what stays."""
    account = accounts[name]
    [job] = await stack.ended(*account.jobs)
    uri = job["seats"][0]["output"]["uri"]
    assert uri.split("/", 3)[-1] not in await stack.bucket.names("outputs/")
    [incident] = await _documents(stack, "incidents", job["id"])
    assert (incident.data["kind"], incident.data["status"]) == ("output_missing", "open")
    view = account.view()
    assert view["open"]["gaps"] == [f"missing_output: {job['id']} seat-0"]
    assert [shown["id"] for shown in view["open"]["incidents"]] == [incident.path.split("/")[1]]


async def test_duplicates_buy_nothing(stack: Site, accounts: dict[str, Account]) -> None:
    """Two seats, delivered eleven times each, came to two attempts and one terminal record."""
    account = accounts["duplicate-deliveries"]
    terminals, _, incidents = await _on_record(stack, account)
    assert (terminals, incidents) == (["succeeded"], [])
    assert await _attempts(stack, account.jobs[0]) == {"succeeded": 2}


async def test_two_routes_have_one_holder(stack: Site, accounts: dict[str, Account]) -> None:
    """One action is on record for the decision, and two runs have ended."""
    account = accounts["two-routes"]
    terminals, _, _ = await _on_record(stack, account)
    assert terminals == ["succeeded", "succeeded"]
    decision = (await stack.job(account.jobs[0]))["decision_id"]
    actions = [a for a in await stack.ledger.group("actions") if f"/{decision}/" in a.path]
    assert len(actions) == 1


async def test_two_holders_buy_once(stack: Site, accounts: dict[str, Account]) -> None:
    """Of three contenders for a seat one has made an attempt."""
    account = accounts["two-holders"]
    assert await _attempts(stack, account.jobs[0]) == {"succeeded": 1}


@pytest.mark.parametrize("name", ["killed-after-answer", "late-result"])
async def test_what_a_dead_or_frozen_worker_asked_is_unknown(
    stack: Site, accounts: dict[str, Account], name: str
) -> None:
    """Each job has one terminal record, an attempt that is unknown, and one that succeeded."""
    account = accounts[name]
    terminals, repairs, incidents = await _on_record(stack, account)
    assert terminals == ["succeeded"] * len(account.jobs)
    assert incidents == []
    assert repairs["woken"] >= len(account.jobs)
    for job in account.jobs:
        assert await _attempts(stack, job) == {"unknown": 1, "succeeded": 1}
        assert f"attempts without an answer on record: 1 of {job}" in account.view()["found"]


async def test_killing_the_stack_is_accounted_for(
    stack: Site, site: DrillSite, accounts: dict[str, Account]
) -> None:
    """The stack's processes are others than before, and every request they made is on record."""
    before = stack.stack.info.pids["evaluate"]
    await stack.stub.reset()
    account = await run_one(site, BY_NAME[LAST])
    assert [check for check in account.view()["checks"] if not check["kept"]] == []
    assert account.accounted
    assert not set(before) & set(stack.stack.info.pids["evaluate"])
    made = sum([await _attempts(stack, job) for job in account.jobs], Counter[str]())
    assert made["succeeded"] == 4 * len(account.jobs)
    sent = (await stack.stub.stats(requests=False)).totals.requests
    assert made["succeeded"] <= sent <= made.total()


async def test_a_kill_waits_for_the_jobs_of_others(stack: Site, site: DrillSite) -> None:
    """While somebody else's job is open nothing is killed, and the drill says why."""
    before = stack.stack.info.pids["evaluate"]
    other = await stack.accepted(panel("others", *(f"m{n}" for n in range(40))))
    account = await run_one(site, BY_NAME[LAST])
    assert "other jobs are open" in (account.error or "")
    assert account.accounted is False
    assert stack.stack.info.pids["evaluate"] == before
    await stack.ended(other)


async def test_a_broken_promise_ends_with_1(
    stack: Site, accounts: dict[str, Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one object more is gone than the drill says, the command says so and ends with 1."""
    drill = BY_NAME["lost-upload"]

    async def lose_both(site: DrillSite) -> Injected:
        injected = await drill.inject(site)
        [job] = await site.ended(*injected.jobs)
        await site.lose_object(job["seats"][1]["output"])
        return injected

    monkeypatch.setitem(BY_NAME, drill.name, replace(drill, inject=lose_both))
    code, view = await _command(stack, monkeypatch, drill.name)
    assert (code, view["accounted"]) == (1, False)
    [job] = view["jobs"]
    assert view["open"]["gaps"] == [f"missing_output: {job} seat-{seat}" for seat in (0, 1)]
    broken = [check["promise"] for check in view["checks"] if not check["kept"]]
    assert broken == ["the audit lists what is missing, and nothing else"]


async def _command(
    stack: Site, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, Json]:
    """Run one drill from the command line, against the stack's own file; exit code and account."""
    for name in ("EMPANEL_URL", "EMPANEL_DEMO_MODEL", *provider_variables()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(drill_command, "CHECKOUT", stack.stack.folder.root.parent)
    line = ["drill", *arguments, "--model", "drilled", "--provider", "openai", "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, app, line)
    shown = json.loads(result.stdout)
    [view] = shown["drills"]
    assert shown["accounted"] is view["accounted"]
    return result.exit_code, view


async def test_an_account_in_order_ends_with_0(
    stack: Site, accounts: dict[str, Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints the account, and resolves the drill's incidents when it is told to."""
    code, view = await _command(stack, monkeypatch, "lost-upload", "--resolve")
    assert (code, view["accounted"]) == (0, True)
    [resolved] = view["resolved"]
    incident = await stack.ledger.get(f"incidents/{resolved}")
    assert (incident.data["status"], incident.data["job"]) == ("resolved", view["jobs"][0])


async def test_a_real_deployment_is_refused(site: DrillSite) -> None:
    """Without emulators nothing runs unless that is asked for, and then nothing that kills."""
    settings = replace(site.deployment.settings, firestore_emulator=None)
    real = replace(site.deployment, settings=settings, stack=None, evaluate=None)
    with pytest.raises(DrillRefused, match="not on emulators"):
        real.require_permission(allow_real=False)
    real.require_permission(allow_real=True)
    assert not any(drill.local for drill in chosen((), local=False))
    with pytest.raises(DrillRefused, match="local stacks only"):
        chosen([LAST], local=False)
