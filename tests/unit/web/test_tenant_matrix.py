"""Two tenants, two roles, every route of the `api` target: only what is allowed.

The routes are those that are served, so one that is added is asked here too, and fails as long as
the table of roles has no line for it.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import pytest

from functions.core.access import OPERATOR, ROLES, SUBMITTER
from functions.core.identities import decision_id
from functions.core.jobs import Job
from functions.incidents import open_incident
from functions.web.api import API_ROUTES
from functions.web.application import Application
from functions.web.roles import LEAST_ROLES
from tests.faults.world import TENANT, World, submission
from tests.unit.web.asking import UNREAD, api_over, ask, give_key

OTHER = "other"
CALLS = [(method, route.path) for route in API_ROUTES for method in sorted(route.methods or ())]
GUARDED = [
    call for call in CALLS if LEAST_ROLES.get(("GET" if call[0] == "HEAD" else call[0], call[1]))
]
NAMING = [call for call in GUARDED if "{" in call[1]]
LISTS = [call for call in GUARDED if "{" not in call[1] and call[0] == "GET"]
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/incidents/{incident}/resolve"): {"note": "seen to"},
    ("PUT", "/v1/decisions/{decision}/actions/{name}"): {"holder": "me"},
}


@dataclass(frozen=True, kw_only=True)
class Two:
    """A world in which one tenant has something of everything, and both have all roles."""

    world: World
    api: Application
    job: Job
    own: dict[str, str]
    unknown: dict[str, str]

    async def stored(self) -> dict[str, Any]:
        """What is on record, but for the notes of keys' use, once all of those are written."""
        await asyncio.gather(*self.api.keys._noting)
        stored = self.world.ledger.stored()
        return {path: data for path, data in stored.items() if not path.startswith("api_keys/")}


def key_of(tenant: str, role: str) -> str:
    return f"ek_{tenant}-{role}"


async def two() -> Two:
    """Return the two tenants; what one of them has is named by the parameters of paths."""
    world = World()
    for tenant in (TENANT, OTHER):
        for role in ROLES:
            await give_key(world, key_of(tenant, role), tenant=tenant, role=role)
    job = await world.submit(submission(("m0",), required_seats=1))
    await world.finish()
    services = world.api.services
    await open_incident(services, "output_missing", job.id, job=job, detail="gone")
    stored = world.ledger.stored()
    [incident] = [path.split("/")[1] for path in stored if path.startswith("incidents/")]
    own = {
        "job": job.id,
        "decision": job.decision_id,
        "name": "publish",
        "window": job.window,
        "incident": incident,
        "notification": f"{job.decision_id}.1",
    }
    nobodys = decision_id(TENANT, "job_nobodys")
    unknown = {
        "job": f"job_{'0' * len(job.id.partition('_')[2])}",
        "decision": nobodys,
        "name": "publish",
        "window": "2020-01-01T00",
        "incident": f"inc_{'0' * len(incident.partition('_')[2])}",
        "notification": f"{nobodys}.1",
    }
    return Two(world=world, api=api_over(world), job=job, own=own, unknown=unknown)


def named(path: str, names: dict[str, str]) -> str:
    """Return a route's path with its parameters filled in."""
    return re.sub(r"{(\w+)[^}]*}", lambda found: names[found[1]], path)


def test_every_route_has_its_rule() -> None:
    """A route without a line in the table would answer nobody."""
    without = {(m, p) for m, p in CALLS if m != "HEAD" and (m, p) not in LEAST_ROLES}
    assert without == set()
    assert len(GUARDED) >= 16


def test_what_changes_the_books_needs_an_operator() -> None:
    """Purge, resolve and redeliver; a submitter runs jobs, its tenant's own."""
    operators = {call for call, role in LEAST_ROLES.items() if role == OPERATOR}
    assert operators == {
        ("DELETE", "/v1/jobs/{job}"),
        ("POST", "/v1/incidents/{incident}/resolve"),
        ("POST", "/v1/notifications/{notification}/redeliver"),
        ("POST", "/incidents/{incident}/resolve"),
    }
    public = {path for (_, path), role in LEAST_ROLES.items() if role is None}
    assert not any(path.startswith("/v1/") for path in public)


