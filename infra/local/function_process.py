"""One instance of one function, started again when it dies, as the platform would."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from infra.local.errors import ProcessFailed
from infra.local.network import LOOPBACK, answers_ok, loopback_client, wait_until_ready
from infra.local.processes import POLL_SECONDS, Child, Children

START_SECONDS = 60.0
GRACE_SECONDS = 10.0  # what Cloud Run gives between SIGTERM and SIGKILL
SHORTEST_RESTART_SECONDS = 0.2
LONGEST_RESTART_SECONDS = 5.0
SETTLED_SECONDS = 10.0  # an instance that lived this long starts the restart times afresh

log = logging.getLogger("stack")


def next_restart_seconds(last_seconds: float, lived_seconds: float) -> float:
    """How long to wait before the next start, given the last wait and the last life."""
    if last_seconds == 0 or lived_seconds >= SETTLED_SECONDS:
        return SHORTEST_RESTART_SECONDS
    return min(LONGEST_RESTART_SECONDS, 2 * last_seconds)


class FunctionProcess:
    """An instance at a fixed port; its PID changes with each restart."""

    def __init__(
        self,
        *,
        name: str,
        port: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        children: Children,
        on_restart: Callable[[], None],
    ) -> None:
        self.name = name
        self.url = f"http://{LOOPBACK}:{port}"
        self._health = f"{self.url}/health"
        self._command = command
        self._environment = environment
        self._children = children
        self._on_restart = on_restart
        self._wanted = asyncio.Event()
        self._child: Child | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The PID of the running process; None while there is none."""
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start the instance, wait until it is healthy, and keep it alive from then on.

        Raises:
            ProcessFailed: it ended or was not healthy in time; quotes its log.
        """
        self._wanted.set()
        child = self._spawn()
        await wait_until_ready(child, self._health, START_SECONDS)
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(child))

    async def ready(self, *, not_pid: int | None = None) -> int:
        """Wait until a process, other than one that is known to die, is healthy; its PID.

        Raises:
            TimeoutError: there was none within a minute.
        """
        async with asyncio.timeout(START_SECONDS), loopback_client() as client:
            while True:
                child = self._child
                other = child is not None and child.pid != not_pid and child.exit_code is None
                if child is not None and other and await answers_ok(client, self._health):
                    return child.pid
                await asyncio.sleep(POLL_SECONDS)

    def kill(self, signal_number: int = signal.SIGKILL) -> int:
        """Send a signal to the running process; its PID. It is started again when it ends."""
        if self._child is None:
            raise ProcessFailed(f"{self.name} does not run at the moment")
        self._child.send(signal_number)
        return self._child.pid

    async def hold(self) -> None:
        """End the process and leave the function down until `release`."""
        self._wanted.clear()
        child = self._child
        if child is not None:
            await child.stop(GRACE_SECONDS)

    def release(self) -> None:
        """Let the function be started again."""
        self._wanted.set()

    async def stop(self) -> None:
        """End the instance for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._child is not None:
            await self._children.stop(self._child, GRACE_SECONDS)
            self._child = None

    def _spawn(self) -> Child:
        self._child = self._children.start(self.name, self._command, self._environment)
        return self._child

    async def _keep(self, child: Child) -> None:
        wait_seconds = 0.0
        while True:
            since = time.monotonic()
            exit_code = await child.wait()
            self._child = None
            self._children.forget(child)
            if self._wanted.is_set():
                wait_seconds = next_restart_seconds(wait_seconds, time.monotonic() - since)
                log.warning(
                    "%s ended with exit code %d; it is started again in %.1f s (log: %s)",
                    self.name,
                    exit_code,
                    wait_seconds,
                    child.log,
                )
                await asyncio.sleep(wait_seconds)
            await self._wanted.wait()
            child = self._spawn()
            self._on_restart()
