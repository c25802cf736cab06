"""B: messages and their acknowledgement.

| case | where else it is shown |
|---|---|
| B02 | lost messages: `tests/faults/test_redelivery.py`; each publish: `test_every_call.py` |
| B04 | the same bytes over HTTP: `tests/e2e/test_bad_deliveries.py` |
| B06 | deaths at each claim and at each store: `tests/faults/test_redelivery.py` |
| B07 | a missing grant, no subscription of dead letters: `tests/infra/test_terraform.py` |
"""

import asyncio
import itertools
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from functions.core.jobs import JobState, Outcome, SeatState
from functions.core.verdicts import CallRequest
from tests.cases.scenes import (
    envelope,
    error_code,
    messages,
    push,
    replies,
    strike_next,
    total_sent,
)
from tests.faults.fakes import Reply, failure, question_of
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, seat_of, submission

FAIL_AFTER = Strike(fate=Fate.FAIL, moment=Moment.AFTER)
FAIL_BEFORE = Strike(fate=Fate.FAIL, moment=Moment.BEFORE)


@pytest.mark.parametrize("owner_dies", [False, True], ids=["owner lives", "owner dies"])
@pytest.mark.parametrize("places", [80, 1], ids=["waits in its handler", "no place to wait"])
async def test_b01_a_redelivery_during_a_call_buys_nothing(places: int, owner_dies: bool) -> None:
    """Messages that come again every 10 s in a call of 30 s cost no request; none is lost."""
    world = World(request_slots=places)
    world.provider.seconds = 30.0
    job = await world.submit(submission())
    [message] = messages(world)
    if owner_dies:
        strike_next(world, "evaluate: create object", Strike(fate=Fate.DIE, moment=Moment.BEFORE))
    others = [world.new_process("other"), world.new_process("other")]
    acked = await asyncio.gather(
        world.deliver(message),
        *(_later(world, 10.0 * n, message, other) for n, other in enumerate(others, start=1)),
    )
    assert acked[1:] == [True, True]
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert total_sent(world) == (2 if owner_dies else 1)
    assert broken(world) == {}


async def _later(world: World, seconds: float, message: Any, process: Any) -> bool:
    await world.clock.sleep(seconds)
    return await world.deliver(message, process)


@pytest.mark.parametrize("strike", [FAIL_BEFORE, FAIL_AFTER], ids=["not sent", "unconfirmed"])
async def test_b02_a_publish_that_is_not_confirmed_loses_no_seat(strike: Strike) -> None:
    """A job whose publish failed, and whose process died then, runs all its seats once."""
    world = World()
    strike_next(world, "api: publish 3", strike)
    accepted = await world.submit_once(submission(["a", "b", "c"]))
    assert accepted is not None
    world.api.alive = False
    await world.finish()
    assert world.jobs()[accepted.job.id].state is JobState.SUCCEEDED
    assert set(world.sent().values()) == {1}
    assert broken(world) == {}


UNREADABLE = [
    b"not json",
    b"{}",
    b'{"message":null}',
    b'{"message": {"messageId": "m1", "attributes": {"job_id": "j1"}, "data": "###notb64###"}}',
    b'{"message": {"messageId": "m1", "attributes": {"job_id": "j1"}, "data": "//4="}}',
    b'{"message": {"messageId": "m1", "attributes": {}, "data": "eyJqb2JfaWQiOiAiajEifQ=="}}',
    b'{"message": {"messageId": "m1", "data": "eyJqb2JfaWQiOiAiLi4veCIsICJzZWF0IjogImEifQ=="}}',
    b'{"message": {"messageId": "m1", "attributes": {}}}',
    b"\xff\xfe" + b"x" * 100_000,
    b"[" * 5000,
]


