"""Server-sent events out of an answer's bytes (HTML standard, "Parsing an event stream").

Reads what an Empanel API sends: lines end with LF or CRLF. A block without data is no event.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from dataclasses import dataclass

MAX_LINE_BYTES = 16 * 1024 * 1024


class NotEvents(Exception):
    """The bytes are no event stream: a line does not end."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event; `identity` is the last one given, `retry_seconds` when to connect again."""

    name: str
    identity: str
    data: bytes
    retry_seconds: float | None


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Event, None]:
    """Yield each event once its block is complete; an unfinished one at the end is dropped.

    Raises:
        NotEvents: a line is longer than any that an API sends.
    """
    identity, retry_seconds = "", None
    name, data = "", list[bytes]()
    async for line in _lines(chunks):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                yield Event(
                    name=name or "message",
                    identity=identity,
                    data=b"\n".join(data),
                    retry_seconds=retry_seconds,
                )
            name, data = "", []
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            identity = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit() and len(value) <= 9:
            retry_seconds = int(value) / 1000


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > MAX_LINE_BYTES:
            raise NotEvents("a line does not end")
