"""Messages that never arrive: the jobs stand in the ledger, and repair brings them to their end."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.gate import Gate
from tests.e2e.records import Document
from tests.e2e.site import Site, open_site, panel
from tests.e2e.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEATS = 2
ACCEPTANCE_SECONDS = 10.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(emulator_hosts: EmulatorHosts) -> AsyncIterator[Gate]:
    """The functions' way to Pub/Sub; the bridge has its own."""
    async with Gate(emulator_hosts.pubsub) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, gate: Gate, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("lost")
    environment = {"PUBSUB_EMULATOR_HOST": gate.address}
    async with open_site(emulator_hosts, folder, environment=environment) as running:
        yield running


async def test_jobs_accepted_while_the_publisher_fails_are_finished_by_repair(
    site: Site, gate: Gate
) -> None:
    """Ten jobs are accepted within seconds though Pub/Sub is away; repair later finishes them."""
    await gate.shut()
    async with asyncio.timeout(ACCEPTANCE_SECONDS):
        ids = await asyncio.gather(*(site.accepted(panel(f"unsent-{n}")) for n in range(10)))
    await _looked_at(site, ids)  # repair fails as well, and must not forget them for it
    assert await site.requests("unsent-") == 0
    await gate.open()
    jobs = await site.ended(*ids, timeout_seconds=60)
    assert {job["state"] for job in jobs} == {"succeeded"}
    assert await site.requests("unsent-") == len(ids) * SEATS


async def _looked_at(site: Site, ids: Iterable[str]) -> list[Document]:
    """Wait until repair has looked at each job, which doubles the time to its next look."""
    paths = [f"jobs/{job}" for job in ids]
    first_seconds = int(site.stack.options.repair_seconds)
    return await until(
        lambda: asyncio.gather(*map(site.ledger.get, paths)),
        lambda seen: all(found.data["check_seconds"] > first_seconds for found in seen),
        what="repair has looked at all jobs",
    )
