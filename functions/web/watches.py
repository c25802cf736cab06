"""What the streams of a process follow: each open job is looked at once a second, for all of them.

A watch keeps the job's latest state and nothing before it, so a reader that is slow misses states
and costs no memory. Nothing is written to the ledger.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass

from starlette.responses import JSONResponse

from functions import telemetry
from functions.core.errors import LedgerUnavailable
from functions.rereading import reread
from functions.services import Services
from functions.statuses import JobStatus, job_view
from functions.web.conditional import etag_of
from functions.web.polling import poll_seconds

# Between two looks; when all open seats wait for a provider only a cancel or the end of a pause
# can happen before the last of them is due.
MAX_LOOK_SECONDS = 5.0
OUTAGE_SECONDS = 30.0  # without an answer of the ledger, until the streams end


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A job's state as `GET` answers it: the bytes, their ETag, and whether the run has ended."""

    body: bytes
    tag: str
    ended: bool


def shown(status: JobStatus) -> Shown:
    """Return what `GET` would show of a status."""
    body = bytes(JSONResponse(job_view(status)).body)
    return Shown(body=body, tag=etag_of(body), ended=status.job.state.is_terminal)


class Watch:
    """The latest state of one job; `over` once nothing more will come of this watch."""

    def __init__(self, services: Services, status: JobStatus) -> None:
        self._services = services
        self._status = status
        self._news = asyncio.Event()
        self.latest = shown(status)
        self.over = False

    def offer(self, status: JobStatus) -> None:
        """Take a status that was read by whomever; an older one than the latest is left."""
        if status.now < self._status.now:
            return
        self._status = status
        latest = shown(status)
        if latest.tag != self.latest.tag:
            self.latest = latest
            self._tell()

    async def news(self, known: str) -> None:
        """Wait until the latest state is another than the one with this tag, or all is over."""
        while self.latest.tag == known and not self.over:
            await self._news.wait()

    async def look_on(self) -> None:
        """Look until the run has ended, the process ends, the job is gone or cannot be read."""
        try:
            await self._look_on()
        except Exception as exc:  # noqa: BLE001 - its streams end, and say nothing of the reason
            telemetry.error("a watched job cannot be read", exc=exc, job=self._status.job.id)
        finally:
            self.over = True
            self._tell()

    async def _look_on(self) -> None:
        services, clock = self._services, self._services.clock
        answered_at = clock.monotonic()
        while not self.latest.ended:
            pause_seconds = min(float(poll_seconds(self._status)), MAX_LOOK_SECONDS)
            await services.slots.wait(clock, pause_seconds)
            if services.inflight.closing:
                return
            try:
                status = await reread(services, self._status)
            except LedgerUnavailable:
                if clock.monotonic() - answered_at >= OUTAGE_SECONDS:
                    raise
                continue
            if status is None:
                return
            answered_at = clock.monotonic()
            self.offer(status)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


@dataclass(kw_only=True, slots=True)
class _Followed:
    watch: Watch
    looking: asyncio.Task[None]
    followers: int = 0


class Watches:
    """The jobs that this process watches; each from its first follower to its last one."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}

    def __len__(self) -> int:
        return len(self._followed)

    @contextmanager
    def following(self, services: Services, status: JobStatus) -> Iterator[Watch]:
        """Have the job watched for the block, from the status that was just read."""
        job = status.job.id
        followed = self._followed.get(job)
        if followed is None or followed.watch.over:
            followed = self._followed[job] = _begin(Watch(services, status))
        followed.watch.offer(status)
        followed.followers += 1
        try:
            yield followed.watch
        finally:
            followed.followers -= 1
            if not followed.followers:
                followed.looking.cancel()
                if self._followed.get(job) is followed:
                    del self._followed[job]


def _begin(watch: Watch) -> _Followed:
    # It is no part of the request that happens to start it.
    looking = asyncio.create_task(watch.look_on(), name="watch a job", context=Context())
    return _Followed(watch=watch, looking=looking)
