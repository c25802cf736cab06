"""A TCP door in front of a server: a test can shut it, as a network would, and open it again."""

import asyncio
import contextlib
from typing import Self

from infra.local.network import LOOPBACK, free_port

_CHUNK_BYTES = 64 * 1024


class Gate:
    """Forwards connections to `target` (`host:port`) while it is open."""

    def __init__(self, target: str) -> None:
        self.address = f"{LOOPBACK}:{free_port()}"
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen, always at the same address."""
        host, _, port = self.address.partition(":")
        self._server = await asyncio.start_server(self._serve, host, int(port))

    async def shut(self) -> None:
        """Refuse new connections and break those that stand."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.partition(":")
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        ends = {writer, upstream_writer}
        self._writers |= ends
        try:
            await asyncio.gather(_pump(reader, upstream_writer), _pump(upstream_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):  # the gate was shut, or an end has left
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
