"""The server's clock, estimated from the times that the ledger's answers carry.

A read or commit time was the server's present at some moment before its answer arrived, so each
one is a lower bound: `server_time - monotonic()` at its arrival can only be too small, by the
answer's way. The greatest bound is the best estimate. It is forgotten after one to two minutes, so
that the drift of this machine's monotonic clock (some 100 ppm at worst: about 10 ms) stays small.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta

_WINDOW_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SystemClock:
    """A `Clock` that runs on this machine's monotonic clock, set by the server.

    Until the first observation it guesses with this machine's wall clock. The first observation
    may set it back; from then on it never goes back, but stands still until a corrected estimate
    has caught up. Without observations it runs on from the last estimate.
    """

    def __init__(self) -> None:
        self._newest: float | None = None  # best offset of the window that is open
        self._before: float | None = None  # best offset of the window before
        self._window_ends = 0.0
        self._guess = time.time() - time.monotonic()
        self._latest = 0.0

    def now(self) -> datetime:
        """Return the present of the server, aware UTC; the error is about one answer's way."""
        self._latest = max(self._latest, self._offset() + time.monotonic())
        return _EPOCH + timedelta(seconds=self._latest)

    def observe(self, server_time: datetime) -> None:
        """Note a server time that was just received."""
        monotonic = time.monotonic()
        if self._newest is None:
            self._latest = 0.0  # what was said before was a guess
        if monotonic >= self._window_ends:
            self._before, self._newest = self._newest, None
            self._window_ends = monotonic + _WINDOW_SECONDS
        offset = (server_time - _EPOCH).total_seconds() - monotonic
        self._newest = offset if self._newest is None else max(self._newest, offset)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def _offset(self) -> float:
        known = [offset for offset in (self._newest, self._before) if offset is not None]
        return max(known, default=self._guess)
