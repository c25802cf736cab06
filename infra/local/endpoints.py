"""The instances of one function, as the platform sees them: which is up, which is least busy.

The platform lets a request wait at its door while an instance starts. Here the requests that meet
an instance as it goes down are nacked once; from then on deliveries wait until an instance answers
its health check again. So a restart costs one delivery attempt per message in flight, and not one
per retry.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import httpx

from infra.local.network import answers_ok

PROBE_SECONDS = 0.1


class Endpoints:
    """Picks an instance for each request and watches those that failed to answer."""

    def __init__(self, urls: Sequence[str], client: httpx.AsyncClient) -> None:
        self._up = dict.fromkeys(urls)
        self._client = client
        self._busy: Counter[str] = Counter()
        self._any_up = asyncio.Event()
        self._any_up.set()
        self._probes: set[asyncio.Task[None]] = set()

    async def wait_for_one(self) -> None:
        """Return once at least one instance is up."""
        await self._any_up.wait()

    def take(self) -> str:
        """The least busy instance that is up; any of the known ones when none is."""
        url = min(self._up or self._busy, key=self._busy.__getitem__)
        self._busy[url] += 1
        return url

    def give_back(self, url: str) -> None:
        """The request is over, whatever came of it."""
        self._busy[url] -= 1

    def failed(self, url: str) -> None:
        """Send no more requests to this instance until it answers its health check."""
        if url not in self._up:
            return
        del self._up[url]
        if not self._up:
            self._any_up.clear()
        probe = asyncio.create_task(self._probe(url))
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)

    async def _probe(self, url: str) -> None:
        while not await answers_ok(self._client, f"{url}/health"):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(PROBE_SECONDS)
        self._up[url] = None
        self._any_up.set()

    async def close(self) -> None:
        """End the watching."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
