"""How many calls a process has under way to one host: a receiver that hangs holds up no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 8


class HostSlots:
    """Slots by host. Those who wait for one are few, so that they do not fill the instance."""

    def __init__(self, *, waiting: int, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._waiting_allowed = waiting
        self._waiting = 0
        self._used: Counter[str] = Counter()
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, host: str, wait_seconds: float) -> AsyncIterator[bool]:
        """Hold a slot of the host for the block; False when there was none in time."""
        if not await self._take(host, wait_seconds):
            yield False
            return
        try:
            yield True
        finally:
            self._used -= Counter([host])  # drops the hosts that nobody calls
            async with self._freed:
                self._freed.notify_all()

    async def _take(self, host: str, wait_seconds: float) -> bool:
        if not self._free(host):
            if self._waiting >= self._waiting_allowed:
                return False
            self._waiting += 1
            try:
                async with asyncio.timeout(wait_seconds), self._freed:
                    await self._freed.wait_for(lambda: self._free(host))
            except TimeoutError:
                return False
            finally:
                self._waiting -= 1
        self._used[host] += 1
        return True

    def _free(self, host: str) -> bool:
        return self._used[host] < self._at_once
