"""The page to submit a job on: accepted as the API would, or shown again with what is wrong."""

import json
from typing import Any

import httpx
import pytest

from functions.core.access import SUBMITTER
from tests.faults.world import World
from tests.unit.web.console.html import Element, read_page
from tests.unit.web.console.test_forms import recorded
from tests.unit.web.console.visitor import PLANTED, SAME_ORIGIN, Visitor, key_of, staffed, visiting

JOB: dict[str, Any] = {
    "facts": {"x": 1},
    "rubric": {"instructions": "Score it."},
    "seats": [{"provider": "fake", "model": "m"}],
}


async def send(visitor: Visitor, job: str, **fields: str) -> httpx.Response:
    """Send the form as it was filled in."""
    token = await visitor.token()
    return await visitor.post("/submit", {"job": job, "key": "", "token": token, **fields})


def faults(page: Element) -> dict[str, str]:
    """The broken rules that a page shows, by their pointers."""
    table = page.one("section", id="faults").one("table")
    return {row.one("th").text: row.one("td").text for row in table.one("tbody").all("tr")}


async def test_a_job_is_accepted_as_by_the_api() -> None:
    """Under the same identity: the same body or key is the same job, on whichever way it comes."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        by_page = await send(visitor, json.dumps(JOB, indent=2).replace("\n", "\r\n"))
        assert "notice" not in by_page.headers["location"]
        world.clock.advance(1.0)
        headers = {"Authorization": f"Bearer {key_of(SUBMITTER)}"}
        by_api = await visitor.client.post("/v1/jobs", json=JOB, headers=headers)
        assert by_api.status_code == 200
        assert by_page.headers["location"] == f"/jobs/{by_api.json()['id']}"
        again = await send(visitor, json.dumps(JOB))
        assert again.headers["location"].endswith("?notice=known")
        page = await visitor.page(again.headers["location"])
        assert "accepted before" in page.one("p", role="status", **{"class": "notice good"}).text
        keyed = await send(visitor, json.dumps(JOB), key="another")
        assert keyed.headers["location"] != by_page.headers["location"]
        world.clock.advance(1.0)
        headers["Idempotency-Key"] = "another"
        keyed_by_api = await visitor.client.post("/v1/jobs", json=JOB, headers=headers)
    assert keyed_by_api.status_code == 200
    assert len(world.jobs()) == 2


@pytest.mark.parametrize(
    ("change", "pointer", "detail"),
    [
        ({"seats": [{"provider": "nobody", "model": "m"}]}, "/seats/0/provider", "configured"),
        ({"facts": 5}, "/facts", "must be an object"),
        ({"owner": PLANTED + "\n"}, "/owner", "control characters"),
        ({PLANTED: 1}, "/" + PLANTED.replace("/", "~1"), "is not a known field"),
    ],
)
async def test_each_broken_rule_stands_at_its_pointer(
    change: dict[str, Any], pointer: str, detail: str
) -> None:
    """Beside the text as it was typed; nothing is stored, and what was typed is no markup."""
    world = World()
    job = json.dumps({**JOB, **change}, indent=2)
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        before = recorded(world)
        answer = await send(visitor, job, key='"><script>')
    assert answer.status_code == 422
    assert recorded(world) == before
    page = read_page(answer.text)
    assert detail in faults(page)[pointer]
    form = page.one("form", action="/submit").fields()
    assert form["job"].strip() == job
    assert form["key"] == '"><script>'
    assert not list(page.all("script"))
    area = page.one("textarea", id="job")
    assert area.attributes["aria-invalid"] == "true"
    assert "faults" in area.attributes["aria-describedby"].split()


@pytest.mark.parametrize(
    ("job", "key", "status"),
    [
        ("", "", 400),
        ("{", "", 400),
        ('{"facts": 1, "facts": 2}', "", 400),
        ("[" * 100 + "]" * 100, "", 400),
        (json.dumps(JOB), "clé", 400),
        ("[]", "", 422),
        (json.dumps({**JOB, "facts": {"x": "y" * (1024 * 1024)}}), "", 413),
    ],
)
async def test_what_the_api_refuses_the_page_refuses(job: str, key: str, status: int) -> None:
    """With the same status, in place."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        before = recorded(world)
        answer = await send(visitor, job, key=key)
    assert answer.status_code == status
    assert recorded(world) == before
    assert read_page(answer.text).one("section", role="alert").text


async def test_another_job_under_the_same_key_is_refused_in_place() -> None:
    """422, and the first job stays as it is."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        await send(visitor, json.dumps(JOB), key="one")
        before = recorded(world)
        answer = await send(visitor, json.dumps({**JOB, "facts": {"x": 2}}), key="one")
    assert answer.status_code == 422
    assert "belongs to another request" in answer.text
    assert recorded(world) == before


async def test_an_estimate_accepts_nothing() -> None:
    """It tells requests, cost and what is stored already, and keeps what was typed."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        before = recorded(world)
        answer = await send(visitor, json.dumps(JOB), action="estimate", key="kept")
        assert recorded(world) == before
    page = read_page(answer.text)
    told = page.one("section", role="status").text
    assert "1 request if nothing fails" in told
    assert "0 seats answered from what is stored" in told
    assert page.one("form", action="/submit").fields()["key"] == "kept"


async def test_the_example_needs_nothing_but_a_models_name() -> None:
    """It is a job of a configured provider that the API would take."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        form = (await visitor.page("/submit")).one("form", action="/submit").fields()
        answer = await visitor.post("/submit", form, headers=SAME_ORIGIN)
    assert answer.status_code == 303
