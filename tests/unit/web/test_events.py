"""A job's events: every state is told once, in order, and the stream ends when it has to."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from functions.core.access import key_hash
from functions.core.documents import api_key_path
from functions.core.errors import LedgerUnavailable, UnreadableRecord
from functions.core.jobs import Job
from functions.core.ports import SERVER_TIME, Update
from functions.web import authentication, event_stream, watches
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.conditional import etag_of
from functions.web.events_api import HEARTBEAT_SECONDS
from functions.web.limits import Places
from functions.web.permits import CHECK_SECONDS, UNCERTAIN_SECONDS
from tests.faults.world import World, submission
from tests.unit.web.asking import api_over, ask
from tests.unit.web.listening import KEY, Listener, listened_api, listener, turned

PATIENT = 600.0  # seconds


class Failing:
    """A ledger that fails from a moment on, or for a while; everything else is the world's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.error: Exception | None = None
        self.silent = False
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def get(self, *paths: str) -> Any:
        """Read, or fail."""
        self.reads += 1
        if self.error is not None:
            raise self.error
        if self.silent:
            await asyncio.Event().wait()
        return await self.inner.get(*paths)


async def opened(world: World, **settings: Any) -> tuple[Application, Job, Failing]:
    """Return the API over a ledger that can fail, and an open job that nobody works on."""
    application = await listened_api(world)
    job = await world.submit(submission())
    services = application.services
    failing = Failing(services.ledger)
    changed = replace(services, ledger=failing, settings=replace(services.settings, **settings))
    return replace(application, services=changed), job, failing


async def listening(caller: Listener) -> "asyncio.Task[None]":
    """Return a caller's request once it has its first block."""
    task = asyncio.create_task(caller.listen())
    while not caller.blocks and not task.done():  # noqa: ASYNC110 - virtual time: no event for it
        await asyncio.sleep(0)
    return task


async def test_all_states_come_in_order_and_the_last_is_the_end() -> None:
    """From accepted to succeeded; each event is what GET shows, under GET's ETag, and told once."""
    world = World()
    application = await listened_api(world)
    job = await world.submit(submission(("m0", "m1")))
    caller = listener(application, job.id)
    task = await listening(caller)
    await world.finish()
    await task
    states, events = await caller.states(), await caller.events()
    assert states[0] == "accepted"
    assert states[-1] == "succeeded"
    assert "running" in states
    assert sorted(states, key=["accepted", "running", "succeeded"].index) == states
    tags = [event.identity for event in events]
    assert tags == [etag_of(event.data) for event in events]
    assert len(set(tags)) == len(tags)
    shown = await ask(application, "GET", f"/v1/jobs/{job.id}", key=KEY)
    assert shown.headers["etag"] == tags[-1]
    assert {event.name for event in events} == {"job"}
    assert caller.ended


async def test_the_answer_is_for_no_cache_and_no_buffer() -> None:
    """The headers of every answer, and those that keep proxies from holding events back."""
    world = World()
    application, job, _ = await opened(world, stream_seconds=2.0)
    caller = listener(application, job.id)
    await caller.listen()
    assert caller.status == 200
    assert caller.answered["content-type"].startswith("text/event-stream")
    assert caller.answered["cache-control"] == "no-store"
    assert caller.answered["x-accel-buffering"] == "no"
    assert caller.answered["x-content-type-options"] == "nosniff"
    assert "content-length" not in caller.answered
    assert caller.content.startswith(b"retry: 1000\n\n")


async def test_a_job_that_has_ended_is_told_once_and_then_never() -> None:
    """One event and the end; 204 for who has it, which stops an EventSource."""
    world = World()
    application = await listened_api(world)
    job = await world.submit(submission())
    await world.finish()
    caller = listener(application, job.id)
    await caller.listen()
    [event] = await caller.events()
    assert caller.ended
    again = listener(application, job.id, headers={"last-event-id": event.identity})
    await again.listen()
    assert (again.status, again.content, again.ended) == (204, b"", True)
    bare = listener(application, job.id, headers={"last-event-id": event.identity.strip('"')})
    await bare.listen()
    assert bare.status == 204  # as tools send it that keep no quotes
    stale = listener(application, job.id, headers={"last-event-id": '"of-an-earlier-state"'})
    await stale.listen()
    assert [each.identity for each in await stale.events()] == [event.identity]


