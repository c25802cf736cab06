"""Incidents: once per cause, in pages, and shown to whoever they concern."""

import hashlib
import json
from typing import Any, get_args

import pytest
from starlette.requests import Request

from functions.config import load
from functions.core.ports import Create
from functions.incidents import OPEN, RESOLVED, list_incidents, open_incident
from functions.web.api import answer_api
from functions.web.book_models import IncidentShown
from tests.faults.world import World, _application

OURS, THEIRS = "ours", "theirs"
TENANTS: tuple[str | None, ...] = (OURS, THEIRS, None)
KEYS = {
    "operator": (OURS, "operator"),
    "submitter": (OURS, "submitter"),
    "other-operator": (THEIRS, "operator"),
}


async def populated(operator_tenant: str | None = OURS) -> World:
    """Return a world with keys, and incidents of two tenants and of none."""
    world = World(operator_tenant=operator_tenant)
    for key, (owner, role) in KEYS.items():
        name = hashlib.sha256(key.encode()).hexdigest()
        data = {"v": 1, "tenant": owner, "role": role, "name": key}
        await world.ledger.commit(Create(path=f"api_keys/{name}", data=data))
    services = world.api.services
    for number in range(3):
        for tenant in TENANTS:
            cause = f"{tenant}-{number}"
            await open_incident(services, "dead_letter", cause, tenant=tenant, detail=cause)
            world.clock.advance(1.0)
    return world


async def call(world: World, key: str, method: str, path: str, **query: str) -> tuple[int, Any]:
    """Call the API; the status, and the answer."""
    body = b'{"note": "seen"}' if method == "POST" else b""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": "&".join(f"{name}={value}" for name, value in query.items()).encode(),
        "headers": [
            (b"authorization", f"Bearer {key}".encode()),
            (b"content-type", b"application/json"),
        ],
        "server": ("test", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    answer = await answer_api(_application(world.api), Request(scope, receive))
    return answer.status_code, json.loads(bytes(answer.body))


async def seen(world: World, key: str, **query: str) -> list[str]:
    """Return the details of all incidents that a key is shown, page by page."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        status, page = await call(world, key, "GET", "/v1/incidents", **query, **cursor)
        assert status == 200, page
        found += [incident["detail"] for incident in page["incidents"]]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


OWN = ["ours-2", "ours-1", "ours-0"]
WITH_NOBODYS = ["None-2", "ours-2", "None-1", "ours-1", "None-0", "ours-0"]


@pytest.mark.parametrize(
    ("operator_tenant", "key", "shown"),
    [
        (OURS, "operator", WITH_NOBODYS),
        (OURS, "submitter", OWN),
        (OURS, "other-operator", ["theirs-2", "theirs-1", "theirs-0"]),
        (None, "operator", OWN),
        (THEIRS, "operator", OWN),
    ],
)
async def test_incidents_of_no_tenant_are_shown_to_one_tenants_operators(
    operator_tenant: str | None, key: str, shown: list[str]
) -> None:
    """Newest first, each once, whatever the size of a page; unset means nobody."""
    world = await populated(operator_tenant)
    for limit in ("1", "2", "4", "200"):
        assert await seen(world, key, limit=limit) == shown
        assert await seen(world, key, limit=limit, status="open") == shown
    assert await seen(world, key, status="resolved") == []


@pytest.mark.parametrize(
    ("operator_tenant", "key", "status"),
    [
        (OURS, "operator", 200),
        (OURS, "submitter", 403),
        (OURS, "other-operator", 404),
        (None, "operator", 404),
    ],
)
async def test_who_is_not_shown_an_incident_cannot_resolve_it(
    operator_tenant: str | None, key: str, status: int
) -> None:
    """An incident of no tenant is unknown to everybody else."""
    world = await populated(operator_tenant)
    [path] = [
        path
        for path, data in world.ledger.stored().items()
        if path.startswith("incidents/") and data["detail"] == "None-1"
    ]
    answered, _ = await call(world, key, "POST", f"/v1/{path}/resolve")
    assert answered == status
    assert world.ledger.stored()[path]["status"] == ("resolved" if status == 200 else "open")


def test_the_operators_tenant_is_a_setting() -> None:
    """Unset or blank, nobody is shown what belongs to no tenant."""
    project = {"GOOGLE_CLOUD_PROJECT": "p"}
    assert load(project | {"EMPANEL_OPERATOR_TENANT": " ours "}).operator_tenant == "ours"
    assert load(project | {"EMPANEL_OPERATOR_TENANT": " "}).operator_tenant is None
    assert load(project).operator_tenant is None


async def test_an_incident_is_opened_once() -> None:
    """The same cause again changes nothing."""
    world = await populated()
    before = world.incidents()
    services = world.api.services
    assert not await open_incident(services, "dead_letter", "None-1", detail="again")
    assert world.incidents() == before


async def test_a_message_nobody_can_read_is_shown_with_what_is_known_of_it() -> None:
    """Digest, message ID, and the first bytes: to the operators who are shown it at all."""
    world = await populated()
    facts: dict[str, Any] = {"digest": "d" * 64, "message_id": "m1", "preview": "{"}
    await open_incident(world.api.services, "unreadable_message", "x", detail="no JSON", **facts)
    _, page = await call(world, "operator", "GET", "/v1/incidents", limit="2")
    shown, other = page["incidents"]
    assert shown["message"] == {**facts, "subscription": None, "deliveries": None}
    assert other["message"] is None
    [mine], _ = await list_incidents(world.api.services, [None], "open", limit=1, cursor=None)
    assert mine.id == shown["id"]


def test_the_interface_names_the_states_as_the_ledger_does() -> None:
    """The interface document lists exactly the states that an incident can be in."""
    assert get_args(IncidentShown.model_fields["status"].annotation) == (OPEN, RESOLVED)
