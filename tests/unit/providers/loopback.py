"""A raw TCP server on the loopback: it answers byte by byte, and sees who leaves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Loopback:
    """The running server: its URL, the requests it read, and the connections it had."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[Loopback]:
    """Serve `behaviour` after each request that was read; note when a client goes away."""
    loopback = Loopback()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loopback.connections += 1
        try:
            while request := await _request(reader):
                loopback.requests.append(request)
                loopback.arrived.set()
                await behaviour(reader, writer)
        except ConnectionError:
            pass
        finally:
            loopback.left.set()
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    loopback.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield loopback


def response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    """Return a whole HTTP response."""
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def answering(data: bytes, *, close: bool = False) -> Behaviour:
    """Return a behaviour that writes these bytes, and may then close the connection."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if close:
            raise ConnectionAbortedError

    return behave


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answer; return when the client has gone."""
    await reader.read()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send headers, then a space every 10 ms until the client has gone."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    gone = asyncio.ensure_future(reader.read())
    while not gone.done():
        writer.write(b" ")
        await asyncio.wait({gone}, timeout=0.01)


async def _request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].split(b":")[1]) if lengths else 0
    return head + await reader.readexactly(size)
