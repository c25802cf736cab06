"""A gate before the bucket's server: notes what the adapter sends, and may refuse it all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from aiohttp import ClientSession, web
from aiohttp.web import BaseRequest, Response
from yarl import URL


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request that passed the gate, and the status of its answer."""

    method: str
    path: str
    query: dict[str, str]
    status: int


@dataclass(kw_only=True)
class Gate:
    """Forwards to `target`; with `refusal` it answers every request by that status itself."""

    target: str | None = None
    url: str = ""
    refusal: int | None = None
    asked: list[Asked] = field(default_factory=list)

    def of(self, method: str) -> list[Asked]:
        """Return the requests of one method."""
        return [asked for asked in self.asked if asked.method == method]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen on a free port for the length of the block."""
        async with ClientSession(auto_decompress=False) as session:

            async def answer(request: BaseRequest) -> Response:
                response = await self._answer(session, request)
                query = dict(request.query)
                asked = Asked(
                    method=request.method, path=request.path, query=query, status=response.status
                )
                self.asked.append(asked)
                return response

            runner = web.ServerRunner(web.Server(answer))
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _answer(self, session: ClientSession, request: BaseRequest) -> Response:
        body = await request.content.read()
        if self.refusal is not None or self.target is None:
            status = self.refusal or 500
            error = {"code": status, "message": "denied on resource (or it may not exist)"}
            return web.json_response({"error": error}, status=status)
        headers = {"Content-Type": request.headers.get("Content-Type", "")}
        url = URL(f"{self.target}{request.raw_path}", encoded=True)
        async with session.request(request.method, url, data=body, headers=headers) as passed:
            kept = {"Content-Type": passed.headers.get("Content-Type", "application/json")}
            return Response(status=passed.status, body=await passed.read(), headers=kept)
