"""The independent servers, started once per session.

Where one is not installed its tests are skipped; `EMPANEL_REQUIRE_EMULATORS=1` (CI) makes that an
error.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from infra.local.emulators import emulators_required
from infra.local.network import LOOPBACK, free_port, wait_until_ready
from infra.local.processes import Children, child_environment
from tests.independent.answers import FIXTURES
from tests.independent.llmock import Llmock
from tests.independent.servers import (
    NotInstalled,
    aimock_command,
    llmock_command,
    write_fixtures,
)

START_SECONDS = 30.0

Running = tuple[Children, asyncio.Runner]


@pytest.fixture(scope="session")
def llmock_url(children: Running) -> str:
    """Where llmock listens."""
    return _started(children, "llmock", llmock_command)


@pytest.fixture(scope="session")
def aimock_url(children: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where aimock listens, with the fixtures of `answers`."""
    file = write_fixtures(tmp_path_factory.mktemp("aimock") / "fixtures.json", FIXTURES)
    return _started(children, "aimock", lambda port: aimock_command(port, file))


@pytest.fixture(scope="session")
def llmock_control(llmock_url: str) -> Iterator[Llmock]:
    """llmock's control interface."""
    with Llmock(llmock_url) as server:
        yield server


@pytest.fixture
def llmock(llmock_control: Llmock) -> Llmock:
    """A llmock that has seen nothing yet."""
    llmock_control.reset()
    return llmock_control


def _started(children: Running, name: str, command: Callable[[int], list[str]]) -> str:
    processes, runner = children
    port = free_port()
    try:
        child = processes.start(name, command(port), child_environment())
    except NotInstalled as exc:
        if emulators_required():
            raise
        pytest.skip(str(exc))
    url = f"http://{LOOPBACK}:{port}"
    runner.run(wait_until_ready(child, f"{url}/health", START_SECONDS))
    return url
