"""C and D01: the ledger and the bucket: ambiguous answers, contention, size, time.

| case | where else it is shown |
|---|---|
| C01, C03 | through a proxy in front of the real emulator: `tests/faults/test_ambiguity.py` |
| C03 | every status of a commit, asked once: `tests/contract/test_ledger_ambiguity.py` |
| C04 | there is no transaction function any more: `infra/decisions/*claim-without-locks*` |
| C05 | documents written per seat, exactly: `tests/faults/test_operation_counts.py` |
| C06 | previews of provider errors: `tests/unit/test_verdicts.py` |
| C08 | naive times are refused by every ledger: `tests/contract/test_ledger.py` |
| D01 | an upload that answers 412 to its own retry, over HTTP: `tests/faults/test_ambiguity.py` |
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from functions.core.identities import canonical_json
from functions.core.jobs import JobState, Outcome, SeatState
from functions.core.ports import Create
from functions.core.verdicts import CallFailure, ProviderAnswer, preview
from tests.cases.scenes import messages, replies, strike_next, total_sent
from tests.faults.fakes import failure
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import TOPIC, World, evaluation_of, seat_of, submission

APPLIED = Strike(fate=Fate.FAIL, moment=Moment.AFTER)
NOT_APPLIED = Strike(fate=Fate.FAIL, moment=Moment.BEFORE)
CLAIM = "evaluate: commit create evaluations"
SETTLE = "evaluate: commit update evaluations, create seats"
CLOSE = "evaluate: commit create terminals, update jobs"


@pytest.mark.parametrize("call", ["api: commit create jobs", CLAIM, SETTLE, CLOSE])
async def test_c01_a_commit_that_was_applied_and_then_failed_is_recognised(call: str) -> None:
    """Its own write read back is a success: one job, one request, one end, one message."""
    world = World()
    strike_next(world, call, APPLIED)
    accepted = await world.submit_once(submission())
    assert accepted is not None
    assert accepted.created
    await world.finish()
    job = world.jobs()[accepted.job.id]
    assert job.state is JobState.SUCCEEDED
    assert total_sent(world) == 1
    assert len(world.topics.messages(TOPIC)) == 1
    assert broken(world) == {}


async def test_c01_a_create_that_meets_another_request_is_a_conflict_not_a_success() -> None:
    """A job under the same key that is not this request's is never taken for one's own write."""
    world = World()
    await world.submit(submission(question="one"))
    strike_next(world, "api: commit create jobs", NOT_APPLIED)
    assert await world.submit_once(submission(question="two")) is None
    [job] = world.jobs().values()
    assert "one" in (job.inputs.facts or "")


@pytest.mark.parametrize("times", [1, 3, 10])
@pytest.mark.parametrize("strike", [APPLIED, NOT_APPLIED], ids=["applied", "not applied"])
@pytest.mark.parametrize("call", [CLAIM, SETTLE, CLOSE])
async def test_c03_commits_without_an_answer_cost_no_request(
    call: str, strike: Strike, times: int
) -> None:
    """However often a commit fails, nothing is sent while it is unknown who holds the lease."""
    world = World()
    strike_next(world, call, strike, times=times)
    job = await world.submit(submission())
    [message] = messages(world)
    while not await world.deliver(message):
        world.clock.advance(10.0)
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert total_sent(world) == 1
    assert broken(world) == {}


async def test_c04_losing_a_claim_again_and_again_has_no_side_effect() -> None:
    """30 deliveries at 3 instances that fight for one claim: one request, one reservation."""
    world = World(request_slots=200)
    job = await world.submit(submission(["m0", "m1"], max_requests=3))
    taken = messages(world)
    published = len(world.topics.messages(TOPIC))
    instances = [world.evaluator, world.new_process("second"), world.new_process("third")]
    await asyncio.gather(*(world.deliver(m, p) for p in instances for m in taken for _ in range(5)))
    assert total_sent(world) == 2
    assert len(world.topics.messages(TOPIC)) == published
    budget = world.ledger.stored()[f"budgets/{job.id}.1"]
    assert sorted(budget["reservations"]) == ["0.1", "1.1"]
    assert [evaluation_of(world, job, index).token for index in (0, 1)] == [1, 1]
    assert broken(world) == {}


async def test_c05_twenty_seats_that_end_together_lose_no_update() -> None:
    """20 seats at once on 2 instances: all counted, few writes to the parent, the budget exact."""
    world = World()
    models = [f"m{n}" for n in range(20)]
    job = await world.submit(submission(models, max_requests=20))
    other = world.new_process("other")
    taken = messages(world)
    acked = await asyncio.gather(
        *(world.deliver(m, other if n % 2 else world.evaluator) for n, m in enumerate(taken))
    )
    assert all(acked)
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    terminal = world.terminals(job.id)[1]
    assert [seat.state for seat in terminal.seats] == [SeatState.SUCCEEDED] * 20
    assert terminal.totals.requests == 20
    parent = [change for change in world.ledger.history if change.path == f"jobs/{job.id}"]
    assert len(parent) <= 4
    budget = world.ledger.stored()[f"budgets/{job.id}.1"]
    assert budget["requests"] == 20
    assert broken(world) == {}


async def test_c06_no_record_grows_with_what_providers_say() -> None:
    """Eight huge error bodies and an answer of 1.2 MB leave every document below 100 KB."""
    world = World()
    body = preview("<html>" + "overloaded " * 30_000)
    failed = CallFailure(code="provider_error", message=body, http_status=503)
    huge = ProviderAnswer(text=json.dumps({"rationale": "y" * 1_200_000, "score": 5}))
    replies(world, *[failed] * 8, huge)
    job = await world.submit(submission(max_attempts=10))
    await world.finish()
    record = seat_of(world, job)
    assert record.state is SeatState.SUCCEEDED
    outcomes = [attempt.outcome for attempt in record.attempts]
    assert outcomes == [Outcome.RETRYABLE] * 8 + [Outcome.INVALID_OUTPUT, Outcome.SUCCEEDED]
    sizes = {path: _size(data) for path, data in world.ledger.stored().items()}
    assert max(sizes.values()) < 100_000, sizes


async def test_c06_attempts_of_many_runs_do_not_add_up_for_ever() -> None:
    """60 jobs that ask one question over weeks and are refused leave one small document."""
    world = World()
    replies(world, *[failure("refused", http_status=200)] * 100)
    for number in range(60):
        await world.submit(submission(key=f"key-{number}"))
        await world.finish()
        world.clock.advance(86_400.0)
    [state] = world.evaluations().values()
    assert total_sent(world) == 60
    assert len(state.attempts) < 30
    assert _size(world.ledger.stored()[f"evaluations/{state.work_key}"]) < 100_000


def _size(data: Any) -> int:
    return len(json.dumps(data, default=str).encode())


@pytest.fixture(params=["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def time_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The zone this machine believes to be in."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


async def test_c08_the_zone_of_the_machine_changes_nothing(time_zone: str) -> None:
    """Leases, deadlines and records are the same in every zone, and all times are aware UTC."""
    world = World()
    world.provider.seconds = 45.0
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(1.0)
    state = evaluation_of(world, job)
    assert state.lease_until is not None
    assert (state.lease_until - world.clock.now()).total_seconds() == pytest.approx(29.0, abs=0.1)
    await work
    record = seat_of(world, job)
    assert record.state is SeatState.SUCCEEDED
    assert record.ended_at.isoformat().startswith("2026-11-29T12:00:45")
    assert record.ended_at.utcoffset() is not None
    assert job.window == "2026-11-29T12"
    assert broken(world) == {}


async def test_c08_a_naive_time_is_never_stored() -> None:
    """A time without a zone is refused by the ledger before anything is written."""
    world = World()
    naive = world.clock.now().replace(tzinfo=None)
    with pytest.raises(ValueError, match="time"):
        await world.ledger.commit(Create(path="a/1", data={"at": naive}))
    assert world.ledger.stored() == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (NOT_APPLIED, NOT_APPLIED),
        (NOT_APPLIED, None),
        (APPLIED, None),
        (APPLIED, APPLIED),
        (None, None),
    ],
    ids=["both aborted", "one aborted", "one ambiguous", "both ambiguous", "one conflicts"],
)
async def test_c14_of_two_claims_at_once_at_most_one_owns(
    first: Strike | None, second: Strike | None
) -> None:
    """Whatever becomes of two claims at the same instant, there is one request in the end."""
    world = World()
    job = await world.submit(submission())
    [message] = messages(world)
    other = world.new_process("other")
    strikes = {
        "evaluate: commit create evaluations": first,
        CLAIM.replace("evaluate", "other", 1): second,
    }
    left = {name: strike for name, strike in strikes.items() if strike is not None}

    class Once(dict[str, Strike]):
        def get(self, name: str, default: object = None) -> Strike | None:  # type: ignore[override]
            return left.pop(name, None)

    world.plan.always = Once()
    await asyncio.gather(world.deliver(message), world.deliver(message, other))
    assert total_sent(world) <= 1
    while not await world.deliver(message):
        world.clock.advance(10.0)
    await world.finish()
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert total_sent(world) == 1
    assert broken(world) == {}


async def test_d01_an_upload_that_meets_itself_is_a_success() -> None:
    """Stored, no answer, 412 to the retry: the seat succeeds with that very generation."""
    world = World()
    strike_next(world, "evaluate: create object", APPLIED)
    job = await world.submit(submission())
    await world.finish()
    [name] = world.objects.names()
    stored = await world.objects.stat(name)
    output = seat_of(world, job).output
    assert output is not None
    assert stored is not None
    assert output.generation == stored.generation
    assert total_sent(world) == 1
    assert broken(world) == {}


async def test_d01_an_upload_that_meets_another_answer_keeps_the_first() -> None:
    """A late writer with other content adopts what is there; nothing is overwritten."""
    world = World()
    job = await world.submit(submission())
    [message] = messages(world)
    strike_next(world, "evaluate: create object", Strike(fate=Fate.FREEZE, moment=Moment.BEFORE))
    assert not await world.deliver(message)
    world.clock.advance(40.0)
    await world.finish()
    [name] = world.objects.names()
    assert b"answer 2" in await world.objects.read(name)
    output = seat_of(world, job).output
    assert output is not None
    assert output.generation == 1
    attempts = evaluation_of(world, job).attempts
    assert [a.outcome for a in attempts] == [Outcome.UNKNOWN, Outcome.SUCCEEDED]
    assert broken(world) == {}


def test_c08_canonical_json_knows_no_local_times() -> None:
    """Digests are over the text that was sent: a time with an offset is another text than UTC."""
    texts = ["2026-03-02T10:00:00", "2026-03-02T10:00:00+05:30", "2026-03-02T10:00:00Z"]
    assert len({canonical_json({"created_at": text}) for text in texts}) == 3
