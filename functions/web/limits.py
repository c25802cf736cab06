"""What one process gives to one caller: requests a minute, and places for those who wait.

Counted in this process alone: with several instances a caller gets as many times as much.
"""

import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType

SECONDS_A_MINUTE = 60.0
REMEMBERED = 10_000


class Rates:
    """A bucket of requests for each credential: a minute's worth at most, refilled steadily."""

    def __init__(self, per_minute: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Allow `per_minute` requests to each credential; 0 allows any number."""
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, credential: str) -> float:
        """Take a request out of the bucket; return 0, or how long until there is one to take."""
        if self._per_minute == 0:
            return 0.0
        now = self._monotonic()
        left = self._left(credential, now)
        if left < 1:
            return (1 - left) * SECONDS_A_MINUTE / self._per_minute
        self._buckets[credential] = (left - 1, now)
        if len(self._buckets) > REMEMBERED:
            self._forget(now)
        return 0.0

    def give_back(self, credential: str) -> None:
        """Put a request that was taken back into the bucket: it was none that is limited."""
        self.charge(credential, -1)

    def charge(self, credential: str, requests: int) -> None:
        """Take requests out of the bucket that may not be in it: the next ones wait for them."""
        if self._per_minute and requests:
            now = self._monotonic()
            self._buckets[credential] = (self._left(credential, now) - requests, now)

    def _left(self, credential: str, now: float) -> float:
        left, seen = self._buckets.get(credential, (float(self._per_minute), now))
        return min(self._per_minute, left + (now - seen) * self._per_minute / SECONDS_A_MINUTE)

    def _forget(self, now: float) -> None:
        """Forget full buckets, which are as good as new ones."""
        kept = {
            name: bucket
            for name, bucket in self._buckets.items()
            if self._left(name, now) < self._per_minute
        }
        self._buckets = kept if len(kept) <= REMEMBERED else {}


class Places:
    """Places for requests that stay: waits and streams, of all tenants and of each.

    A tenant cannot take them all.
    """

    def __init__(self, *, everyone: int, tenant: int) -> None:
        self._everyone = everyone
        self._tenant = tenant
        self._taken: Counter[str] = Counter()

    def take(self, tenant: str) -> "Place | None":
        """Return a place that is held until it is released, None when all are taken."""
        if self._taken.total() >= self._everyone or self._taken[tenant] >= self._tenant:
            return None
        self._taken[tenant] += 1
        return Place(lambda: self._give_back(tenant))

    def _give_back(self, tenant: str) -> None:
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]


class Place:
    """One taken place; as a context manager it is released at the end of the block."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def release(self) -> None:
        """Give the place back; once, however often this is called."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    def __enter__(self) -> "Place":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
