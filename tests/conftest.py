"""The emulators, started once per test session and shared by all tests.

Each test takes a project or a bucket of its own. Where no emulator can be had, the tests that need
one are skipped; `EMPANEL_REQUIRE_EMULATORS=1` (CI) makes that an error.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from infra.local.emulators import EmulatorHosts, emulators_required, start_emulators
from infra.local.errors import StackError
from infra.local.processes import Children
from infra.local.storage import start_storage
from tests.infra import recording

T = TypeVar("T")
INDEX_PROOF = "test_zz_index_proof.py"  # it judges what all the others made the code ask

recording.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the proof of indexes at the end, whatever else is run."""
    items.sort(key=lambda item: item.path.name == INDEX_PROOF)


@pytest.fixture(scope="session")
def children(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Children, asyncio.Runner]]:
    """The processes of this session, and the loop that looks after them."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        processes = Children(tmp_path_factory.mktemp("logs"))
        runner.run(processes.__aenter__())
        try:
            yield processes, runner
        finally:
            runner.run(processes.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def emulator_hosts(children: tuple[Children, asyncio.Runner]) -> EmulatorHosts:
    """Where the Firestore and Pub/Sub emulators listen."""
    processes, runner = children
    return _started(runner, start_emulators(processes)).hosts


@pytest.fixture(scope="session")
def storage_url(
    children: tuple[Children, asyncio.Runner], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The base URL of the bucket server."""
    processes, runner = children
    return _started(runner, start_storage(processes, tmp_path_factory.mktemp("objects")))[1]


@pytest.fixture
def project() -> str:
    """A project of this test's own; it exists as soon as it is named."""
    return f"test-{uuid.uuid4().hex[:12]}"


def _started(runner: asyncio.Runner, start: Coroutine[Any, Any, T]) -> T:
    try:
        return runner.run(start)
    except StackError as exc:
        if emulators_required():
            raise
        pytest.skip(f"no emulator: {exc}")
