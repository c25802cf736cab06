"""What the real bucket adapter sends, once, and what it makes of answers that say nothing certain.

A small server of our own stands in for Cloud Storage, because the emulator gives none of them.
"""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from functions.adapters.gcs import GcsObjects
from functions.core.errors import ObjectMissing, ObjectsUnavailable

OBJECT = {"name": "n", "generation": "7", "size": "1", "metadata": {}}
NO_BUCKET = "The specified bucket does not exist."


@dataclass(slots=True)
class Answers:
    """What the server says to everything, and what it was asked."""

    status: int = 200
    text: str = ""
    asked: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    body: bytes | None = None
    silent: threading.Event | None = None


@pytest.fixture
def answers() -> Answers:
    """Answers that a test may change."""
    return Answers()


@pytest.fixture
def server(answers: Answers) -> Iterator[str]:
    """The server's URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            answers.sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base
            """Say nothing."""

        def _answer(self) -> None:
            answers.asked.append(self.path)
            if answers.silent is not None:
                answers.silent.wait(10)
            failure = {"error": {"code": answers.status, "message": answers.text}}
            body = json.dumps(OBJECT if answers.status == 200 else failure).encode()
            body = body if answers.body is None else answers.body
            self.send_response(answers.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


@pytest.fixture
async def objects(server: str) -> AsyncIterator[GcsObjects]:
    """Objects at that server."""
    made = GcsObjects("bucket", emulator_host=server, timeout_seconds=5)
    yield made
    await made.aclose()


async def create(objects: GcsObjects) -> object:
    """Create an object."""
    return await objects.create("n", b"x", content_type="text/plain", metadata={})


async def test_a_create_carries_its_precondition(objects: GcsObjects, answers: Answers) -> None:
    """The upload is one multipart request with `ifGenerationMatch=0`."""
    await create(objects)
    [asked] = answers.asked
    query = parse_qs(urlsplit(asked).query)
    assert (query["ifGenerationMatch"], query["uploadType"]) == (["0"], ["multipart"])


async def test_an_object_in_the_way_is_a_value(objects: GcsObjects, answers: Answers) -> None:
    """412 means that an object is there: None, after one request."""
    answers.status = 412
    assert await create(objects) is None
    assert len(answers.asked) == 1


UNCERTAIN = [
    (401, ""),
    (403, ""),
    (404, NO_BUCKET),
    (408, ""),
    (429, ""),
    (500, ""),
    (502, ""),
    (503, ""),
    (504, ""),
]


@pytest.mark.parametrize(("status", "text"), UNCERTAIN)
async def test_no_other_answer_is_certain(
    objects: GcsObjects, answers: Answers, status: int, text: str
) -> None:
    """A refusal, an outage or a missing bucket is unavailable, never missing; asked once each."""
    answers.status, answers.text = status, text
    with pytest.raises(ObjectsUnavailable):
        await create(objects)
    with pytest.raises(ObjectsUnavailable):
        await objects.stat("n")
    with pytest.raises(ObjectsUnavailable):
        await objects.read("n")
    with pytest.raises(ObjectsUnavailable):
        await objects.list_page("")
    with pytest.raises(ObjectsUnavailable):
        await objects.delete("n", 7)
    assert len(answers.asked) == 5


async def test_only_404_for_the_object_is_missing(objects: GcsObjects, answers: Answers) -> None:
    """404 about the object is certain: None or ObjectMissing."""
    answers.status, answers.text = 404, "No such object: bucket/n"
    assert await objects.stat("n") is None
    with pytest.raises(ObjectMissing):
        await objects.read("n")


async def test_the_server_can_tell_damaged_bytes(objects: GcsObjects, answers: Answers) -> None:
    """The upload names the MD5 of its bytes, which Cloud Storage compares with what arrived."""
    await create(objects)
    [sent] = answers.sent
    assert b'"md5Hash": "ndTkYSaMgDT1yFZOFVxnpg=="' in sent  # of b"x"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"name": "n"}'])
async def test_a_success_that_describes_no_object_is_not_certain(
    objects: GcsObjects, answers: Answers, body: bytes
) -> None:
    """A page of some proxy with status 200 is no answer of Cloud Storage."""
    answers.body = body
    with pytest.raises(ObjectsUnavailable):
        await create(objects)
    with pytest.raises(ObjectsUnavailable):
        await objects.stat("n")


async def test_an_answer_that_does_not_come_is_an_outage(server: str, answers: Answers) -> None:
    """Every request ends within the timeout, and is sent once."""
    answers.silent = threading.Event()
    objects = GcsObjects("bucket", emulator_host=server, timeout_seconds=0.2)
    with pytest.raises(ObjectsUnavailable):
        await create(objects)
    answers.silent.set()
    await objects.aclose()
    assert len(answers.asked) == 1


async def test_no_server_is_an_outage() -> None:
    """A connection that cannot be made is unavailable."""
    objects = GcsObjects("bucket", emulator_host="127.0.0.1:1")
    with pytest.raises(ObjectsUnavailable):
        await create(objects)
    with pytest.raises(ObjectsUnavailable):
        await objects.stat("n")
    with pytest.raises(ObjectsUnavailable):
        await objects.read("n")
    await objects.aclose()