async def test_who_has_the_present_state_is_told_the_next_one() -> None:
    """No repetition on connect; what is sent first is the change."""
    world = World()
    application = await listened_api(world)
    job = await world.submit(submission())
    shown = await ask(application, "GET", f"/v1/jobs/{job.id}", key=KEY)
    caller = listener(application, job.id, headers={"last-event-id": shown.headers["etag"]})
    task = await listening(caller)
    await turned()
    assert await caller.events() == []
    await world.finish()
    await task
    events = await caller.events()
    assert shown.headers["etag"] not in {event.identity for event in events}
    assert (await caller.states())[-1] == "succeeded"


async def test_an_id_that_nobody_knows_gets_the_whole_job_at_once() -> None:
    """Such as one of a state that has passed."""
    world = World()
    application, job, _ = await opened(world, stream_seconds=1.0)
    caller = listener(application, job.id, headers={"last-event-id": "\u00e9 of another age"})
    await caller.listen()
    assert await caller.states() == ["accepted"]


async def test_a_replay_goes_on_in_the_next_run() -> None:
    """A job that is open again is followed like a new one."""
    world = World()
    application = await listened_api(world)
    job = await world.submit(submission())
    await world.cancel(job)
    replayed = await world.replay(world.jobs()[job.id])
    caller = listener(application, replayed.id)
    task = await listening(caller)
    await world.finish()
    await task
    assert {event.data.count(b'"run":2') > 0 for event in await caller.events()} == {True}
    assert (await caller.states())[-1] == "succeeded"


async def test_a_cancel_ends_the_stream() -> None:
    """Its event is the last."""
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    await world.cancel(job)
    await task
    assert await caller.states() == ["accepted", "canceled"]
    assert world.clock.monotonic() <= watches.MAX_LOOK_SECONDS


async def test_a_quiet_stream_beats_and_ends_in_time() -> None:
    """A comment every 15 s; after its time it ends in order, and its place is free again."""
    world = World()
    application, job, _ = await opened(world, stream_seconds=100.0)
    caller = listener(application, job.id)
    await caller.listen()
    beats = [at for at, block in caller.blocks if block == event_stream.HEARTBEAT]
    assert beats == [HEARTBEAT_SECONDS * number for number in range(1, 7)]
    assert world.clock.monotonic() == 100.0
    assert caller.ended
    assert len(await caller.events()) == 1
    assert application.waits._taken.total() == 0
    assert len(application.watches) == 0


async def test_nothing_is_written() -> None:
    """A minute of a stream leaves the records as they were, but for the note of the key's use."""
    world = World()
    application, job, _ = await opened(world, stream_seconds=60.0)
    await asyncio.gather(*application.keys._noting)
    before = world.ledger.stored()
    await listener(application, job.id).listen()
    await asyncio.gather(*application.keys._noting)
    changed = {path for path, data in world.ledger.stored().items() if before.get(path) != data}
    assert changed <= {api_key_path(key_hash(KEY))}


async def test_streams_of_one_job_share_one_look_a_second() -> None:
    """Twenty callers cost the reads of one, beside the first look of each."""
    world = World()
    application, job, ledger = await opened(world, stream_seconds=60.0)
    callers = [listener(application, job.id) for _ in range(20)]
    await asyncio.gather(*(caller.listen() for caller in callers))
    assert [len(await caller.events()) for caller in callers] == [1] * 20
    firsts = 20 * 3  # head, run, evaluation
    assert 50 <= ledger.reads - firsts <= 62


async def test_no_place_is_429_with_a_time() -> None:
    """Counted with those who wait; when one leaves there is room again."""
    world = World()
    application, job, _ = await opened(world)
    application = replace(application, waits=Places(everyone=1, tenant=1))
    first, second = listener(application, job.id), listener(application, job.id)
    task = await listening(first)
    await second.listen()
    assert (second.status, second.answered["retry-after"]) == (429, "5")
    first.left.set()
    await task
    third = listener(application, job.id)
    task = await listening(third)
    assert third.status == 200
    third.left.set()
    await task


