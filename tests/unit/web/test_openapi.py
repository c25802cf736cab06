"""The published document: it has every route, its models hold the answers, and it stands alone."""

import re
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from functions.core.jobs import Policy, Seat
from functions.web import book_models, response_models
from functions.web.api import API_ROUTES
from functions.web.openapi import document, promises
from functions.web.operations import PROBLEM_MEANINGS
from functions.web.request_models import MODELS_BY_PATH, JobBody
from functions.web.response_models import JobShown, PolicyShown
from functions.web.roles import LEAST_ROLES
from functions.web.routing import ApiRoute
from tests.faults.fakes import failure
from tests.faults.world import World, submission
from tests.promises import assert_promised
from tests.unit.web.door import Door

DOCUMENT = document(API_ROUTES)
BODY = {
    "facts": {"x": 1},
    "rubric": {"instructions": "Score it."},
    "seats": [{"provider": "fake", "model": "m"}],
}


def _all(part: Any, name: str) -> list[Any]:
    """Every value under a name, at whatever depth."""
    if isinstance(part, list):
        return [value for item in part for value in _all(item, name)]
    if not isinstance(part, dict):
        return []
    found = [part[name]] if name in part else []
    return found + [value for item in part.values() for value in _all(item, name)]


def test_every_route_is_published_and_nothing_else_is() -> None:
    """Routes, the table of roles and the document name the same methods and paths."""
    routes = {(route.method, route.path) for route in API_ROUTES if isinstance(route, ApiRoute)}
    published = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert published == routes
    assert routes <= set(LEAST_ROLES)
    assert len(routes) == len(API_ROUTES)


def test_every_route_promises_what_its_path_names() -> None:
    """The parameters in a path are those of the promise; operation IDs are used once."""
    ids = [operation.id for _, _, operation in promises(API_ROUTES)]
    assert len(ids) == len(set(ids))
    for _, path, operation in promises(API_ROUTES):
        named = {parameter.name for parameter in operation.parameters if parameter.place == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert any(200 <= status < 300 for status in operation.answers)


def test_each_refusal_is_a_problem() -> None:
    """Every status from 400 on is `application/problem+json`, and every meaning is used."""
    used = set()
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    used.add(int(status))
                    assert list(response["content"]) == ["application/problem+json"]
    assert used == set(PROBLEM_MEANINGS)


def test_what_needs_a_key_says_so() -> None:
    """All but the service's own pages ask for the key, and may answer 401."""
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            needs_key = path.startswith("/v1/")
            assert bool(operation["security"]) is needs_key
            assert ("401" in operation["responses"]) is needs_key
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"key"}


def test_no_path_ends_in_z() -> None:
    """Cloud Run answers such paths itself."""
    assert not [path for path in DOCUMENT["paths"] if path.endswith("z")]


def test_every_reference_leads_somewhere() -> None:
    """Each `$ref` names a schema of the document, and each link an operation."""
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(_all(DOCUMENT, "$ref")) <= known
    operations = set(_all(DOCUMENT["paths"], "operationId"))
    for links in _all(DOCUMENT["paths"], "links"):
        assert {link["operationId"] for link in links.values()} <= operations


def test_the_document_is_of_version_3_1_and_its_schemas_can_be_checked() -> None:
    """Each schema is one by JSON Schema 2020-12, which OpenAPI 3.1 takes as it is."""
    from jsonschema import Draft202012Validator  # here: only this test needs it

    assert DOCUMENT["openapi"].startswith("3.1.")
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_bodies_are_published_as_they_are_read() -> None:
    """The request's schemas are those of the models that validate, closed to unknown fields."""
    schemas = DOCUMENT["components"]["schemas"]
    for model in MODELS_BY_PATH.values():
        shown = schemas[model.__name__]
        assert set(shown["properties"]) == set(model.model_fields)
        assert shown["additionalProperties"] is False
    content = DOCUMENT["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    JobBody.model_validate(content["example"])


def test_answers_are_published_open() -> None:
    """Fields may be added to answers, so no schema of an answer forbids others."""
    modules = (response_models, book_models)
    models = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel)
    ]
    shown = [m.__name__ for m in models if m.__name__ in DOCUMENT["components"]["schemas"]]
    assert len(shown) > 30
    for name in shown:
        assert "additionalProperties" not in DOCUMENT["components"]["schemas"][name] or name in (
            "SeatAnswer",
        )


def test_a_models_fields_are_those_of_the_record_it_shows() -> None:
    """A limit added to the policy has to be added to what is shown of it."""
    assert set(PolicyShown.model_fields) == set(Policy.__dataclass_fields__)
    assert {"seat", "provider", "model"} <= set(Seat.__dataclass_fields__)


