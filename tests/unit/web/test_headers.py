"""Headers of every answer, cross-origin calls, readiness, and what the framework refuses."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from functions.core.errors import LedgerUnavailable, ObjectsUnavailable, PublishFailed
from functions.readiness import unready
from functions.serving import create_app
from tests.faults.world import World, submission
from tests.unit.web.door import Door

ORIGIN = "https://app.example.com"
ORIGINS = frozenset({ORIGIN})
ASKS = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}


@pytest.mark.parametrize(
    "path",
    ["/health", "/ready", "/docs", "/openapi.json", "/v1/jobs", "/v1/jobs/job_x", "/nothing"],
)
async def test_every_answer_tells_browsers_what_not_to_do(path: str) -> None:
    """Nothing is sniffed, framed or told to the next page; data and problems are not stored."""
    answer = await Door(World()).call("GET", path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    public = path in ("/docs", "/openapi.json")
    assert answer.headers["cache-control"] == ("no-cache" if public else "no-store")
    assert "strict-transport-security" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


async def test_tls_is_insisted_on_only_where_there_is_some() -> None:
    """The header comes with https, as the front end tells of it."""
    door = Door(World())
    over_tls = await door.call("GET", "/health", headers={"X-Forwarded-Proto": "https"})
    assert over_tls.headers["strict-transport-security"].startswith("max-age=")
    plain = await door.call("GET", "/health", headers={"X-Forwarded-Proto": "http"})
    assert "strict-transport-security" not in plain.headers


async def test_no_other_origin_may_call_unless_it_is_named() -> None:
    """Off by default: a preflight is a 405 like any OPTIONS, and no answer names an origin."""
    door = Door(World())
    assert (await door.call("OPTIONS", "/v1/jobs", headers=ASKS)).status_code == 405
    answer = await door.call("GET", "/v1/jobs", headers={"Origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_named_origin_may_call() -> None:
    """Its preflight needs no key; every answer to it can be read, errors and 304 included."""
    world = World()
    door = Door(world, cors_origins=ORIGINS)
    asked = await door.call("OPTIONS", "/v1/jobs", key=None, headers=ASKS)
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == ORIGIN
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    job = await world.submit(submission())
    for path in ("/v1/jobs", "/v1/jobs/job_x", "/nothing"):
        answer = await door.call("GET", path, headers={"Origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "ETag" in answer.headers["access-control-expose-headers"]
    known = {"Origin": ORIGIN, "If-None-Match": "*"}
    answer = await door.call("GET", f"/v1/jobs/{job.id}", headers=known)
    assert answer.status_code == 304
    assert answer.headers["access-control-allow-origin"] == ORIGIN


@pytest.mark.parametrize(
    "origin", ["https://app.example.com.evil.test", "http://app.example.com", "null", "*", ""]
)
async def test_an_origin_that_is_not_named_may_not(origin: str) -> None:
    """Only the exact origin; caches are told that the answer depends on it."""
    door = Door(World(), cors_origins=ORIGINS)
    asked = await door.call("OPTIONS", "/v1/jobs", headers=ASKS | {"Origin": origin})
    assert asked.status_code == 405
    answer = await door.call("GET", "/v1/jobs", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answer.headers
    assert "Origin" in answer.headers["vary"]


class _Deaf:
    """A part of the service that fails, or never answers."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    async def get(self, *paths: str) -> Any:
        return await self._fail()

    async def stat(self, name: str) -> Any:
        return await self._fail()

    async def check(self, topic: str) -> None:
        await self._fail()

    async def _fail(self) -> Any:
        if self._failure is not None:
            raise self._failure
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("part", "port", "failure"),
    [
        ("ledger", "ledger", LedgerUnavailable("down")),
        ("store", "objects", ObjectsUnavailable("down")),
        ("topic", "publisher", PublishFailed("down")),
        ("ledger", "ledger", None),
        ("store", "objects", None),
        ("topic", "publisher", None),
    ],
)
async def test_what_gives_no_answer_is_named(
    part: str, port: str, failure: Exception | None
) -> None:
    """Not ready while any of the three fails or keeps silent, and the others are still asked."""
    services = World().api.services
    assert await unready(services) == []
    changed = replace(services, **{port: _Deaf(failure)})  # type: ignore[arg-type]
    assert await unready(changed, within_seconds=0.05) == [part]


async def test_readiness_is_a_503_that_names_the_part() -> None:
    """`failed` and the text say which; without a key, as a load balancer asks."""
    world = World()
    door = Door(world)
    assert (await door.call("GET", "/ready", key=None)).json() == {"status": "ready"}

    async def down(topic: str) -> None:
        raise PublishFailed("down")

    world.topics.check = down  # type: ignore[method-assign]
    answer = await door.call("GET", "/ready", key=None)
    assert answer.status_code == 503
    assert answer.json()["failed"] == ["topic"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("TRACE", "/v1/jobs", 405),
        ("PROPFIND", "/v1/jobs", 405),
        ("GET", "/robots.txt", 404),
        ("GET", "/favicon.ico", 404),
    ],
)
async def test_what_the_framework_refuses_is_a_problem_too(
    method: str, path: str, status: int
) -> None:
    """Methods that the framework does not know and its own paths: problems with our headers."""
    transport = httpx.ASGITransport(app=create_app("api"))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("allow" in answer.headers) is (status == 405)
