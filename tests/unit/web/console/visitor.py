"""A person with a browser at the console of a world in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from functions.core.access import OPERATOR, SUBMITTER
from functions.web.api import answer_api
from functions.web.application import Application
from tests.faults.world import TENANT, World
from tests.unit.web.asking import api_over, give_key
from tests.unit.web.console.html import Element, read_page

LOCAL = "http://127.0.0.1:8080"
SECURE = "https://console.example"
OTHER = "other"
PLANTED = '<script>alert("x")</script><img src=//evil.test onerror=alert(1)>\'"&'
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Visitor:
    """A browser: it keeps cookies and tells where its forms come from."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Open a page; redirects are for the test to follow."""
        return await self.client.get(path, headers=_named(headers))

    async def page(self, path: str) -> Element:
        """Return a page that must be there."""
        answer = await self.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        return read_page(answer.text)

    async def post(
        self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str] = SAME_ORIGIN
    ) -> httpx.Response:
        """Send a form."""
        return await self.client.post(path, data=dict(fields), headers=dict(headers))

    async def sign_in(self, key: str) -> "Visitor":
        """Sign in, which must succeed."""
        answer = await self.post("/login", {"key": key, "next": "/"})
        assert answer.status_code == 303, answer.text
        return self

    async def token(self) -> str:
        """Return what the forms of this visitor's pages carry."""
        page = await self.page("/submit")
        return page.one("form", action="/submit").fields()["token"]


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def visiting(
    application: Application, base_url: str = LOCAL, **options: Any
) -> AsyncIterator[Visitor]:
    """A visitor who has not signed in."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        response = await answer_api(application, Request(scope, receive))
        await response(scope, receive, send)

    transport = httpx.ASGITransport(app=serve)
    async with httpx.AsyncClient(transport=transport, base_url=base_url, **options) as client:
        yield Visitor(client)


def key_of(role: str, tenant: str = TENANT) -> str:
    """The key of a role."""
    return f"ek_{tenant}-{role}"


async def staffed(world: World) -> Application:
    """The console over a world, with a key for each role of two tenants."""
    for tenant in (TENANT, OTHER):
        for role in (SUBMITTER, OPERATOR):
            await give_key(world, key_of(role, tenant), tenant=tenant, role=role)
    return api_over(world)
