"""The provider calls in flight in this process: how each can be cut, and the slots they take.

A cut ends one call, not its handler: the handler still records the attempt and hands the seat on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from functions import telemetry
from functions.core.ports import Clock, Provider

CLAIMS_AT_ONCE = 2  # per process: at 40 ms a claim that is 50 calls started in a second
TICK_SECONDS = 0.003
CALM_SECONDS = 0.001  # as late comes a tick where neither the loop nor the machine has a queue
CALM_PATIENCE_SECONDS = 0.1  # a process that is never calm still starts ten claims in a second


class CallCut(Exception):
    """Ends the call beside it; `code` is `canceled`, `deadline_exceeded` or `interrupted`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False, kw_only=True)
class Call:
    """One call in flight; `claimed_at` is the server's time of its claim."""

    job: str
    run: int
    claimed_at: datetime
    _cut: asyncio.Future[str] = field(init=False)

    def __post_init__(self) -> None:
        self._cut = asyncio.get_running_loop().create_future()

    @property
    def cut_code(self) -> str | None:
        """Why the call was ended, None while it may go on."""
        return self._cut.result() if self._cut.done() else None

    def cut(self, code: str) -> None:
        """End the call; the first code given counts."""
        if not self._cut.done():
            self._cut.set_result(code)

    async def wait_cut(self) -> None:
        """Wait for the cut.

        Raises:
            CallCut: always, once it came.
        """
        raise CallCut(await self._cut)


class InFlight:
    """All calls of this process, and whether it still takes new ones.

    `watch` runs beside the calls, from the first one's start to the last one's end, and cuts those
    that are to stop.
    """

    def __init__(self, watch: "Callable[[InFlight], Coroutine[Any, Any, None]]") -> None:
        self._watch = watch
        self._watching: asyncio.Task[None] | None = None
        self.calls: set[Call] = set()
        self.ending = asyncio.Event()
        self._over = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def closing(self) -> bool:
        """Whether the process is shutting down and takes no new calls."""
        return self.ending.is_set()

    @asynccontextmanager
    async def call(self, job: str, run: int, claimed_at: datetime) -> AsyncIterator[Call]:
        """Register a call for the time of the block."""
        entry = Call(job=job, run=run, claimed_at=claimed_at)
        if self._over:
            entry.cut("interrupted")  # claimed while the shutdown ended the others
        self.calls.add(entry)
        self._idle.clear()
        if self._watching is None:
            self._watching = asyncio.create_task(
                self._watch(self), name="watch stops", context=Context()
            )  # it is no part of the request that happens to start it
        try:
            yield entry
        finally:
            self.calls.discard(entry)
            if not self.calls:
                self._idle.set()
                await self._end_watching()

    async def _end_watching(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
            if not watching.cancelled() and (error := watching.exception()) is not None:
                telemetry.error("the watch for stops had ended", exc=error)

    def works_for(self, job: str, run: int) -> bool:
        """Whether a call of the run is in flight in this process."""
        return any((call.job, call.run) == (job, run) for call in self.calls)

    def cut(self, job: str, run: int, code: str) -> int:
        """Cut the calls of one run; return how many."""
        hit = [call for call in self.calls if (call.job, call.run) == (job, run)]
        for call in hit:
            call.cut(code)
        return len(hit)

    async def shut_down(self, grace_seconds: float) -> None:
        """Take no new calls, give the running ones the grace time, then cut the rest."""
        self.ending.set()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            for call in list(self.calls):
                call.cut("interrupted")
        finally:
            self._over = True


async def calm() -> None:
    """Wait until a tick comes in time, or for `CALM_PATIENCE_SECONDS`.

    Late is what waits for its turn in this loop, and what waits for a processor of this machine.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + CALM_PATIENCE_SECONDS
    while (began := loop.time()) < until:
        await asyncio.sleep(TICK_SECONDS)
        if loop.time() - began - TICK_SECONDS < CALM_SECONDS:
            return


async def at_once() -> None:
    """Wait for nothing: under a clock that stands still, nothing is ever late."""


class Slots:
    """Call slots per provider, and the share of request slots that deliveries may wait in."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        waiting: int,
        closing: asyncio.Event,
        calm: Callable[[], Awaitable[None]] = calm,
    ) -> None:
        self._providers = providers
        self._calm = calm
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._claims = asyncio.Semaphore(CLAIMS_AT_ONCE)
        self._next_claim = asyncio.Lock()
        self._waiting_left = waiting
        self._closing = closing

    @asynccontextmanager
    async def provider(self, name: str, wait_seconds: float) -> AsyncIterator[bool]:
        """Hold a provider's slot for the block; yields False when none came free in time.

        A shutdown ends the waiting at once.
        """
        semaphore = self._semaphores.setdefault(
            name, asyncio.Semaphore(self._providers[name].concurrency)
        )
        if not await self._acquire(semaphore, wait_seconds):
            yield False
            return
        try:
            yield True
        finally:
            semaphore.release()

    async def _acquire(self, semaphore: asyncio.Semaphore, wait_seconds: float) -> bool:
        if not semaphore.locked():
            return await semaphore.acquire()
        acquiring = asyncio.ensure_future(semaphore.acquire())
        closing = asyncio.ensure_future(self._closing.wait())
        taken = False
        try:
            both: set[asyncio.Future[Any]] = {acquiring, closing}
            await asyncio.wait(
                both, timeout=max(0.0, wait_seconds), return_when=asyncio.FIRST_COMPLETED
            )
            taken = acquiring.done()
        finally:
            closing.cancel()
            if not taken:
                acquiring.cancel()
                acquiring.add_done_callback(partial(_give_back, semaphore))
        return taken

    @asynccontextmanager
    async def claiming(self) -> AsyncIterator[None]:
        """Hold one of the few places for claims in the block, entered one by one in a calm loop.

        An event loop knows no priorities: claims would queue before every answer that has to be
        stored, and an answer that is not stored yet is lost when the process dies. So what has
        begun goes first, and new work begins only when nothing waits for its turn.
        """
        async with self._claims:
            async with self._next_claim:
                await self._calm()
            yield

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[bool]:
        """Hold a waiting place for the block; yields False when all are taken."""
        if self._waiting_left <= 0:
            yield False
            return
        self._waiting_left -= 1
        try:
            yield True
        finally:
            self._waiting_left += 1

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait, but no longer than until a shutdown begins."""
        sleeping = asyncio.ensure_future(clock.sleep(seconds))
        closing = asyncio.ensure_future(self._closing.wait())
        both: set[asyncio.Future[Any]] = {sleeping, closing}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in both:
                future.cancel()
            await asyncio.wait(both)


def _give_back(semaphore: asyncio.Semaphore, acquiring: "asyncio.Future[Any]") -> None:
    """Release a slot that came after nobody waited for it any more."""
    if not acquiring.cancelled() and acquiring.exception() is None:
        semaphore.release()
