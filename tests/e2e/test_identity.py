"""Keys on a running stack: made and revoked by command, good for their tenant and role alone."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from typer.testing import Result

from functions.web.authentication import CACHE_SECONDS
from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, open_site, panel
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse
from tests.unit.test_cli import call

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN_SEATS = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("identity")
    tenants = folder / "tenants.toml"
    tenants.write_text(f"[tenants.small]\nopen_seats = {OPEN_SEATS}\n")
    environment = {"EMPANEL_TENANTS": str(tenants)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("functions.cli.key_store.CHECKOUT", folder)
        async with open_site(emulator_hosts, folder, environment=environment) as running:
            yield running


async def keys(*args: str) -> Result:
    """Run a `keys` command on the stack of this module."""
    return await asyncio.to_thread(call, None, "keys", *args)


async def created(tenant: str, role: str, name: str, *more: str) -> str:
    """Make a key; its text."""
    options = ("--tenant", tenant, "--role", role, "--name", name, "--json", *more)
    result = await keys("create", *options)
    assert result.exit_code == 0, result.stderr
    return str(json.loads(result.stdout)["key"])


async def listed(name: str) -> Json:
    """A key as it is listed."""
    result = await keys("list", "--json")
    [found] = [key for key in json.loads(result.stdout)["keys"] if key["name"] == name]
    return found


async def test_a_key_works_from_when_it_is_made_until_it_is_revoked(site: Site) -> None:
    """Warm processes forget it within ten seconds; its use and its end are on record."""
    key = await created("catalog", "submitter", "importer", "--expires-days", "7")
    assert (await site.call("GET", "/v1/jobs", api_key=key)).status_code == 200
    shown = await until(
        lambda: listed("importer"), lambda seen: seen["last_used_at"], what="the use is noted"
    )
    assert shown["expires_at"] > shown["created_at"]
    assert key not in json.dumps(shown)
    assert (await keys("revoke", "importer")).exit_code == 0
    assert (await listed("importer"))["revoked_at"] is not None
    refused = await until(
        lambda: site.call("GET", "/v1/jobs", api_key=key),
        lambda answer: answer.status_code == 401,
        what="the key is forgotten",
        timeout_seconds=CACHE_SECONDS + 10,
    )
    assert refused.headers["content-type"] == "application/problem+json"
    deeds = {line.data["what"] for line in await site.ledger.group("operator_log")}
    assert {"create key", "revoke key"} <= deeds


async def test_a_revoked_name_means_nothing_and_two_are_told_apart(site: Site) -> None:
    """2 in both cases, and the IDs to choose from."""
    assert (await keys("revoke", "nobody's")).exit_code == 2
    for _ in range(2):
        await created("catalog", "submitter", "twice")
    result = await keys("revoke", "twice")
    assert result.exit_code == 2
    ids = [key["id"] for key in json.loads((await keys("list", "--json")).stdout)["keys"]]
    assert sum(identity in result.stderr for identity in ids) == 2
    one = next(identity for identity in ids if identity in result.stderr)
    assert (await keys("revoke", one)).exit_code == 0
    assert (await keys("revoke", "twice")).exit_code == 0


async def test_a_key_is_shown_once_and_alone(site: Site) -> None:
    """Standard output is the key, so that a script can take it; what it is good for is beside."""
    options = ("--tenant", "catalog", "--role", "submitter", "--name", "plain")
    result = await keys("create", *options)
    key = result.stdout.strip()
    assert (await site.call("GET", "/v1/jobs", api_key=key)).status_code == 200
    assert "catalog" in result.stderr
    assert key not in result.stderr


async def test_a_tenant_is_closed_to_the_others(site: Site) -> None:
    """The stack's own operator does not see another tenant's job, and may not touch it."""
    key = await created("catalog", "submitter", "panel")
    job = (await site.call("POST", "/v1/jobs", api_key=key, json=panel("closed"))).json()["id"]
    own = await site.call("GET", f"/v1/jobs/{job}", api_key=key)
    foreign = [
        await site.call(method, f"/v1/jobs/{job}{path}")
        for method, path in (("GET", ""), ("POST", "/cancel"), ("DELETE", ""), ("GET", "/report"))
    ]
    assert own.status_code == 200
    assert [answer.status_code for answer in foreign] == [404] * 4
    assert (await site.call("DELETE", f"/v1/jobs/{job}", api_key=key)).status_code == 403


async def test_one_tenants_backlog_is_only_so_long(site: Site) -> None:
    """Two dozen at once: three fit, the rest is 429; once one is canceled another fits."""
    small = await created("small", "submitter", "small")
    other = await created("other", "submitter", "other")
    slow = Rule(label="backlog-*", always=ScriptedResponse(delay_seconds=300))
    await site.stub.script(slow)

    async def submitted(number: int, key: str) -> tuple[int, Json]:
        body = panel(f"backlog-{number}", "a", "b")
        answer = await site.call("POST", "/v1/jobs", api_key=key, json=body)
        return answer.status_code, answer.json()

    answers = await asyncio.gather(*(submitted(number, small) for number in range(24)))
    jobs = [job["id"] for status, job in answers if status == 202]
    assert len(jobs) == OPEN_SEATS // 2
    assert {status for status, _ in answers} == {202, 429}
    status, theirs = await submitted(100, other)
    assert status == 202
    await site.call("POST", f"/v1/jobs/{jobs[0]}/cancel", api_key=small)
    status, job = await submitted(200, small)
    assert status == 202
    for key, identity in ((other, theirs["id"]), *((small, i) for i in (*jobs[1:], job["id"]))):
        answer = await site.call("POST", f"/v1/jobs/{identity}/cancel", api_key=key)
        assert answer.status_code == 200
