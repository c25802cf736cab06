"""Following a job: the pace of the reads, and trouble on the way."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import httpx
import pytest

from functions.cli.client import Api, retry_after_seconds
from functions.cli.exits import CliError, Refused, Unreachable
from functions.cli.watching import PATIENCE_SECONDS, watch
from tests.unit.fake_api import job_body

RUNNING = httpx.Response(200, json=job_body("running"))
DONE = httpx.Response(200, json=job_body("succeeded"))
BUSY = httpx.Response(503, json={"title": "Ledger not reachable"}, headers={"Retry-After": "5"})
AWAY = httpx.ConnectError("refused")
Step = httpx.Response | httpx.ConnectError


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []

    def read(self) -> float:
        """Seconds since the start."""
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.slept.append(seconds)
        self.seconds += seconds


def scripted(steps: Sequence[Step]) -> Callable[[httpx.Request], httpx.Response]:
    """A transport without event streams that follows the steps; the last one stays."""
    left = list(steps)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return httpx.Response(404, json={"title": "Not Found"})
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, httpx.ConnectError):
            raise step
        # A response can be read only once: each request gets its own.
        return httpx.Response(step.status_code, content=step.content, headers=step.headers)

    return handle


async def follow(clock: Clock, *steps: Step) -> list[str]:
    """Watch through the steps; the states that were shown."""
    states: list[str] = []
    transport = httpx.MockTransport(scripted(steps))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        await watch(
            Api(http),
            "j1",
            lambda job: states.append(job.state),
            sleep=clock.sleep,
            clock=clock.read,
        )
    return states


async def test_without_a_hint_the_pace_slows_from_half_a_second_to_two() -> None:
    """Reads start half a second apart and slow down to two seconds."""
    clock = Clock()
    assert await follow(clock, *[RUNNING] * 6, DONE) == ["running"] * 6 + ["succeeded"]
    assert clock.slept == [0.5, 0.75, 1.125, 1.6875, 2.0, 2.0]


@pytest.mark.parametrize(
    ("hint", "slept"), [("7", 7.0), ("0", 0.1), ("1.5", 1.5), ("9999", 60.0), ("nonsense", 0.5)]
)
async def test_the_apis_hint_sets_the_pace_within_bounds(hint: str, slept: float) -> None:
    """`Retry-After` is followed, never as a busy loop and never for hours."""
    clock = Clock()
    hinted = httpx.Response(200, json=job_body("running"), headers={"Retry-After": hint})
    await follow(clock, hinted, DONE)
    assert clock.slept == [slept]


async def test_an_api_that_is_restarted_is_waited_for() -> None:
    """A lost connection after the first answer does not end the watch."""
    assert await follow(Clock(), RUNNING, AWAY, AWAY, DONE) == ["running", "succeeded"]


async def test_a_busy_api_is_asked_again_when_it_says() -> None:
    """503 and 429 are waited out at the pace of their own hint, also at the start."""
    clock = Clock()
    assert await follow(clock, BUSY, BUSY, DONE) == ["succeeded"]
    assert clock.slept == [5.0, 5.0]


@pytest.mark.parametrize(("trouble", "error"), [(AWAY, Unreachable), (BUSY, Refused)])
async def test_patience_ends(trouble: Step, error: type[CliError]) -> None:
    """An API that stays away ends the watch with what was last known, not never."""
    clock = Clock()
    with pytest.raises(error):
        await follow(clock, RUNNING, trouble)
    assert PATIENCE_SECONDS < clock.seconds < PATIENCE_SECONDS + 10


async def test_an_api_that_never_answered_gets_no_patience() -> None:
    """A wrong address is told at once."""
    clock = Clock()
    with pytest.raises(Unreachable):
        await follow(clock, AWAY)
    assert clock.slept == []


async def test_a_refusal_ends_the_watch_at_once() -> None:
    """A job that is not there, or a key that is not valid, is no matter of patience."""
    with pytest.raises(Refused):
        await follow(Clock(), RUNNING, httpx.Response(401, json={"title": "Unauthorized"}))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("  7  ", 7.0),
        ("Sun, 29 Nov 2026 12:00:20 GMT", 20.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("-3", None),
        ("+3", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("12, 30", None),
        ("Sun", None),
        ("", None),
        ("9" * 400, None),
    ],
)
def test_retry_after_is_read_or_ignored(value: str, seconds: float | None) -> None:
    """Seconds and dates are read; a malformed hint is none, and never an exception."""
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert retry_after_seconds(httpx.Headers({"Retry-After": value}), now) == seconds
