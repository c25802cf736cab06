"""The `api` target over a world's own services, asked without a wire."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from functions.core.access import ApiKey, key_hash
from functions.core.documents import api_key_path, to_document
from functions.core.ports import Create
from functions.web.api import answer_api
from functions.web.application import Application
from functions.web.authentication import Accounts, KeyRing
from tests.faults.world import World

UNREAD = object()  # a body that must not be read


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    headers: Mapping[str, str]


def api_over(world: World, **options: Any) -> Application:
    """Return the application of the world's API process; `options` are those of its key ring."""
    services = world.api.services
    return Application(services=services, keys=KeyRing(services.ledger, **options), callers=None)


async def give_key(world: World, text: str, *, tenant: str, role: str, **fields: Any) -> None:
    """Put a key on record."""
    record = ApiKey(tenant=tenant, role=role, name=fields.pop("name", text), **fields)
    path = api_key_path(key_hash(text))
    await world.ledger.commit(Create(path=path, data=to_document(record)))


async def ask(
    application: Application,
    method: str,
    path: str,
    *,
    key: str | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request and return its answer; `UNREAD` as the body fails the test when read."""
    path, _, query = path.partition("?")
    named = {"content-type": "application/json", **(headers or {})}
    if key is not None:
        named["authorization"] = f"Bearer {key}"
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), text.encode()) for name, text in named.items()],
        "server": ("test", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        if body is UNREAD:
            raise AssertionError("the body was read")
        content = b"" if body is None else json.dumps(body).encode()
        return {"type": "http.request", "body": content, "more_body": False}

    response: Response = await answer_api(application, Request(scope, receive))
    content = bytes(response.body)
    shown = json.loads(content) if "json" in response.headers.get("content-type", "") else content
    return Answer(status=response.status_code, body=shown, headers=dict(response.headers))


__all__ = ["UNREAD", "Accounts", "Answer", "api_over", "ask", "give_key"]
