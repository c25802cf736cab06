"""A function's process is started again when it dies."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from infra.local.errors import ProcessFailed
from infra.local.function_process import FunctionProcess, next_restart_seconds
from infra.local.network import free_port
from infra.local.processes import Children, child_environment

SERVE = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
REFUSE = "print('EMPANEL_LEASE_SECONDS=3: must be 5 to 600'); raise SystemExit(2)"


@asynccontextmanager
async def _function(
    folder: Path, program: str = SERVE, restarts: list[int | None] | None = None
) -> AsyncIterator[FunctionProcess]:
    port = free_port()
    async with Children(folder) as children:
        instance = FunctionProcess(
            name="function",
            port=port,
            command=(sys.executable, "-c", program),
            environment=child_environment(PORT=str(port)),
            children=children,
            on_restart=lambda: note_restart(),
        )

        def note_restart() -> None:
            if restarts is not None:
                restarts.append(instance.pid)

        yield instance
        await instance.stop()


async def test_a_killed_function_comes_back_on_the_same_port(tmp_path: Path) -> None:
    """kill -9 costs a restart: another process, the same address, and the stack is told."""
    restarts: list[int | None] = []
    async with _function(tmp_path, restarts=restarts) as function:
        await function.start()
        first = function.kill(signal.SIGKILL)
        second = await function.ready(not_pid=first)
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{function.url}/health")).status_code == 200
    assert second != first
    assert restarts == [second]


async def test_a_function_that_is_held_stays_down_until_released(tmp_path: Path) -> None:
    """An outage lasts as long as the test wants it to."""
    async with _function(tmp_path) as function:
        await function.start()
        await function.hold()
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{function.url}/health")
        function.release()
        assert await function.ready() == function.pid


async def test_a_function_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A bad setting stops the start with the function's own words, instead of restarting."""
    async with _function(tmp_path, REFUSE) as function:
        with pytest.raises(ProcessFailed, match="EMPANEL_LEASE_SECONDS=3"):
            await function.start()


async def test_a_stopped_function_is_not_started_again(tmp_path: Path) -> None:
    """The end of the stack is not a crash."""
    async with _function(tmp_path) as function:
        await function.start()
        await function.stop()
        assert function.pid is None


def test_restarts_slow_down_to_five_seconds_and_recover() -> None:
    """A function that dies at once is not started in a tight loop; one that lived starts afresh."""
    waits, last = [], 0.0
    for _ in range(7):
        last = next_restart_seconds(last, lived_seconds=0.1)
        waits.append(last)
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    assert next_restart_seconds(5.0, lived_seconds=60) == pytest.approx(0.2)
