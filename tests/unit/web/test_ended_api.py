"""Replay and purge over the API's routes: who may ask, and what the answers are."""

import json
from typing import Any

import pytest
from starlette.requests import Request

from functions.core.access import OPERATOR, SUBMITTER, ApiKey, key_hash
from functions.core.budgets import Caps
from functions.core.documents import api_key_path, to_document
from functions.core.jobs import Job
from functions.core.ports import Create
from functions.tenant_caps import TenantCaps
from functions.web.api import answer_api
from functions.web.application import Application
from functions.web.authentication import KeyRing
from tests.faults.fakes import failure
from tests.faults.world import TENANT, World, submission

Answer = tuple[int, Any]
FOREIGN = "foreign"


async def call(world: World, method: str, path: str, role: str = OPERATOR) -> Answer:
    """Send one request with a key of this role; the status and the body."""
    key = ApiKey(tenant=TENANT, role=role, name=role)
    if role == FOREIGN:
        key = ApiKey(tenant=FOREIGN, role=OPERATOR, name=role)
    key_path = api_key_path(key_hash(role))
    if key_path not in world.ledger.stored():
        await world.ledger.commit(Create(path=key_path, data=to_document(key)))
    raw_path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": raw_path,
        "query_string": query.encode(),
        "headers": [(b"authorization", f"Bearer {role}".encode())],
        "server": ("test", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    services = world.api.services
    application = Application(services=services, keys=KeyRing(services.ledger), callers=None)
    response = await answer_api(application, Request(scope, receive))
    return response.status_code, json.loads(bytes(response.body))


async def failed(world: World) -> Job:
    """Return a job that has ended without an answer; what comes next is answered."""
    world.provider.script = lambda request, number: failure("refused", http_status=200)
    job = await world.submit(submission())
    await world.finish()
    world.provider.script = world.provider.answer
    return world.jobs()[job.id]


async def test_a_replay_answers_with_the_job() -> None:
    """202 with the job in its next run; asked again while it is open 409, when complete 409."""
    world = World()
    job = await failed(world)
    path = f"/v1/jobs/{job.id}/replay"
    status, body = await call(world, "POST", path, SUBMITTER)
    assert (status, body["run"], body["state"], body["terminal"]) == (202, 2, "accepted", None)
    status, body = await call(world, "POST", path)
    assert (status, body["type"]) == (409, "urn:empanel:problem:wrong-state")
    await world.finish()
    status, body = await call(world, "POST", path)
    assert status == 409
    assert "every seat" in body["detail"]


async def test_a_replay_beyond_the_days_cap_is_told_when_to_come_again() -> None:
    """429 when the tenant's day has no room for the run."""
    world = World(tenant_caps=TenantCaps(everyone=Caps(requests=4)))
    job = await failed(world)
    status, body = await call(world, "POST", f"/v1/jobs/{job.id}/replay")
    assert status == 429
    assert "requests" in body["detail"]


async def test_a_purge_is_an_operators() -> None:
    """403 for a submitter, whatever the job; 202 for an operator, and again."""
    world = World()
    job = await failed(world)
    path = f"/v1/jobs/{job.id}"
    assert (await call(world, "DELETE", path, SUBMITTER))[0] == 403
    assert world.jobs()[job.id].purged_at is None
    for _ in range(2):
        status, body = await call(world, "DELETE", path)
        assert (status, body["id"]) == (202, job.id)
        assert body["purged_at"] is not None
    assert body["digests"]["facts"] == job.digests.facts


async def test_a_purged_job_has_no_report_and_no_replay() -> None:
    """Both are gone, complete or partial, and the reason is told."""
    world = World()
    job = await failed(world)
    await call(world, "DELETE", f"/v1/jobs/{job.id}")
    for method, path in (("GET", "report"), ("GET", "report?partial=true"), ("POST", "replay")):
        status, body = await call(world, method, f"/v1/jobs/{job.id}/{path}")
        assert (status, body["type"]) == (410, "urn:empanel:problem:gone")
        assert "purged" in body["detail"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/replay"), ("DELETE", "")])
async def test_an_open_job_is_left_alone(method: str, path: str) -> None:
    """409 while the job has not ended."""
    world = World()
    job = await world.submit(submission())
    assert (await call(world, method, f"/v1/jobs/{job.id}{path}"))[0] == 409


@pytest.mark.parametrize(("method", "path"), [("POST", "/replay"), ("DELETE", "")])
async def test_foreign_and_unknown_jobs_are_the_same(method: str, path: str) -> None:
    """404 for both, with the same body, and nothing changes."""
    world = World()
    job = await failed(world)
    foreign = await call(world, method, f"/v1/jobs/{job.id}{path}", FOREIGN)
    unknown = await call(world, method, f"/v1/jobs/job_unknown{path}")
    assert foreign == unknown
    assert foreign[0] == 404
    assert world.jobs()[job.id] == job


async def test_an_unknown_query_parameter_is_refused() -> None:
    """400, and no run is begun."""
    world = World()
    job = await failed(world)
    status, _ = await call(world, "POST", f"/v1/jobs/{job.id}/replay?force=true")
    assert status == 400
    assert world.jobs()[job.id] == job
