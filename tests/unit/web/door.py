"""The `api` target over a world in memory: requests in, answers out, each held to its promise."""

from dataclasses import replace
from typing import Any

import httpx
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from functions.core.access import OPERATOR, ApiKey, key_hash
from functions.core.documents import api_key_path, to_document
from functions.core.ports import Create, Ledger
from functions.web.api import answer_api
from functions.web.application import Application
from functions.web.authentication import KeyRing
from tests.faults.world import TENANT, World
from tests.promises import assert_promised

KEY = "ek_of-the-door"


class Door:
    """A client of the interface, with a key of its own; `settings` change those of the world.

    `ledger` stands before the world's.
    """

    def __init__(
        self,
        world: World,
        *,
        ledger: Ledger | None = None,
        requests_per_minute: int = 0,
        **settings: Any,
    ) -> None:
        self._world = world
        services = world.api.services
        services = replace(
            services,
            settings=replace(services.settings, **settings),
            ledger=ledger or services.ledger,
        )
        keys = KeyRing(world.ledger, requests_per_minute=requests_per_minute)
        self._application = Application(services=services, keys=keys, callers=None)

    async def call(
        self, method: str, path: str, *, key: str | None = KEY, **options: Any
    ) -> httpx.Response:
        """Send one request."""
        await self._know_the_key()
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        headers |= options.pop("headers", {})
        transport = httpx.ASGITransport(app=self._serve)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            answer = await client.request(method, path, headers=headers, **options)
        if method != "OPTIONS":
            assert_promised(
                method, answer.request.url.path, answer.status_code, answer.headers, answer.content
            )
        return answer

    async def _know_the_key(self) -> None:
        path = api_key_path(key_hash(KEY))
        if path not in self._world.ledger.stored():
            record = ApiKey(tenant=TENANT, role=OPERATOR, name="door")
            await self._world.ledger.commit(Create(path=path, data=to_document(record)))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await answer_api(self._application, Request(scope, receive))
        await response(scope, receive, send)
