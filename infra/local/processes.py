"""Child processes that never outlive their supervisor.

Each child leads a session of its own, so that a Ctrl-C in the terminal reaches the supervisor
only and a signal to the child's group reaches its helpers too. `Children` ends them all when its
block is left; the guard process does it when the supervisor itself was killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.local import guard
from infra.local.errors import ProcessFailed
from infra.local.files import CHECKOUT

POLL_SECONDS = 0.05
LOG_TAIL_LINES = 15


class Child:
    """One running process: its PID, its log and how to end it."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The process ID, which is also the ID of its group and session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code.

        Polls, because the alternatives are a thread per child or Linux only.
        """
        while (exit_code := self.exit_code) is None:  # noqa: ASYNC110 - see above
            await asyncio.sleep(POLL_SECONDS)
        return exit_code

    def send(self, signal_number: int) -> None:
        """Send a signal to the process and its helpers; nothing happens when they are gone."""
        guard.signal_groups([self.pid], signal_number)

    async def stop(self, grace_seconds: float) -> int:
        """Ask the process to end, and end it by force when the grace time is over."""
        try:
            self.send(signal.SIGTERM)
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        except TimeoutError:
            return await self._kill()
        finally:
            self.send(signal.SIGKILL)  # also when cancelled; and helpers that outlived the leader

    async def _kill(self) -> int:
        self.send(signal.SIGKILL)
        return await self.wait()

    def log_tail(self) -> str:
        """The last lines of the log, for error messages."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-LOG_TAIL_LINES:]) or "    (empty)"

    def failure(self, what: str) -> ProcessFailed:
        """An exception that says what happened and quotes the end of the log."""
        return ProcessFailed(f"{self.name} {what}; end of {self.log}:\n{self.log_tail()}")


class Children:
    """The processes of one supervisor; leaving the block ends those that still run."""

    def __init__(self, logs: Path, grace_seconds: float = 3.0) -> None:
        self._logs = logs
        self._grace_seconds = grace_seconds
        self._running: list[Child] = []
        self._guard: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._guard = subprocess.Popen(  # noqa: ASYNC220, S603 - returns at once; our own file
            [sys.executable, "-S", "-E", guard.__file__],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await asyncio.gather(
                *(self.stop(child, self._grace_seconds) for child in [*self._running])
            )
        finally:
            self._close_guard()

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a process whose output goes to `NAME.log`; it is running when this returns.

        Deliberately not a coroutine: nothing can cancel it between the start and the
        registration with the guard.
        """
        log = self._logs / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - the stack's own commands, no shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=CHECKOUT,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._running.append(child)
        self._tell_guard("+", child)
        return child

    async def stop(self, child: Child, grace_seconds: float) -> None:
        """End a process (SIGTERM, then SIGKILL after the grace time) and forget it."""
        try:
            await child.stop(grace_seconds)
        finally:
            self.forget(child)

    def forget(self, child: Child) -> None:
        """Take a process that has ended off the list; its leftovers, if any, are ended."""
        child.send(signal.SIGKILL)
        if child in self._running:
            self._running.remove(child)
            self._tell_guard("-", child)

    def _tell_guard(self, operation: str, child: Child) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            try:
                self._guard.stdin.write(f"{operation}{child.pid}\n".encode())
            except BrokenPipeError:
                # The guard was killed: cleaning up now depends on this process alone.
                self._guard = None

    def _close_guard(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()


def child_environment(**extra: str) -> dict[str, str]:
    """This process's environment for a child, with loopback kept off any HTTP proxy."""
    environment = {**os.environ, **extra}
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in environment.get(name, "").split(",") if host]
        environment[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    return environment
