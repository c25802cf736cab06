"""Telemetry leaves before the last open request's answer is complete: then the CPU may be gone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from functions.exporting import Exporting


class Flushing:
    """Counts the open requests of a process and flushes when the last one is answered.

    `functions.exporting` bounds how long that takes, and how often it is tried in vain.
    """

    def __init__(self, app: ASGIApp, exporting: "Callable[[], Exporting | None]") -> None:
        """Wrap an application; `exporting` is asked at the end of requests, in their process."""
        self._app = app
        self._exporting = exporting
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything else goes through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        flushed = False

        async def send_last(message: Message) -> None:
            nonlocal flushed
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if last and not flushed:
                flushed = True
                await self._leave()
            await send(message)

        self._open += 1
        if (exporting := self._exporting()) is not None:
            exporting.run()
        try:
            await self._app(scope, receive, send_last)
        finally:
            if not flushed:
                self._open -= 1

    async def _leave(self) -> None:
        self._open -= 1
        exporting = self._exporting()
        if self._open == 0 and exporting is not None:
            await exporting.flush_after_request()
