"""An event loop whose time is virtual, so that every timer is: sleeps, timeouts and deadlines.

Time stands still while anything can run, or while something outside the loop is under way, and
then jumps to the next timer. A whole hour of leases and deadlines passes in milliseconds.
"""

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from tests.virtual_clock import START, VirtualClock

MOST_TURNS = 100_000  # of the loop between two moves of time
OUTSIDE_SECONDS = 0.05  # real time between two looks at what is under way outside


class NothingMoves(Exception):
    """Everything waits and no timer is set: what is waited for can never come."""


class RunsInCircles(Exception):
    """Something runs again and again and never waits, so that time cannot go on."""


class _JumpingSelector(selectors.DefaultSelector):
    """Moves time instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.outside = 0
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; when nothing is, move time by `timeout`."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self.turns += 1
            if self.turns > MOST_TURNS:
                raise RunsInCircles
            return ready
        self.turns = 0
        if self.outside:
            return super().select(OUTSIDE_SECONDS)
        if timeout is None:
            raise NothingMoves
        self.seconds += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The event loop; `loop.time()` counts virtual seconds from its start."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds."""
        return self._jumping.seconds

    def advance(self, seconds: float) -> None:
        """Move time at once; the timers that are due run at the new time, in order."""
        self._jumping.seconds += seconds

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let time stand still for the block: it waits for something real, such as a server."""
        self._jumping.outside += 1
        try:
            yield
        finally:
            self._jumping.outside -= 1


class LoopClock(VirtualClock):
    """The clock of a virtual loop: here the server's."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        return START + timedelta(seconds=self.loop.time())

    def monotonic(self) -> float:
        """Return the virtual seconds since the loop's start."""
        return self.loop.time()

    def advance(self, seconds: float) -> None:
        """Move time at once."""
        self.loop.advance(seconds)

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)