@pytest.mark.parametrize("body", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_b04_an_unreadable_message_is_acked_and_on_record(body: bytes) -> None:
    """Bytes that nobody can read are acked; one incident holds their digest and first bytes."""
    world = World()
    assert [await push(world, body) for _ in range(2)] == [204, 204]
    [incident] = world.incidents()
    assert incident["kind"] == "unreadable_message"
    assert len(incident["preview"]) <= 1000
    if b'"messageId"' in body:
        assert incident["message_id"] == "m1"
    assert set(world.ledger.stored()) == {path for path in world.ledger.stored() if "incid" in path}


@pytest.mark.parametrize("end", ["killed", "disconnected"])
async def test_b06_a_handler_that_never_answers_is_bounded_by_our_own_count(end: str) -> None:
    """With `deliveryAttempt` at 1 for ever, the seat ends after a bounded number of claims."""
    world = World()
    world.provider.seconds = 20.0
    job = await world.submit(submission(max_attempts=3))
    [message] = messages(world)
    body = envelope(message, deliveryAttempt=1)
    for _ in range(10):
        work = asyncio.create_task(push(world, body))
        await world.clock.sleep(2.0)
        if end == "killed" and not work.done():
            old, world.evaluator = world.evaluator, world.new_process("evaluate")
            old.alive = False
        work.cancel()
        await asyncio.wait({work})
        world.clock.advance(40.0)
    assert seat_of(world, job).state is SeatState.FAILED
    assert error_code(world, job) == ("attempts_exhausted" if end == "killed" else "interrupted")
    assert total_sent(world) == (3 if end == "killed" else 5)


@pytest.mark.parametrize(
    "facts",
    [{}, {"deliveryAttempt": None}, {"deliveryAttempt": 1}, {"deliveryAttempt": 99}],
    ids=["absent", "null", "one", "many"],
)
async def test_b07_our_own_bound_needs_no_delivery_attempt(facts: dict[str, Any]) -> None:
    """50 pushes against a provider that fails are all acked; `max_attempts` requests are sent."""
    world = World()
    replies(world, *[failure("provider_error", http_status=500)] * 50)
    job = await world.submit(submission(max_attempts=3))
    [message] = messages(world)
    for _ in range(50):
        assert await push(world, envelope(message, **facts)) == 204
        world.clock.advance(5.0)
    assert total_sent(world) == 3
    assert error_code(world, job) == "attempts_exhausted"


async def test_b11_a_storm_of_redeliveries_meets_a_hint_with_no_request() -> None:
    """No seat that was told to wait 30 s asks sooner, however often its message comes."""
    world = World()
    spread = itertools.count()
    world.evaluator.services = replace(
        world.evaluator.services, jitter=lambda: next(spread) % 100 / 100
    )
    sent_at: dict[str, list[float]] = defaultdict(list)
    answer = world.provider.answer

    def limited(request: CallRequest, number: int) -> Reply:
        sent_at[question_of(request)].append(world.clock.monotonic())
        if number > 1:
            return answer(request, number)
        return failure("rate_limited", http_status=429, hint_seconds=30.0)

    world.provider.script = limited
    models = [f"m{n}" for n in range(50)]
    jobs = [await world.submit(submission(models, key=key, question=key)) for key in ("a", "b")]
    taken = messages(world)
    assert all(await asyncio.gather(*map(world.deliver, taken)))
    asked, tokens = total_sent(world), [e.token for e in world.evaluations().values()]
    assert asked == 100
    world.clock.advance(10.0)
    assert all(await asyncio.gather(*map(world.deliver, taken)))
    assert total_sent(world) == asked
    assert [e.token for e in world.evaluations().values()] == tokens
    assert len({state.due_at for state in world.evaluations().values()}) > 50
    for _ in range(3):
        world.clock.advance(7.0)
        assert all(await asyncio.gather(*map(world.deliver, taken)))
    await world.finish(at_once=True)
    assert all(second - first >= 30.0 for first, second in sent_at.values())
    assert all(world.jobs()[job.id].state is JobState.SUCCEEDED for job in jobs)
    outcomes = [attempt.outcome for attempt in seat_of(world, jobs[0], 7).attempts]
    assert outcomes == [Outcome.RETRYABLE, Outcome.SUCCEEDED]