async def test_who_leaves_is_forgotten_at_once() -> None:
    """No place, no look and no task is left of a caller who closes the connection."""
    world = World()
    application, job, ledger = await opened(world)
    tasks = asyncio.all_tasks()
    caller = listener(application, job.id)
    task = await listening(caller)
    caller.left.set()
    await task
    await turned()
    assert application.waits._taken.total() == 0
    assert len(application.watches) == 0
    assert {each for each in asyncio.all_tasks() - tasks if "clock" not in repr(each)} == set()
    reads = ledger.reads
    await world.clock.sleep(PATIENT)
    assert ledger.reads == reads


@pytest.mark.parametrize("field", ["revoked_at", "expires_at"])
async def test_a_key_that_ends_ends_the_stream(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the interval of the checks, beside the time that the ring remembers a key."""
    monkeypatch.setattr(authentication, "CACHE_SECONDS", 0.0)
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    path = api_key_path(key_hash(KEY))
    await asyncio.gather(*application.keys._noting)
    [found] = await world.ledger.get(path)
    change = Update(path=path, fields={field: SERVER_TIME}, if_updated_at=found.update_time)
    await world.ledger.commit(change)
    await task
    assert world.clock.monotonic() <= CHECK_SECONDS
    assert caller.ended


async def test_a_short_outage_is_sat_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither job nor key can be read for a while: comments go on, then the next state comes."""
    monkeypatch.setattr(authentication, "CACHE_SECONDS", 0.0)
    world = World()
    application, job, ledger = await opened(world)
    application = replace(application, keys=KeyRing(ledger))
    caller = listener(application, job.id)
    task = await listening(caller)
    ledger.error = LedgerUnavailable("down")
    await world.clock.sleep(20.0)
    ledger.error = None
    assert not task.done()
    await world.finish()
    await task
    assert (await caller.states())[-1] == "succeeded"
    assert event_stream.HEARTBEAT in caller.content


async def test_a_key_that_cannot_be_looked_up_is_not_believed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job can be read, its caller not: after half a minute the stream ends."""
    monkeypatch.setattr(authentication, "CACHE_SECONDS", 0.0)
    world = World()
    application, job, _ = await opened(world)
    keys = Failing(world.ledger)
    application = replace(application, keys=KeyRing(keys))
    caller = listener(application, job.id)
    task = await listening(caller)
    keys.error = LedgerUnavailable("down")
    await task
    assert caller.ended
    assert CHECK_SECONDS < world.clock.monotonic() <= UNCERTAIN_SECONDS + CHECK_SECONDS


@pytest.mark.parametrize(
    ("error", "within_seconds"),
    [
        (LedgerUnavailable("down"), watches.OUTAGE_SECONDS + 2),
        (UnreadableRecord("of another version"), 2.0),
        (RuntimeError("a mistake of ours"), 2.0),
    ],
)
async def test_a_job_that_cannot_be_read_ends_the_stream_without_a_word(
    error: Exception, within_seconds: float
) -> None:
    """In order, nothing told but what was true, and no place kept."""
    world = World()
    application, job, ledger = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    ledger.error = error
    await task
    assert caller.ended
    assert await caller.states() == ["accepted"]
    assert str(error).encode() not in caller.content
    assert world.clock.monotonic() <= within_seconds
    assert application.waits._taken.total() == 0
    assert len(application.watches) == 0


async def test_a_shutdown_ends_every_stream_at_once() -> None:
    """In order, without waiting for the next look and without one more."""
    world = World()
    application, job, ledger = await opened(world)
    callers = [listener(application, job.id) for _ in range(5)]
    tasks = [await listening(caller) for caller in callers]
    await turned()
    before = world.clock.monotonic(), ledger.reads
    application.services.inflight.ending.set()
    await asyncio.gather(*tasks)
    assert (world.clock.monotonic(), ledger.reads) == before
    assert all(caller.ended for caller in callers)


async def test_a_shutdown_does_not_wait_for_a_silent_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream ends in order while a look has no answer yet."""
    monkeypatch.setattr(event_stream, "LAST_SECONDS", PATIENT)
    world = World()
    application, job, ledger = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    ledger.silent = True
    await world.clock.sleep(watches.MAX_LOOK_SECONDS)
    application.services.inflight.ending.set()
    await asyncio.wait_for(task, PATIENT / 10)
    assert caller.ended


async def test_a_slow_reader_gets_the_latest_and_misses_the_rest() -> None:
    """While it reads nothing, nothing is kept for it but the block that waits to be sent."""
    world = World()
    application, job, _ = await opened(world)
    fast, slow = listener(application, job.id), listener(application, job.id)
    tasks = [await listening(caller) for caller in (fast, slow)]
    await turned()
    slow.reading.clear()
    await world.finish()
    slow.reading.set()
    await asyncio.gather(*tasks)
    told, missed = await fast.states(), await slow.states()
    assert (told[-1], missed[-1]) == ("succeeded", "succeeded")
    assert len(slow.blocks) <= len(fast.blocks)
    assert len(missed) <= 3


async def test_a_reader_who_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end cannot be sent behind a block that is stuck: the connection is left to the server."""
    monkeypatch.setattr(event_stream, "STALLED_SECONDS", 0.05)
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    await turned()
    caller.reading.clear()
    before = caller.sent
    await task
    assert caller.sent == before + 1
    assert not caller.ended
    assert application.waits._taken.total() == 0


async def test_a_reader_of_nothing_at_all_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier answer that was not taken from the connection bars even the first line."""
    monkeypatch.setattr(event_stream, "STALLED_SECONDS", 0.05)
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id)
    caller.reading.clear()
    await asyncio.wait_for(caller.listen(), 5)
    assert caller.sent == 1
    assert application.waits._taken.total() == 0
    assert len(application.watches) == 0


