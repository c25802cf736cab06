"""A clock that stands still until a test moves it, or until everybody waits."""

import asyncio
import heapq
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@dataclass(order=True, slots=True)
class _Sleeper:
    wakes_at: float
    number: int
    woken: asyncio.Future[None] = field(compare=False)


class VirtualClock:
    """A `Clock` for tests: time moves by `advance`, and by `sleep` when no task can run.

    Sleepers wake in the order of their times, ties in the order in which they fell asleep, and
    each sees its own time in `now`. Time jumps to the next sleeper only when the event loop has
    nothing left to run, so that a heartbeat does not overtake the work that it guards. Waits of
    the event loop itself (`asyncio.timeout`, sockets, threads) are not virtual.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._seconds = 0.0
        self._sleepers: list[_Sleeper] = []
        self._slept = 0
        self._driver: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        return self._start + timedelta(seconds=self._seconds)

    def observe(self, server_time: datetime) -> None:
        """Ignore it: this clock is the servers' clock too."""

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move time forward; the sleepers that are due are woken in order, at the new time."""
        self._seconds += seconds
        while self._sleepers and self._sleepers[0].wakes_at <= self._seconds:
            _wake(heapq.heappop(self._sleepers))

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time; with nothing else to run, time moves to the next sleeper."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._slept += 1
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, _Sleeper(self._seconds + seconds, self._slept, woken))
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        await woken

    async def _drive(self) -> None:
        while self._sleepers:
            await _until_idle()
            if self._sleepers:
                self._jump()

    def _jump(self) -> None:
        sleeper = heapq.heappop(self._sleepers)
        if not sleeper.woken.done():  # a cancelled sleeper moves no time
            self._seconds = max(self._seconds, sleeper.wakes_at)
            _wake(sleeper)


def _wake(sleeper: _Sleeper) -> None:
    if not sleeper.woken.done():
        sleeper.woken.set_result(None)


async def _until_idle() -> None:
    """Give way until this task is the only one that can run."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:  # noqa: ASYNC110 - there is no event for "nothing else can run"
        await asyncio.sleep(0)
