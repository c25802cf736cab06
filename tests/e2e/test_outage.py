"""The ledger stands still for half a minute in the middle of a run, and comes back as it was."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.load import (
    CALLS_AT_ONCE,
    LOAD_SETTINGS,
    all_ended,
    answered,
    assert_ended_once,
    books,
    in_flight_at,
    submitted,
)
from tests.e2e.site import Site, open_site, panel

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

JOBS = 60
MODELS = ("a", "b", "c", "d")
CALLS = JOBS * len(MODELS)
OUTAGE_SECONDS = 30.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    settings = LOAD_SETTINGS | {"EMPANEL_REPAIR_SECONDS": "5"}
    folder = tmp_path_factory.mktemp("outage")
    async with open_site(
        None, folder, latency_seconds=2.0, jitter=0.5, environment=settings
    ) as running:
        yield running


async def test_an_outage_of_the_ledger_loses_nothing(site: Site) -> None:
    """SIGSTOP for 30 s: every job ends by itself afterwards, and every request is on record."""
    ids = await submitted(site, (panel(f"outage-{number}", *MODELS) for number in range(JOBS)))
    await answered(site, CALLS // 4)
    emulator = site.stack.info.parts["firestore"]
    os.killpg(emulator, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself, not a wait for anything
    finally:
        os.killpg(emulator, signal.SIGCONT)
    woken = time.monotonic()
    await all_ended(site, timeout_seconds=120)

    found = await books(site, ids, "outage-")
    assert set(found.states.values()) == {"succeeded"}
    assert_ended_once(found, ids)
    attempts, requests = found.attempts, found.requests
    cut_off = [record for record in requests if in_flight_at(record, stopped)]
    unsent = len(attempts) - len(requests)
    others = [a for a in attempts if a["outcome"] != "succeeded"]
    print(
        f"outage: {len(requests)} requests and {len(attempts)} attempts for {CALLS} answers, "
        f"{len(cut_off)} in flight when it began; all ended {time.monotonic() - woken:.1f} s "
        f"after its end"
    )
    assert len(attempts) - len(others) == CALLS
    assert all(a["outcome"] == "unknown" or not a["sent"] for a in others)
    assert len(requests) <= len(attempts)
    assert unsent <= CALLS_AT_ONCE
    assert len(requests) - CALLS <= len(cut_off)
