"""The test's side of the stub: starts the process, scripts it, reads its stats, ends it."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.stub.book import Stats
from tests.stub.script import Rule, Script
from tests.stub.server import STATS, Settings

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 20.0
_END_SECONDS = 5.0
_POLL_SECONDS = 0.01


class StubRefusedError(ValueError):
    """The stub did not accept a script; the message says which field of which rule is wrong."""


class StubProvider:
    """A stub provider process for the length of an ``async with`` block.

    Inside the block ``url`` is the server's root, ``base_url`` the same with ``/v1`` (what
    ``OPENAI_BASE_URL`` takes), ``api_key`` the key that counts as right, and ``environment`` both
    as environment variables. ``port`` 0 picks a free port; a fixed one lets a test end the provider
    and start it again at the same address.
    """

    def __init__(
        self,
        *rules: Rule,
        latency_seconds: float = 0.0,
        jitter: float = 0.0,
        seed: int = 0,
        require_key: bool = False,
        port: int = 0,
    ) -> None:
        self.api_key = Settings().api_key
        self.url = ""
        self._first_script = Script(
            rules=rules, latency_seconds=latency_seconds, jitter=jitter, seed=seed
        )
        self._options = ["--port", str(port), *(["--require-key"] if require_key else [])]
        self._process: asyncio.subprocess.Process | None = None
        self._admin: httpx.AsyncClient | None = None

    @property
    def base_url(self) -> str:
        """The address of the dialect, with ``/v1``."""
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        """The port that the stub listens on."""
        return httpx.URL(self.url).port or 0

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use this stub as its ``openai`` provider."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": self.api_key}

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.stub", "--end-with-stdin", *self._options),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            self.url = await self._ready_url()
            self._admin = httpx.AsyncClient(base_url=self.url, timeout=_START_SECONDS)
            await self._post("/admin/script", self._first_script.model_dump_json())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()

    async def script(
        self,
        *rules: Rule,
        latency_seconds: float | None = None,
        jitter: float | None = None,
        seed: int | None = None,
    ) -> None:
        """Replace all rules, and the latency where given; counts stay. No rules: no faults."""
        script = Script(rules=rules, latency_seconds=latency_seconds, jitter=jitter, seed=seed)
        await self._post("/admin/script", script.model_dump_json())

    async def script_json(self, script: str) -> None:
        """Replace the script by JSON text. Raises ``StubRefusedError`` when it breaks a rule."""
        await self._post("/admin/script", script)

    async def reset(self, *, keep_rules: bool = False) -> None:
        """Forget what was seen; the rules go too, or stay and begin again with their lists."""
        await self._post("/admin/reset", json.dumps({"keep_rules": keep_rules}))

    async def stats(self, *, requests: bool = True, bodies: bool = False) -> Stats:
        """What the stub saw; without records or bodies it costs little however much that is."""
        query = {"requests": str(requests).lower(), "bodies": str(bodies).lower()}
        response = await self._client.get("/admin/stats", params=query)
        return STATS.validate_json(response.raise_for_status().content)

    async def wait_for(
        self, condition: Callable[[Stats], bool], *, timeout_seconds: float = 10.0
    ) -> Stats:
        """Look at the counts until ``condition`` holds, and return them (without records).

        Raises ``TimeoutError`` with the last totals when it does not hold in time.
        """
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while not condition(stats := await self.stats(requests=False)):
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"not so after {timeout_seconds} s: {stats.totals}")
            await asyncio.sleep(_POLL_SECONDS)
        return stats

    @property
    def _client(self) -> httpx.AsyncClient:
        if self._admin is None:
            raise RuntimeError("the stub runs only inside its async with block")
        return self._admin

    async def _post(self, path: str, body: str) -> None:
        response = await self._client.post(path, content=body)
        if response.status_code == httpx.codes.BAD_REQUEST:
            raise StubRefusedError(response.json()["error"])
        response.raise_for_status()

    async def _ready_url(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the stub provider ended before it listened; see its stderr")
        return str(json.loads(line)["url"])

    async def _end(self) -> None:
        if self._admin is not None:
            await self._admin.aclose()
            self._admin = None
        process = self._process
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
