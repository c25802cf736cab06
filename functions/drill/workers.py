"""The drill's hold on a worker process: start it, wait for its word, freeze it, kill it."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from functions.core.jobs import Job
from functions.dispatch import seat_message
from functions.drill.site import NotSeen, Site
from functions.drill.worker import Orders, Plan

SOURCES = Path(__file__).resolve().parents[2]
TOLD_CHARACTERS = 500


class Worker:
    """One worker process and its errors' file."""

    def __init__(
        self, process: asyncio.subprocess.Process, errors: IO[bytes], patience_seconds: float
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a worker is spoken to through pipes")
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._errors = errors
        self._patience_seconds = patience_seconds
        self.said: list[str] = []

    async def hears(self, line: str) -> None:
        """Tell the worker something."""
        self._stdin.write(f"{line}\n".encode())
        await self._stdin.drain()

    async def says(self, word: str) -> str:
        """Wait for a word of the worker; the rest of its line.

        Raises:
            NotSeen: it ended without, or did not say it in time.
        """
        try:
            async with asyncio.timeout(self._patience_seconds):
                while line := (await self._stdout.readline()).decode().strip():
                    self.said.append(line)
                    if line.split()[0] == word:
                        return line.removeprefix(word).strip()
        except TimeoutError:
            raise NotSeen(f"a worker did not say {word!r}; it said {self.said}") from None
        self._errors.seek(0)
        told = self._errors.read().decode("utf-8", "replace")[-TOLD_CHARACTERS:]
        raise NotSeen(f"a worker ended without {word!r}; it said {self.said}, and: {told}")

    def freeze(self) -> None:
        """Let the process stand still, as a paused machine would."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process go on, as if it had never stood still."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End the process at once, if it has not ended."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def open_worker(
    site: Site, job: Job, plan: Plan, *, call_seconds: float = 0.0
) -> AsyncIterator[Worker]:
    """A worker that is ready to work on the job's first seat; killed at the end of the block."""
    orders = Orders(
        environ=site.deployment.environment,
        message=seat_message(job, 0),
        provider=site.asked.provider,
        endpoint=site.pinned.endpoint,
        plan=plan,
        call_seconds=call_seconds,
    )
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "functions.drill.worker"),
            cwd=SOURCES,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        worker = Worker(process, errors, site.patience_seconds)
        try:
            await worker.hears(orders.line().decode().strip())
            await worker.says("ready")
            yield worker
        finally:
            await worker.kill()
