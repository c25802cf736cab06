"""Every port's adapters: in memory, and the real one on its emulator."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pytest

from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.memory import MemoryLedger, MemoryObjects
from functions.core.ports import Ledger, Objects
from infra.local.storage import create_bucket


class ClosableLedger(Ledger, Protocol):
    """A ledger with its connection's end."""

    async def aclose(self) -> None:
        """Close the connection."""


class ClosableObjects(Objects, Protocol):
    """Objects with their connection's end."""

    async def aclose(self) -> None:
        """Close the connection."""


@pytest.fixture(params=["memory", "firestore"])
def make_ledger(request: Any, project: str) -> Callable[[], ClosableLedger]:
    """How to make an empty ledger of each kind."""
    if request.param == "memory":
        return lambda: MemoryLedger(SystemClock())
    host = request.getfixturevalue("emulator_hosts").firestore
    return lambda: FirestoreLedger(project, emulator_host=host)


@pytest.fixture
async def ledger(make_ledger: Callable[[], ClosableLedger]) -> AsyncIterator[Ledger]:
    """An empty ledger of each kind."""
    made = make_ledger()
    yield made
    await made.aclose()


@pytest.fixture(params=["memory", "gcs"])
def storage_or_memory(request: Any) -> str | None:
    """The bucket server's URL, or None for memory."""
    if request.param == "memory":
        return None
    url: str = request.getfixturevalue("storage_url")
    return url


@pytest.fixture
async def objects(storage_or_memory: str | None, project: str) -> AsyncIterator[Objects]:
    """An empty bucket of each kind."""
    made: ClosableObjects = MemoryObjects(project)
    if storage_or_memory is not None:
        await create_bucket(storage_or_memory, project, project)
        made = GcsObjects(project, emulator_host=storage_or_memory)
    yield made
    await made.aclose()
