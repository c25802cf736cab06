"""Cloud Scheduler's part: calls `reconcile` in a fixed rhythm, run n+1 never before run n ended."""

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from infra.local.network import loopback_client
from infra.local.tokens import TokenSource

ATTEMPT_DEADLINE_SECONDS = 180.0  # Cloud Scheduler's default
JOB_NAME = "empanel-repair"

log = logging.getLogger("scheduler")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is called, and how often."""

    url: str
    period_seconds: float


async def run_scheduler(schedule: Schedule, tokens: TokenSource) -> None:
    """Call the URL now and then once a period, until cancelled."""
    first = time.monotonic()
    async with loopback_client(ATTEMPT_DEADLINE_SECONDS) as client:
        while True:
            await call_once(client, schedule.url, tokens, scheduled_at=datetime.now(UTC))
            await asyncio.sleep(
                next_wait_seconds(time.monotonic() - first, schedule.period_seconds)
            )


def next_wait_seconds(elapsed_seconds: float, period_seconds: float) -> float:
    """The time until the next beat; beats that passed during a long run are left out."""
    beats = math.floor(elapsed_seconds / period_seconds) + 1
    return beats * period_seconds - elapsed_seconds


async def call_once(
    client: httpx.AsyncClient, url: str, tokens: TokenSource, *, scheduled_at: datetime
) -> None:
    """One run; a failure is logged, and the next beat is the retry."""
    headers = {
        "Authorization": tokens.authorization(),
        "X-CloudScheduler": "true",
        "X-CloudScheduler-JobName": JOB_NAME,
        "X-CloudScheduler-ScheduleTime": scheduled_at.isoformat().replace("+00:00", "Z"),
    }
    try:
        response = await client.post(url, headers=headers)
    except httpx.TransportError as exc:
        log.warning("%s could not be called: %r", url, exc)
        return
    if not response.is_success:
        log.warning("%s answered %d", url, response.status_code)
