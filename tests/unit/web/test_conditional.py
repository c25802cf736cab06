"""Conditional reads of jobs and reports, and when a caller is told to look again."""

import math

import pytest
from starlette.requests import Request
from starlette.responses import Response

from functions.web.conditional import etag_of, unless_known
from functions.web.polling import MAX_POLL_SECONDS
from tests.faults.fakes import failure
from tests.faults.world import World, submission
from tests.unit.web.door import Door

BODY = b'{"a": 1}'
ETAG = etag_of(BODY)


def _asked(condition: str | None) -> Response:
    headers = [] if condition is None else [(b"if-none-match", condition.encode("latin-1"))]
    return unless_known(Request({"type": "http", "headers": headers}), Response(BODY))


@pytest.mark.parametrize(
    "condition",
    [ETAG, f"W/{ETAG}", "*", f'"other", {ETAG}', f'{ETAG},"other"', f'"a,b",{ETAG}', f" {ETAG} "],
)
def test_a_caller_who_has_it_is_told_so(condition: str) -> None:
    """304 without a body for any spelling of a list that names the tag."""
    answer = _asked(condition)
    assert (answer.status_code, answer.body) == (304, b"")
    assert answer.headers["etag"] == ETAG


@pytest.mark.parametrize(
    "condition", [None, "", '"other"', ETAG.strip('"'), f'"x{ETAG}', '"', f"nonsense, {ETAG}", "**"]
)
def test_any_other_caller_gets_the_answer(condition: str | None) -> None:
    """No tag, another tag and what cannot be read: the answer, with its tag."""
    answer = _asked(condition)
    assert (answer.status_code, answer.body) == (200, BODY)
    assert answer.headers["etag"] == ETAG


def test_a_tag_is_strong_and_of_the_bytes() -> None:
    """One byte more is another tag, and the tag is not a weak one."""
    assert ETAG.startswith('"')
    assert etag_of(BODY + b" ") != ETAG
    assert etag_of(bytes(BODY)) == ETAG


@pytest.mark.parametrize("path", ["", "/report"])
async def test_a_job_that_stays_the_same_keeps_its_tag(path: str) -> None:
    """The same tag from another process and later; 304 keeps headers and sends no body."""
    world = World()
    job = await world.submit(submission(("m0", "m1")))
    await world.finish()
    first = await Door(world).call("GET", f"/v1/jobs/{job.id}{path}")
    world.clock.advance(3600)
    known = {"If-None-Match": first.headers["etag"]}
    again = await Door(world).call("GET", f"/v1/jobs/{job.id}{path}", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["cache-control"] == "no-store"


async def test_a_job_that_changes_changes_its_tag() -> None:
    """A caller with the tag of the accepted job gets the ended one."""
    world = World()
    door = Door(world)
    job = await world.submit(submission())
    first = await door.call("GET", f"/v1/jobs/{job.id}")
    await world.finish()
    known = {"If-None-Match": first.headers["etag"]}
    later = await door.call("GET", f"/v1/jobs/{job.id}", headers=known)
    assert later.status_code == 200
    assert later.json()["state"] == "succeeded"


async def test_head_tells_what_get_would() -> None:
    """The same status and headers; a 404 stays one."""
    world = World()
    door = Door(world)
    job = await world.submit(submission())
    got, headed = [await door.call(m, f"/v1/jobs/{job.id}") for m in ("GET", "HEAD")]
    assert headed.status_code == got.status_code
    assert headed.headers["etag"] == got.headers["etag"]
    assert headed.headers["content-length"] == got.headers["content-length"]
    assert (await door.call("HEAD", "/v1/jobs/job_x")).status_code == 404
    assert (await door.call("HEAD", f"/v1/jobs/{job.id}", key=None)).status_code == 401


@pytest.mark.parametrize(("hint_seconds", "told"), [(40.0, 40), (1000.0, MAX_POLL_SECONDS)])
async def test_a_providers_hint_reaches_the_caller(hint_seconds: float, told: int) -> None:
    """While all open seats wait, `Retry-After` is the longest wait, up to a cap."""
    world = World()
    world.provider.script = lambda request, number: failure(
        "rate_limited", http_status=429, hint_seconds=hint_seconds
    )
    job = await world.submit(submission(deadline_seconds=7200))
    door = Door(world)
    assert (await door.call("GET", f"/v1/jobs/{job.id}")).headers["retry-after"] == "1"
    world.collect()
    await world.deliver(world.pending.popleft().message)
    shown = await door.call("GET", f"/v1/jobs/{job.id}")
    assert shown.json()["seats"][0]["state"] == "waiting"
    assert told <= int(shown.headers["retry-after"]) <= math.ceil(told * 1.5)
    known = {"If-None-Match": shown.headers["etag"]}
    again = await door.call("GET", f"/v1/jobs/{job.id}", headers=known)
    assert again.status_code == 304
    assert again.headers["retry-after"] == shown.headers["retry-after"]


async def test_a_job_that_has_ended_is_not_to_be_looked_at_again() -> None:
    """No `Retry-After` on a terminal job."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    assert "retry-after" not in (await Door(world).call("GET", f"/v1/jobs/{job.id}")).headers