@pytest.mark.parametrize(("method", "path"), GUARDED)
async def test_a_stranger_is_refused_before_anything_is_read(method: str, path: str) -> None:
    """No key, and one that is on no record: 401, whatever the path names."""
    at = await two()
    for key in (None, "ek_unknown"):
        answer = await ask(at.api, method, named(path, at.own), key=key, body=UNREAD)
        assert answer.status == 401


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_do_what_the_table_says(method: str, path: str, role: str) -> None:
    """Less than the least role is 403 before the body is read; the least role is not refused."""
    at = await two()
    least = LEAST_ROLES["GET" if method == "HEAD" else method, path]
    allowed = role == OPERATOR or least == SUBMITTER
    body = BODIES.get((method, path)) if allowed else UNREAD
    before = await at.stored()
    answer = await ask(at.api, method, named(path, at.own), key=key_of(TENANT, role), body=body)
    assert (answer.status not in (401, 403, 404, 405)) is allowed
    if not allowed:
        assert answer.status == 403
        assert await at.stored() == before


@pytest.mark.parametrize(("method", "path"), NAMING)
@pytest.mark.parametrize("role", ROLES)
async def test_what_is_foreign_looks_like_what_is_not_there(
    method: str, path: str, role: str
) -> None:
    """Status, headers and body are the same to the byte; the request's body is not read.

    Without a word about it the other tenant's books stay as they are.
    """
    at = await two()
    key = key_of(OTHER, role)
    before = await at.stored()
    foreign = await ask(at.api, method, named(path, at.own), key=key, body=UNREAD)
    unknown = await ask(at.api, method, named(path, at.unknown), key=key, body=UNREAD)
    assert foreign == unknown
    least = LEAST_ROLES["GET" if method == "HEAD" else method, path]
    assert foreign.status == (404 if role == OPERATOR or least == SUBMITTER else 403)
    assert await at.stored() == before


@pytest.mark.parametrize(("method", "path"), LISTS)
async def test_lists_show_nothing_of_another_tenant(method: str, path: str) -> None:
    """What one tenant reads in a list, the other does not find there."""
    at = await two()
    own = await ask(at.api, method, path, key=key_of(TENANT, SUBMITTER))
    foreign = await ask(at.api, method, path, key=key_of(OTHER, OPERATOR))
    assert (own.status, foreign.status) == (200, 200)
    named_there = [value for value in at.own.values() if value in str(own.body)]
    assert named_there
    assert not any(value in str(foreign.body) for value in named_there)


async def test_the_same_request_is_another_job_of_another_tenant() -> None:
    """Neither the identity of a job nor a paid answer is shared: each tenant asks by itself."""
    at = await two()
    body = {
        "facts": {"question": "shared"},
        "rubric": {"instructions": "Score it."},
        "seats": [{"provider": "fake", "model": "m0"}],
    }
    headers = {"idempotency-key": "same"}
    jobs = []
    for tenant in (TENANT, OTHER):
        key = key_of(tenant, SUBMITTER)
        answer = await ask(at.api, "POST", "/v1/jobs", key=key, body=body, headers=headers)
        assert answer.status == 202
        jobs.append(answer.body)
        await at.world.finish()
    assert jobs[0]["id"] != jobs[1]["id"]
    assert jobs[0]["seats"][0]["work_key"] != jobs[1]["seats"][0]["work_key"]
    key = key_of(OTHER, SUBMITTER)
    shown = (await ask(at.api, "GET", f"/v1/jobs/{jobs[1]['id']}", key=key)).body
    assert [seat["reused"] for seat in shown["seats"]] == [False]
