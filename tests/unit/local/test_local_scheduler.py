"""The local scheduler keeps its rhythm and never overlaps its runs."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from infra.local.scheduler import call_once, next_wait_seconds
from infra.local.tokens import TokenSource, new_signing_key

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("elapsed", "wait"), [(0.0, 60.0), (0.5, 59.5), (59.0, 1.0), (60.0, 60.0), (130.0, 50.0)]
)
def test_a_run_starts_at_the_next_beat(elapsed: float, wait: float) -> None:
    """Beats that pass while a run lasts are left out, and the rhythm does not drift."""
    assert next_wait_seconds(elapsed, 60.0) == pytest.approx(wait)


def _tokens() -> TokenSource:
    return TokenSource(new_signing_key(), audience="a", account="scheduler@example.org")


async def test_a_run_is_named_as_cloud_scheduler_names_it() -> None:
    """A function can tell the job and the time that the run stands for."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await call_once(client, "http://x/?mode=repair", _tokens(), scheduled_at=AT)
    (request,) = seen
    assert (request.method, request.url.query) == ("POST", b"mode=repair")
    assert request.headers["X-CloudScheduler-JobName"] == "empanel-repair"
    assert request.headers["X-CloudScheduler-ScheduleTime"] == "2026-11-29T12:00:00Z"
    assert request.headers["Authorization"].startswith("Bearer ")


async def test_a_failed_run_does_not_end_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    """A function that is down is called again at the next beat; the log says what happened."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        await asyncio.wait_for(
            call_once(client, "http://x/", _tokens(), scheduled_at=AT), timeout=5
        )
    assert "could not be called" in caplog.text
