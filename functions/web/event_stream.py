"""An answer that goes on: server-sent events (HTML standard, "Server-sent events").

Unlike Starlette's own streaming answer it ends at once, and in order, when its caller has left, and
it does not wait for a caller who reads nothing: what is kept for a slow one is the block being sent
and the connection's buffer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from functions import telemetry
from functions.web.limits import Place
from functions.web.racing import first_of

MEDIA_TYPE = "text/event-stream"
# No proxy on the way may keep blocks back (nginx's own header) or store them.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
STALLED_SECONDS = 30.0  # for one block; a caller that takes longer is taken for gone
LAST_SECONDS = 1.0  # for what is being sent when a shutdown begins, and for the end of a stream

Blocks = Callable[[], AsyncGenerator[bytes, None]]


def event(name: str, identity: str, data: bytes) -> bytes:
    """Return one event; `data` is a single line, as JSON is."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), identity.encode(), data)


def opening(retry_seconds: float) -> bytes:
    """Return what a stream begins with: how long to wait before the next connection."""
    return b"retry: %d\n\n" % round(retry_seconds * 1000)


HEARTBEAT = b": open\n\n"


class EventStream(Response):
    """Sends blocks as they come, until there are no more; `place` is held as long as it lasts.

    Ends as well when the caller leaves, and shortly after `ending` is set, whatever is being sent.
    """

    def __init__(self, blocks: Blocks, *, place: Place, ending: asyncio.Event) -> None:
        super().__init__(headers=HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._blocks = blocks
        self._place = place
        self._ending = ending
        self._stuck = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream; what goes wrong on the way is logged, and the stream ends.

        The end cannot follow a block that is stuck: then the server closes the connection.
        """
        with self._place:
            try:
                await first_of(self._talk(send), _left(receive), self._overdue())
            except Exception as exc:  # noqa: BLE001 - too late for a problem: the last door
                telemetry.error("a stream broke off", exc=exc, path=scope["path"])
            if not self._stuck:
                ending = self._ending.is_set()
                await self._send(send, b"", LAST_SECONDS if ending else STALLED_SECONDS)

    async def _talk(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._pass(send, start, STALLED_SECONDS)  # behind an earlier answer, perhaps unread
        async with aclosing(self._blocks()) as blocks:
            while not self._stuck and (block := await anext(blocks, None)) is not None:
                await self._send(send, block, STALLED_SECONDS)

    async def _send(self, send: Send, block: bytes, within_seconds: float) -> None:
        """Send a block, an empty one to end."""
        message = {"type": "http.response.body", "body": block, "more_body": bool(block)}
        await self._pass(send, message, within_seconds)

    async def _pass(self, send: Send, message: Message, within_seconds: float) -> None:
        """Send a message; `_stuck` until, and unless, the caller takes it."""
        self._stuck = True
        try:
            async with asyncio.timeout(within_seconds):
                await send(message)
        except TimeoutError:
            return
        self._stuck = False

    async def _overdue(self) -> None:
        await self._ending.wait()
        await asyncio.sleep(LAST_SECONDS)


async def _left(receive: Receive) -> None:
    """Wait until the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
