"""A receiver of webhooks at a real socket: keeps what came in, answers by a script."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from standardwebhooks import Webhook

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    """Return the bytes of an answer."""
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came off the socket; header names in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes

    def verify(self, secret: str) -> None:
        """Verify as a receiver would, with the verifier that the signatures' makers publish."""
        Webhook(secret).verify(self.body, self.headers)


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass(kw_only=True)
class Receiver:
    """What came in. `answers` are used up in order; after them each request gets a 200."""

    port: int
    answers: list[bytes | Answer] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    refused_bytes: int = 0

    @property
    def url(self) -> str:
        """Where it listens, with a path and a query of its own."""
        return f"http://127.0.0.1:{self.port}/hook?to=team"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which carries one request."""
        self.connections += 1
        try:
            request = await _read(reader)
            self.received.append(request)
            answer = self.answers.pop(0) if self.answers else OK
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.refused_bytes += 1
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.strip().split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, v in (text.split(":", 1) for text in rest)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Received(line=line, headers=headers, body=body)


@asynccontextmanager
async def receiving(
    *answers: bytes | Answer,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Receiver]:
    """A receiver on loopback for the length of the block."""
    receiver = Receiver(port=0, answers=list(answers))
    server = await asyncio.start_server(receiver.handle, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver
        server.close()