async def _ended_world() -> tuple[World, Door, str]:
    world = World()
    job = await world.submit(submission(("m0", "m1")))
    await world.finish()
    return world, Door(world), job.id


async def test_every_answer_about_a_job_is_as_promised() -> None:
    """Accepted, running, ended, failed, replayed and purged: fields and types are the document's.

    `Door` holds each answer to its promise.
    """
    world = World()
    door = Door(world)
    answer = await door.call("POST", "/v1/jobs", json=BODY)
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    world.clock.advance(1.0)
    known = await door.call("POST", "/v1/jobs", json=BODY)
    assert known.status_code == 200
    assert (await door.call("GET", f"/v1/jobs/{job}/report")).status_code == 409
    assert (await door.call("GET", f"/v1/jobs/{job}/report?partial=true")).status_code == 200
    await world.finish()
    for path in ("", "/report", "/attempts"):
        assert (await door.call("GET", f"/v1/jobs/{job}{path}")).status_code == 200
    assert (await door.call("POST", f"/v1/jobs/{job}/cancel")).status_code == 200
    assert (await door.call("POST", f"/v1/jobs/{job}/replay")).status_code == 409
    assert (await door.call("GET", "/v1/jobs")).json()["jobs"][0]["id"] == job
    assert (await door.call("POST", "/v1/estimate", json=BODY)).json()["reused_seats"] == 1
    decision = known.json()["decision_id"]
    path = f"/v1/decisions/{decision}/actions/publish"
    for holder, status in (("me", 201), ("me", 200), ("you", 200), ("", 422), ("a\nb", 422)):
        assert (await door.call("PUT", path, json={"holder": holder})).status_code == status
    notification = f"/v1/notifications/{decision}.1"
    assert (await door.call("GET", notification)).status_code == 200
    assert (await door.call("POST", f"{notification}/redeliver")).status_code == 202
    assert (await door.call("DELETE", f"/v1/jobs/{job}")).status_code == 202
    assert (await door.call("GET", f"/v1/jobs/{job}/report")).status_code == 410
    assert (await door.call("GET", "/v1/audits")).status_code == 200
    assert (await door.call("GET", f"/v1/audits/{known.json()['window']}")).status_code == 200
    assert (await door.call("GET", "/v1/incidents")).status_code == 200


async def test_answers_about_failures_are_as_promised() -> None:
    """A failed job, its report's 409 and its replay are of the promised shape too."""
    world = World()
    world.provider.script = lambda request, number: failure("refused", http_status=200)
    job = await world.submit(submission())
    await world.finish()
    door = Door(world)
    shown = (await door.call("GET", f"/v1/jobs/{job.id}")).json()
    assert shown["seats"][0]["error"]["code"] == "refused"
    refused = await door.call("GET", f"/v1/jobs/{job.id}/report")
    assert refused.json()["missing"][0]["code"] == "refused"
    assert (await door.call("GET", f"/v1/jobs/{job.id}/attempts")).status_code == 200
    assert (await door.call("POST", f"/v1/jobs/{job.id}/replay")).status_code == 202


@pytest.mark.parametrize("change", ["missing", "extra", "type"])
async def test_a_wrong_answer_does_not_pass(change: str) -> None:
    """The check itself fails for a field that is missing, added, or of another type."""
    _, door, job = await _ended_world()
    answer = await door.call("GET", f"/v1/jobs/{job}")
    body = answer.json()
    if change == "missing":
        del body["usage"]
    elif change == "extra":
        body["surprise"] = 1
    else:
        body["run"] = "1"
    changed = httpx.Response(200, json=body)
    with pytest.raises(ValueError, match="validation error"):
        assert_promised("GET", f"/v1/jobs/{job}", 200, answer.headers, changed.content)
    with pytest.raises(AssertionError, match="not promised"):
        assert_promised("GET", f"/v1/jobs/{job}", 418, answer.headers, b"{}")
    JobShown.model_validate_json(answer.content)


async def test_the_document_and_the_page_need_no_key_and_no_network() -> None:
    """Both are served to everybody; the page refers to nothing but our own paths."""
    door = Door(World())
    served = await door.call("GET", "/openapi.json", key=None)
    assert served.json() == DOCUMENT
    page = await door.call("GET", "/docs", key=None)
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href|action)="([^"]*)"', page.text)
    assert [link for link in links if not link.startswith(("#", "/"))] == []
    assert "<script" not in page.text
    assert "@import" not in page.text
    assert "url(" not in page.text
    anchors = {link[1:] for link in links if link.startswith("#")}
    assert anchors <= set(re.findall(r'id="([^"]*)"', page.text))
    for path in DOCUMENT["paths"]:
        assert f"<code>{path}</code>" in page.text
