"""What a seat costs in CPU time of each function process, on the local stack.

    python -m tests.bench.seat_cpu

Jobs of four seats, 64 calls at once to a stub provider that answers after 0.2 s, each job told to a
webhook, looked at once and reported once: what `infra/cost/counts.toml` counts. Each process's own
CPU time is read before and after, from /proc. What a process does every second whatever happens is
in it, so the figure is the least of some rounds.

Milliseconds of this machine: Cloud Run's vCPU is a hardware thread of some server.
"""

import asyncio
import os
import time
from pathlib import Path

from tests.e2e.load import LOAD_SETTINGS, all_ended, folder_in_memory, submitted
from tests.e2e.site import Site, open_site, panel
from tests.e2e.waiting import until
from tests.receiver import Receiver, receiving

JOBS, MODELS, ROUNDS = 50, ("a", "b", "c", "d"), 3
SEATS = JOBS * len(MODELS)
TICKS = os.sysconf("SC_CLK_TCK")
TARGETS = ("evaluate", "api", "notify")
READERS_AT_ONCE = 8
SETTINGS = {**LOAD_SETTINGS, "EMPANEL_WEBHOOK_ALLOW_LOOPBACK": "1"}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def used(site: Site) -> dict[str, float]:
    """Return the CPU time of each target's processes."""
    pids = site.stack.info.pids
    return {target: sum(map(cpu_seconds, pids[target])) for target in TARGETS}


async def read_all(site: Site, ids: list[str]) -> None:
    """Look at each job and report it, some at once."""
    places = asyncio.Semaphore(READERS_AT_ONCE)

    async def read(job: str) -> None:
        async with places:
            await site.read(f"/v1/jobs/{job}")
            await site.read(f"/v1/jobs/{job}/report")

    await asyncio.gather(*map(read, ids))


async def measure(site: Site, number: int) -> dict[str, float]:
    """Return the CPU milliseconds of a seat in one round, by target."""
    before = used(site)
    async with receiving() as receiver:
        notify = {"url": receiver.url}
        bodies = [panel(f"{number}-{job}", *MODELS, notify=notify) for job in range(JOBS)]
        ids = await submitted(site, bodies)
        await all_ended(site)
        await read_all(site, ids)
        await until(
            lambda: _count(receiver), lambda told: told >= JOBS, what="all webhooks are called"
        )
    after = used(site)
    return {target: (after[target] - before[target]) / SEATS * 1000 for target in TARGETS}


async def _count(receiver: Receiver) -> int:
    return len(receiver.received)


async def rounds() -> list[dict[str, float]]:
    """Return each round's milliseconds, the first left out: it makes connections."""
    with folder_in_memory() as folder:
        async with open_site(
            None, folder, latency_seconds=0.2, jitter=0.5, environment=SETTINGS
        ) as site:
            return [await measure(site, number) for number in range(ROUNDS + 1)][1:]


def main() -> None:
    """Measure, and print the table."""
    began = time.monotonic()
    measured = asyncio.run(rounds())
    seconds = time.monotonic() - began
    print(f"{SEATS} seats a round, best of {len(measured)} rounds, {seconds:.0f} s\n")
    print(f"{'target':<12}{'ms a seat':>10}")
    for target in TARGETS:
        print(f"{target:<12}{min(one[target] for one in measured):>10.2f}")


if __name__ == "__main__":
    main()
