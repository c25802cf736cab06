"""The server's clock, estimated from the times that the ledger's answers carry.

A read or commit time was the server's present at some moment before its answer arrived, so each
one is a lower bound: `server_time - monotonic()` at its arrival can only be too small, by the
answer's way. The greatest bound is the best estimate. It is forgotten within two minutes, so
that the drift of this machine's monotonic clock (some 100 ppm at worst: about 10 ms) stays small.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_WINDOW_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """A `Clock` that runs on this machine's monotonic clock, set by the server.

    Until the first observation it guesses with this machine's wall clock. The first observation
    may set it back; from then on it never goes back, but stands still until a corrected estimate
    has caught up. Without observations it runs on from the last estimate.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._newest: float | None = None  # best offset of the window that is open
        self._before: float | None = None  # best offset of the window before
        self._window_ends = 0.0
        self._guess = wall() - monotonic()
        self._latest = 0.0

    def now(self) -> datetime:
        """Return the present of the server, aware UTC; the error is about one answer's way."""
        self._latest = max(self._latest, self._offset() + self._monotonic())
        return _EPOCH + timedelta(seconds=self._latest)

    def observe(self, server_time: datetime) -> None:
        """Note a server time that was just received."""
        monotonic = self._monotonic()
        offset = (server_time - _EPOCH).total_seconds() - monotonic
        if self._newest is None:
            self._latest = 0.0  # what was said before was a guess
        if self._newest is None or monotonic >= self._window_ends:
            is_recent = monotonic < self._window_ends + _WINDOW_SECONDS
            self._before = self._newest if is_recent else None
            self._newest = offset
            self._window_ends = monotonic + _WINDOW_SECONDS
        self._newest = max(self._newest, offset)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def _offset(self) -> float:
        known = [offset for offset in (self._newest, self._before) if offset is not None]
        return max(known, default=self._guess)
