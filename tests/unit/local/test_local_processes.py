"""Child processes end with their supervisor, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from infra.local.files import CHECKOUT
from infra.local.processes import Child, Children, child_environment

SLEEP = (sys.executable, "-c", "import time; time.sleep(120)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('deaf', flush=True); time.sleep(120)",
)
WITH_HELPER = (
    sys.executable,
    "-c",
    "import subprocess, sys, time; helper = subprocess.Popen(['sleep', '120']);"
    "print(helper.pid, flush=True); time.sleep(120)",
)
SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from infra.local.processes import Children, child_environment

async def main():
    async with Children(Path(sys.argv[1])) as children:
        child = children.start(
            "sleeper", [sys.executable, "-c", "import time; time.sleep(120)"],
            child_environment())
        print(child.pid, flush=True)
        await asyncio.sleep(120)

asyncio.run(main())
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)


def _start(children: Children, command: tuple[str, ...]) -> Child:
    return children.start("child", command, child_environment())


async def test_leaving_the_block_ends_every_child(tmp_path: Path) -> None:
    """No process is left, and a normal end is a SIGTERM."""
    async with Children(tmp_path) as children:
        first, second = _start(children, SLEEP), _start(children, SLEEP)
    assert (first.exit_code, second.exit_code) == (-signal.SIGTERM, -signal.SIGTERM)


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """The grace time is the longest that an end can take."""
    async with Children(tmp_path, grace_seconds=0.2) as children:
        child = _start(children, DEAF)
        await _until(lambda: "deaf" in child.log.read_text())
    assert child.exit_code == -signal.SIGKILL


async def test_the_helpers_of_a_child_end_with_it(tmp_path: Path) -> None:
    """A signal goes to the whole group, so that nothing that a child started is left over."""
    async with Children(tmp_path) as children:
        child = _start(children, WITH_HELPER)
        await _until(lambda: child.log.read_text().endswith("\n"))
    helper = int(child.log.read_text())
    await _until(lambda: not _alive(helper))


async def test_a_killed_supervisor_leaves_no_child(tmp_path: Path) -> None:
    """After kill -9 of the supervisor, the guard ends what it had started."""
    supervisor = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
    )
    assert supervisor.stdout is not None
    child = int(await asyncio.to_thread(supervisor.stdout.readline))
    assert _alive(child)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    await _until(lambda: not _alive(child))


def test_loopback_is_kept_off_a_proxy() -> None:
    """A proxy in the user's environment cannot come between the parts of the stack."""
    environment = child_environment(NO_PROXY="example.org")
    assert environment["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert {"127.0.0.1", "localhost"} <= set(environment["no_proxy"].split(","))
