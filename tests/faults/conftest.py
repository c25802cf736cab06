"""What a killed process leaves behind is collected with the test that killed it."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def settled_heap() -> Iterator[None]:
    """Keep what is imported out of the collections below, which would take most of the time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_remains(settled_heap: None) -> Iterator[None]:
    """Collect the tasks of dead processes, so that none is finalised inside another test."""
    yield
    gc.collect()