@pytest.mark.parametrize("stuck", ["a block", "the end"])
async def test_a_stuck_reader_does_not_hold_a_shutdown_up(
    stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being sent has a moment; then the stream is cut."""
    monkeypatch.setattr(event_stream, "LAST_SECONDS", 0.05)
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id)
    task = await listening(caller)
    caller.reading.clear()
    await world.cancel(job)
    if stuck == "a block":
        await world.clock.sleep(watches.MAX_LOOK_SECONDS)
    application.services.inflight.ending.set()
    await asyncio.wait_for(task, event_stream.STALLED_SECONDS / 3)
    assert not caller.ended
    assert application.waits._taken.total() == 0


async def test_a_cancelled_request_is_cancelled() -> None:
    """E11: when the server gives up waiting, the stream goes and its place is free."""
    world = World()
    application, job, _ = await opened(world)
    task = await listening(listener(application, job.id))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert application.waits._taken.total() == 0
    assert len(application.watches) == 0


async def test_head_tells_the_headers_and_takes_no_place() -> None:
    """Of an open job, of one that has ended, and of one whose end the caller has."""
    world = World()
    application, job, _ = await opened(world)
    open_job = listener(application, job.id, method="HEAD")
    await open_job.listen()
    assert (open_job.status, open_job.content) == (200, b"")
    assert open_job.answered["content-type"].startswith("text/event-stream")
    assert application.waits._taken.total() == 0
    await world.finish()
    ended = listener(application, job.id, method="HEAD")
    await ended.listen()
    assert ended.status == 200
    assert ended.answered["content-type"] == open_job.answered["content-type"]


@pytest.mark.parametrize("query", ["?lastEventId=1", "?wait=20", "?=", "?state=running"])
async def test_a_parameter_is_refused(query: str) -> None:
    """400 names it; the job goes on unwatched."""
    world = World()
    application, job, _ = await opened(world)
    caller = listener(application, job.id, query=query)
    await caller.listen()
    assert caller.status == 400
    assert application.waits._taken.total() == 0


async def test_a_job_that_is_not_there_is_404_before_anything_else() -> None:
    """Unknown and foreign alike, whatever the rest of the request says."""
    world = World()
    application, job, _ = await opened(world)
    application = replace(application, waits=Places(everyone=0, tenant=0))
    unknown = listener(application, f"{job.id[:-1]}0", query="?what=1")
    foreign = listener(await _foreign(world), job.id, query="?what=1")
    for caller in (unknown, foreign):
        await caller.listen()
        assert caller.status == 404
    assert unknown.content == foreign.content


async def _foreign(world: World) -> Application:
    """Return the API where the listener's key is another tenant's."""
    path = api_key_path(key_hash(KEY))
    [found] = await world.ledger.get(path)
    change = Update(path=path, fields={"tenant": "other"}, if_updated_at=found.update_time)
    await world.ledger.commit(change)
    return api_over(world)  # a fresh key ring, which remembers nothing
