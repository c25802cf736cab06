"""A caller that listens to a job's events without a wire: what it is sent, and when."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.types import Message

from functions.cli.events import Event, read_events
from functions.web.api import answer_api
from functions.web.application import Application
from tests.faults.world import TENANT, World
from tests.unit.web.asking import api_over, give_key

KEY = "ek_listener"


async def listened_api(world: World, **key: Any) -> Application:
    """Return the world's API, with a key on record for listeners."""
    await give_key(world, KEY, tenant=key.pop("tenant", TENANT), role="submitter", **key)
    return api_over(world)


@dataclass(kw_only=True)
class Listener:
    """One request for a job's events; `reading` is cleared by a caller that stops to read.

    `sent` counts what was begun to be sent, `blocks` holds what arrived.
    """

    application: Application
    path: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    answered: dict[str, str] = field(default_factory=dict)
    blocks: list[tuple[float, bytes]] = field(default_factory=list)
    sent: int = 0
    ended: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.reading.set()

    async def listen(self) -> None:
        """Ask, and take what comes until the answer ends."""
        named = {"authorization": f"Bearer {KEY}", **self.headers}
        path, _, query = self.path.partition("?")
        scope = {
            "type": "http",
            "method": self.method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), text.encode()) for name, text in named.items()],
            "server": ("test", 80),
            "scheme": "http",
        }
        response = await answer_api(self.application, Request(scope, self._receive))
        await response(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent += 1
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            self.answered = {name.decode(): text.decode() for name, text in headers}
            return
        if message["body"]:
            now = self.application.services.clock.monotonic()
            self.blocks.append((now, message["body"]))
        self.ended = self.ended or not message.get("more_body", False)

    @property
    def content(self) -> bytes:
        """All that was sent."""
        return b"".join(block for _, block in self.blocks)

    async def events(self) -> list[Event]:
        """Return the events as a client reads them."""

        async def chunks() -> Any:
            yield self.content

        return [event async for event in read_events(chunks())]

    async def states(self) -> list[str]:
        """Return the job's states in the order in which they were told."""
        return [json.loads(event.data)["state"] for event in await self.events()]


def listener(application: Application, job: str, **options: Any) -> Listener:
    """Return a caller for a job's events."""
    query = options.pop("query", "")
    return Listener(application=application, path=f"/v1/jobs/{job}/events{query}", **options)


async def turned(turns: int = 50) -> None:
    """Let everything run that can, for some turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
