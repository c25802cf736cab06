"""Following a job by its event stream: how events are read, and what happens when streams fail."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from functions.cli import events as cli_events
from functions.cli.client import Api, Received
from functions.cli.events import Event, NotEvents, read_events
from functions.cli.watching import FRUITLESS_STREAMS, watch
from tests.unit.fake_api import job_body

EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
BROKEN = httpx.ReadError("broken off")


def event(state: str, identity: str) -> bytes:
    """One event as the API sends it."""
    data = json.dumps(job_body(state)).encode()
    return b"event: job\nid: " + identity.encode() + b"\ndata: " + data + b"\n\n"


async def read(*chunks: bytes) -> list[Event]:
    """The events in some chunks."""

    async def coming() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [found async for found in read_events(coming())]


async def test_events_are_read_wherever_the_chunks_end() -> None:
    """Byte by byte or at once: the same events, IDs and reconnection times."""
    content = b": open\n\nretry: 1500\n\n" + event("running", '"a"') + b": open\n\n"
    content += event("succeeded", '"b"').replace(b"\n", b"\r\n")
    at_once = await read(content)
    assert await read(*(bytes([byte]) for byte in content)) == at_once
    assert [(each.name, each.identity, each.retry_seconds) for each in at_once] == [
        ("job", '"a"', 1.5),
        ("job", '"b"', 1.5),
    ]
    assert json.loads(at_once[1].data)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("content", "data"),
    [
        (b"data: x\ndata: y\n\n", [b"x\ny"]),
        (b"data:x\n\n", [b"x"]),
        (b"data:  x\n\n", [b" x"]),
        (b"data: \xe2\x80\xa8 \xc2\x85 \x0b \x1c\n\n", [b"\xe2\x80\xa8 \xc2\x85 \x0b \x1c"]),
        (b"data\n\n", [b""]),
        (b"id: 1\n\nevent: e\n\n", []),
        (b"data: cut off", []),
        (b"data: cut off\n", []),
        (b"what: x\nretry: soon\nid: \0\ndata: x\n\n", [b"x"]),
        (b"", []),
    ],
)
async def test_only_whole_events_with_data_count(content: bytes, data: list[bytes]) -> None:
    """As the HTML standard has it; only line feeds end lines, whatever JSON holds."""
    found = await read(content)
    assert [each.data for each in found] == data
    assert {each.identity for each in found} <= {""}


async def test_a_line_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, whatever answers."""
    monkeypatch.setattr(cli_events, "MAX_LINE_BYTES", 100)
    with pytest.raises(NotEvents):
        await read(b"data: ", b"x" * 200)


class Streams:
    """An API that answers requests for events by a script, and others with a job that has ended."""

    def __init__(self, *script: Sequence[bytes | Exception] | httpx.Response | Exception) -> None:
        self.script = list(script)
        self.last_event_ids: list[str | None] = []
        self.polls = 0
        self.slept: list[float] = []
        self.states: list[str] = []

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer."""
        if not request.url.path.endswith("/events"):
            self.polls += 1
            return httpx.Response(200, json=job_body("succeeded"))
        self.last_event_ids.append(request.headers.get("last-event-id"))
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        if isinstance(step, httpx.Response):
            return step
        return httpx.Response(200, headers=EVENT_STREAM, content=self._parts(step))

    async def _parts(self, parts: Sequence[bytes | Exception]) -> AsyncIterator[bytes]:
        for part in parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def follow(self) -> Received[Any]:
        """Watch a job to its end."""
        transport = httpx.MockTransport(self.handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            return await watch(
                Api(http), "j1", lambda job: self.states.append(job.state), sleep=self._sleep
            )


async def test_a_stream_to_the_end_needs_no_other_request() -> None:
    """Every state is shown; what is returned are the bytes of the last one."""
    api = Streams([event("accepted", '"a"') + event("running", '"b"'), event("failed", '"c"')])
    received = await api.follow()
    assert json.loads(received.raw) == job_body("failed")
    assert api.states == ["accepted", "running", "failed"]
    assert (api.polls, api.slept) == (0, [])


@pytest.mark.parametrize("end", [[], [BROKEN]])
async def test_a_stream_that_breaks_off_is_resumed(end: list[Exception]) -> None:
    """With the ID of the last event, after the time that the API gave; nothing is shown twice."""
    first: list[bytes | Exception] = [b"retry: 2500\n\n" + event("running", '"b"'), *end]
    api = Streams(first, [event("succeeded", '"c"')])
    await api.follow()
    assert api.last_event_ids == [None, '"b"']
    assert api.slept == [2.5]
    assert api.states == ["running", "succeeded"]
    assert api.polls == 0


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"title": "Not Found"}),
        httpx.Response(429, json={"title": "Too many"}, headers={"Retry-After": "5"}),
        httpx.Response(503, json={"title": "Unavailable"}),
        httpx.Response(502, text="<html>Bad Gateway</html>"),
        httpx.Response(200, json=job_body("running")),
        httpx.Response(204),
        httpx.ConnectError("refused"),
        [b"event: job\ndata: no JSON\n\n"],
        [b'event: job\ndata: {"id": 1}\n\n'],
    ],
)
async def test_without_a_stream_the_job_is_read(answer: Any) -> None:
    """Whatever is wrong with the stream, the plain reads tell how it is."""
    api = Streams(answer)
    await api.follow()
    assert api.states == ["succeeded"]
    assert api.polls == 1
    assert len(api.last_event_ids) == 1


async def test_streams_that_bring_nothing_are_left() -> None:
    """Such as those behind a proxy that keeps answers back: no endless reconnecting."""
    api = Streams([b": open\n\n"])
    await api.follow()
    assert len(api.last_event_ids) == FRUITLESS_STREAMS
    assert api.polls == 1


async def test_a_stream_that_is_refused_later_leaves_the_rest_to_reads() -> None:
    """What was shown before stays shown; the end comes by a read."""
    api = Streams([event("running", '"b"')], httpx.Response(503, json={"title": "Unavailable"}))
    await api.follow()
    assert api.states == ["running", "succeeded"]
    assert api.polls == 1
