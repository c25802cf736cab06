"""The image's start command as a process, for each target: start, end, and what it imports."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from functions import serving as serving_module
from functions.config import TARGETS
from functions.core import versions
from functions.core.ports import Message
from infra.local.tokens import issue_token, new_signing_key
from tests.cases.scenes import envelope
from tests.infra.image import ACCOUNT, AUDIENCE, REPOSITORY, environment, lay_out, serving

ENDED = (0, -signal.SIGTERM)  # uvicorn ends by raising the signal again
KILLED_AFTER_SECONDS = 10.0  # what Cloud Run waits after SIGTERM


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the image holds, and nothing else of the repository."""
    return lay_out(tmp_path_factory.mktemp("image") / "app")


@dataclass(kw_only=True)
class SilentHost:
    """Takes connections and says nothing until it is told to hang up."""

    port: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)
    hang_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keep a connection open until the end."""
        self.met.set()
        await self.hang_up.wait()
        writer.close()


@asynccontextmanager
async def silent_host() -> AsyncIterator[SilentHost]:
    """A host on loopback for the length of the block."""
    host = SilentHost()
    server = await asyncio.start_server(host.handle, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        host.hang_up.set()
        server.close()


async def healthy(http: httpx.AsyncClient, address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the process answers."""
    while True:
        try:
            answer = await http.get(f"{address}/health")
        except httpx.TransportError:
            assert process.poll() is None
            await asyncio.sleep(0.05)
        else:
            assert answer.status_code == 200
            return


def asked(target: str) -> tuple[str, str, bytes]:
    """Return method, path and body of a request that makes a target ask the ledger."""
    if target == "api":
        return "GET", "/v1/jobs", b""
    if target == "reconcile":
        return "POST", "/?mode=repair", b""
    seat = {"v": versions.SEAT_MESSAGE.written, "job": "job_1", "run": 1, "seat": 0}
    body = {**seat, "work_key": "a"}
    if target == "notify":
        body = {"v": versions.NOTIFICATION_MESSAGE.written, "notification": "dec_1.1"}
    attributes = {"job": "job_1", "run": "1", "seat": "0"}
    return "POST", "/", envelope(Message(data=json.dumps(body).encode(), attributes=attributes))


@pytest.mark.parametrize("target", TARGETS)
async def test_each_target_starts_from_the_image_and_ends_in_order(
    app: Path, target: str, tmp_path: Path
) -> None:
    """The image's files and its command suffice. SIGTERM: who has asked is answered, then it ends.

    The request waits for a ledger that says nothing, so it is in flight when the signal comes.
    """
    key = new_signing_key()
    key.save_certificates(tmp_path / "certs.json")
    token = issue_token(key, audience=AUDIENCE, account=ACCOUNT)
    credential = "key" if target == "api" else token
    headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
    async with silent_host() as ledger, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        settings = {
            "FIRESTORE_EMULATOR_HOST": f"127.0.0.1:{ledger.port}",
            "EMPANEL_PUSH_CERTS": str(tmp_path / "certs.json"),
        }
        with serving(app, target, settings) as (address, process):
            async with asyncio.timeout(60):
                await healthy(http, address, process)
                method, path, body = asked(target)
                sent = http.request(method, f"{address}{path}", content=body, headers=headers)
                answering = asyncio.create_task(sent)
                await ledger.met.wait()
                told = time.monotonic()
                process.send_signal(signal.SIGTERM)
                await _logged(process, "shutting down")
                assert not answering.done()
                ledger.hang_up.set()
                answer = await answering
                status = await asyncio.to_thread(process.wait, 30)
                seconds = time.monotonic() - told
    assert answer.status_code == 503
    assert status in ENDED
    assert seconds < KILLED_AFTER_SECONDS


async def _logged(process: subprocess.Popen[bytes], message: str) -> None:
    """Wait until the process has logged an event."""
    assert process.stdout is not None
    while line := await asyncio.to_thread(process.stdout.readline):
        if json.loads(line)["message"] == message:
            return
    raise AssertionError(f"{message!r} was never logged")


# Needed by the command line, the drill, the local stack or tests only; or at the first use.
NEVER_AT_START = frozenset(
    {
        "functions.cli",
        "functions.drill",
        "genai_prices.data",  # at the first price that is asked for
        "google.cloud.pubsub_v1",  # google.pubsub_v1 is a third of it
        "google.cloud.storage",  # aiohttp asks the bucket
        "infra",
        "pytest",
        "typer",
        "xllamacpp",
    }
)


@pytest.mark.parametrize("target", ["api", "dead_letter"])
def test_a_target_imports_nothing_that_it_does_not_need(app: Path, target: str) -> None:
    """The API's models are for the API; nothing is left to import at the first request."""
    modules = _imported(app, target)
    assert not NEVER_AT_START & modules
    assert serving_module.DOORS[target] in modules
    foreign = {"functions.web.api", "functions.web.request_models", "functions.web.openapi"}
    assert foreign <= modules if target == "api" else not foreign & modules


def test_each_target_has_its_door() -> None:
    """What `main.py` imports in a target is what is imported before the first request."""
    source = (REPOSITORY / "main.py").read_text(encoding="utf-8")
    found = re.findall(
        r"^async def (\w+)\(.*?from (functions\.web\.\w+) import", source, re.M | re.S
    )
    assert dict(found) == serving_module.DOORS
    assert set(serving_module.DOORS) == set(TARGETS)


def _imported(app: Path, target: str) -> frozenset[str]:
    """Return the modules of a process of the image that is about to serve."""
    code = (
        "import json, sys; from functions import serving; "
        f"serving.create_app({target!r}); print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=app,
        env=environment(target, 0),
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(json.loads(done.stdout.splitlines()[-1]))
