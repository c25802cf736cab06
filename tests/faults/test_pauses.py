"""One instance is told to wait; all instances wait with that key and model, and with nothing else.

Two instances share a ledger. The hint is 20 s unless said otherwise; time is virtual.
"""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from functions.core.documents import pause_path
from functions.core.errors import WriteConflict
from functions.core.jobs import Job, JobState, Outcome, SeatState
from functions.core.pauses import Pause
from functions.core.ports import Create, Write
from functions.core.submissions import SeatRequest
from functions.core.verdicts import CallRequest
from functions.statuses import job_view, read_status
from tests.faults.fakes import Reply, failure
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Process, Strike
from tests.faults.world import TOPIC, World, evaluation_of, seat_of, submission
from tests.virtual_clock import START

SCOPE = "fake-key"
HINT_SECONDS = 20.0
MANY = 24


@dataclass
class Limited:
    """A provider that refuses the questions named, once, and notes when each request came."""

    world: World
    hints: dict[str, float] = field(default_factory=lambda: {"first": HINT_SECONDS})
    code: str = "rate_limited"
    arrivals: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.provider.script = self.reply
        self.world.provider.seconds = 0.0  # so that replies and requests have one time

    def reply(self, request: CallRequest, number: int) -> Reply:
        self.arrivals.append((request.model, self.world.clock.monotonic()))
        for question, seconds in self.hints.items():
            if f'"{question}"' in request.user and number == 1:
                return failure(self.code, http_status=429, hint_seconds=seconds)
        return self.world.provider.answer(request, number)

    def seconds(self, model: str = "m0") -> list[float]:
        """Return when requests for a model came, in seconds since the world began."""
        return [at for name, at in self.arrivals if name == model]


async def ask(world: World, question: str, *models: str, **policy: Any) -> Job:
    """Submit a job with one question and take its messages for delivery."""
    job = await world.submit(
        submission(models or ("m0",), question=question, key=f"{question}{models}", **policy)
    )
    world.collect()
    return job


async def deliver_pending(world: World, process: Process | None = None) -> None:
    """Push everything that is pending at once to one instance."""
    batch = list(world.pending)
    world.pending.clear()
    assert all(await asyncio.gather(*(world.deliver(p.message, process) for p in batch)))
    world.collect()


async def refused(world: World, question: str = "first") -> Job:
    """Let the first instance be refused, so that the pause is on record."""
    job = await ask(world, question)
    await deliver_pending(world)
    return job


async def live(world: World, seconds: float, *processes: Process | None) -> None:
    """Pass the time second by second, with repair, and deliver what it publishes in turn."""
    turns = itertools.cycle(processes or (None,))
    for _ in range(int(seconds)):
        world.clock.advance(1.0)
        await world.repair()
        world.collect()
        await deliver_pending(world, next(turns))


def published(world: World) -> int:
    return len(world.topics.messages(TOPIC))


def stored(world: World, model: str = "m0") -> dict[str, object] | None:
    return world.ledger.stored().get(pause_path(SCOPE, model))


async def test_a_hint_holds_the_other_instance_back_and_lets_it_go_spread_out() -> None:
    """An instance that never met the refusal sends nothing before its end, and then bit by bit."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    first = await refused(world)
    jobs = [await ask(world, f"q{number}") for number in range(MANY)]
    await deliver_pending(world, other)
    assert provider.seconds() == [0.0]
    await live(world, 45.0, other, world.evaluator)
    later = provider.seconds()[1:]
    assert len(later) == MANY + 1
    assert min(later) >= 20.0
    assert max(later) <= 30.0 + 2.0  # the spread is half of the hint; repair looks each second here
    assert max(Counter(map(int, later)).values()) <= MANY / 3
    await world.finish()
    assert broken(world) == {}
    assert all(seat_of(world, job).state is SeatState.SUCCEEDED for job in (first, *jobs))
    assert all(len(seat_of(world, job).attempts) == 1 for job in jobs)


async def test_other_models_go_on_at_once() -> None:
    """The pause of one model holds no seat of another back, not even in the same job."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    await refused(world)
    job = await ask(world, "second", "m0", "m1")
    await deliver_pending(world, other)
    assert provider.seconds("m1") == [0.0]
    assert provider.seconds("m0") == [0.0]
    assert list(world.seats(job.id)) == [(1, 1)]


async def test_another_key_goes_on_at_once() -> None:
    """An instance with another key for the same endpoint and model is not held back."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    await refused(world)
    world.provider.pause_scope = "another key"
    await ask(world, "second")
    await deliver_pending(world, other)
    assert provider.seconds() == [0.0, 0.0]


@pytest.mark.parametrize("code", ["quota_exhausted", "provider_error"])
async def test_other_errors_hold_nobody_back(code: str) -> None:
    """A hint that came with a quota or server error concerns its own seat only."""
    world = World()
    provider, other = Limited(world, code=code), world.new_process("other")
    await refused(world)
    await ask(world, "second")
    await deliver_pending(world, other)
    assert provider.seconds() == [0.0, 0.0]
    assert stored(world) is None


async def test_one_look_serves_all_deliveries_of_an_idle_instance() -> None:
    """Deliveries that arrive together cost one query, not one each."""
    world = World()
    Limited(world)
    other = world.new_process("other")
    await refused(world)
    for number in range(MANY):
        await ask(world, f"q{number}")
    await deliver_pending(world, other)
    assert world.plan.calls.count("other: query providers") == 1


@pytest.mark.parametrize("hints", [(5.0, 40.0), (40.0, 5.0)], ids=str)
async def test_a_shorter_hint_never_releases_early(hints: tuple[float, float]) -> None:
    """Two instances are refused at the same time: the longer hint counts, whoever writes last."""
    world = World()
    provider = Limited(world, hints={"first": hints[0], "second": hints[1]})
    world.provider.seconds = 1.0
    other, third = world.new_process("other"), world.new_process("third")
    await ask(world, "first")
    await ask(world, "second")
    messages = [pushed.message for pushed in world.pending]
    world.pending.clear()
    await asyncio.gather(world.deliver(messages[0]), world.deliver(messages[1], other))
    refused_at = max(provider.seconds())
    await ask(world, "q")
    await deliver_pending(world, third)
    await live(world, 80.0, third)
    assert len(provider.seconds()) == 5
    assert min(provider.seconds()[2:]) >= refused_at + 40.0
    await world.finish()
    assert broken(world) == {}


async def test_a_pause_that_grows_is_waited_for_to_its_new_end() -> None:
    """Seats that wait for a pause are put off again when it has become longer meanwhile."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    await refused(world)
    await ask(world, "q")
    await deliver_pending(world, other)
    longer = Pause(
        scope=SCOPE,
        model="m0",
        code="rate_limited",
        until=START + timedelta(seconds=50),
        ends_at=START + timedelta(seconds=60),
    )
    await world.api.services.pauses.tell(longer)
    await live(world, 70.0, other)
    assert len(provider.seconds()) == 3
    assert min(provider.seconds()[1:]) >= 50.0
    await world.finish()
    assert broken(world) == {}


async def test_seats_that_wait_for_a_slot_are_held_back_too() -> None:
    """A pause that comes while seats stand in the queue for a slot stops them before the claim."""
    world = World()
    world.provider.concurrency = 1
    provider = Limited(world)
    world.provider.seconds = 3.0
    jobs = [await ask(world, question) for question in ("first", "q0", "q1", "q2")]
    await deliver_pending(world)
    assert len(provider.seconds()) == 1
    assert all(evaluation_of(world, job).token == 0 for job in jobs[1:])
    await world.finish()
    assert broken(world) == {}
    assert all(seat_of(world, job).state is SeatState.SUCCEEDED for job in jobs)


async def test_calls_in_flight_go_on() -> None:
    """A request that was sent before the hint came is neither cut nor bought again."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    world.provider.seconds = 10.0
    job = await ask(world, "slow")
    slow = asyncio.create_task(deliver_pending(world, other))
    await world.clock.sleep(5.0)
    world.provider.seconds = 0.0
    await refused(world)
    await slow
    assert [a.outcome for a in seat_of(world, job).attempts] == [Outcome.SUCCEEDED]
    assert len(provider.seconds()) == 2


async def test_an_instance_at_work_learns_of_a_pause_within_a_second() -> None:
    """With calls in flight the look of each second is enough: a claim adds no query."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    world.provider.seconds = 30.0
    await ask(world, "slow", "m1")
    slow = asyncio.create_task(deliver_pending(world, other))
    await world.clock.sleep(3.5)
    world.provider.seconds = 0.0
    await refused(world)
    await world.clock.sleep(1.0)
    looks = world.plan.calls.count("other: query providers")
    await ask(world, "q")
    await deliver_pending(world, other)
    assert provider.seconds("m0") == [3.5]
    assert world.plan.calls.count("other: query providers") == looks
    await slow


async def test_a_waiting_seat_says_until_when() -> None:
    """A seat that had no attempt yet is shown as `waiting`, with the time at which it goes."""
    world = World()
    Limited(world)
    await refused(world)
    job = await ask(world, "q")
    await deliver_pending(world, world.new_process("other"))
    [seat] = job_view(await read_status(world.api.services, world.jobs()[job.id]))["seats"]
    assert (seat["state"], seat["attempts"]) == ("waiting", 0)
    due_at = datetime.fromisoformat(seat["due_at"])
    assert START + timedelta(seconds=20) <= due_at <= START + timedelta(seconds=30)
    await world.finish()
    assert broken(world) == {}


async def test_a_short_wait_leaves_no_trace() -> None:
    """A pause of a few seconds is waited for in the handler, without a write for the seat."""
    world = World()
    provider, other = Limited(world, hints={"first": 3.0}), world.new_process("other")
    first = await ask(world, "first")
    job = await ask(world, "q")
    messages = [pushed.message for pushed in world.pending]
    world.pending.clear()
    refusal = asyncio.create_task(world.deliver(messages[0]))
    await world.clock.sleep(0.5)
    changes = len(world.ledger.history)
    delivery = asyncio.create_task(world.deliver(messages[1], other))
    await world.clock.sleep(1.0)
    assert len(world.ledger.history) == changes
    assert await refusal
    assert await delivery
    assert all(3.0 <= second <= 6.0 for second in provider.seconds()[1:])
    assert broken(world) == {}
    assert seat_of(world, first).state is seat_of(world, job).state is SeatState.SUCCEEDED


async def test_a_pause_beyond_the_deadline_ends_the_seat_at_once() -> None:
    """It fails with the code of the refusal, retryable, with the time, and without an attempt."""
    world = World()
    provider = Limited(world, code="overloaded")
    await refused(world)
    job = await ask(world, "q", deadline_seconds=15)
    await deliver_pending(world, world.new_process("other"))
    record = seat_of(world, job)
    assert record.error is not None
    assert (record.error.code, record.error.retryable) == ("overloaded", True)
    assert record.attempts == ()
    assert record.due_at is not None
    assert record.due_at >= START + timedelta(seconds=20)
    assert world.jobs()[job.id].state is JobState.FAILED
    assert len(provider.seconds()) == 1
    await world.finish()
    assert broken(world) == {}


async def test_a_job_in_a_hurry_shares_the_wait_of_a_patient_one() -> None:
    """A question that waits for a pause without an attempt fails a job that ends before it."""
    world = World()
    Limited(world)
    await refused(world)
    await ask(world, "q")
    await deliver_pending(world)
    hurried = await world.submit(submission(question="q", key="hurried", deadline_seconds=15))
    await world.deliver_all()
    record = seat_of(world, hurried)
    assert record.error is not None
    assert record.error.code == "rate_limited"
    await world.finish()
    assert broken(world) == {}


async def test_two_jobs_with_one_question_wait_for_one_request() -> None:
    """Both seats are held back; one request is made after the pause, and both end with it."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    await refused(world)
    jobs = [await world.submit(submission(question="q", key=key)) for key in ("one", "two")]
    world.collect()
    await deliver_pending(world, other)
    await live(world, 45.0, other)
    await world.finish()
    assert broken(world) == {}
    assert all(seat_of(world, job).state is SeatState.SUCCEEDED for job in jobs)
    assert len(provider.seconds()) == 3


async def test_a_wake_up_call_is_moved_and_not_taken_over() -> None:
    """When a pause grows, the job that waited first keeps its call; the other has its own check."""
    world = World()
    Limited(world)
    await refused(world)
    jobs = [await world.submit(submission(question="q", key=key)) for key in ("one", "two")]
    world.collect()
    first, second = (pushed.message for pushed in world.pending)
    world.pending.clear()
    assert await world.deliver(first)
    before = evaluation_of(world, jobs[0])
    assert before.wake is not None
    assert before.due_at is not None
    world.clock.advance((before.due_at - world.clock.now()).total_seconds())
    until = START + timedelta(seconds=60)
    ends_at = until + timedelta(seconds=10)
    longer = Pause(scope=SCOPE, model="m0", code="overloaded", until=until, ends_at=ends_at)
    await world.api.services.pauses.tell(longer)
    world.clock.advance(3.0)
    assert await world.deliver(second)
    after = evaluation_of(world, jobs[1])
    assert after.wake == before.wake
    assert after.due_at is not None
    assert until <= after.due_at == after.wake_at
    check_at = world.jobs()[jobs[1].id].check_at
    assert check_at is not None
    assert check_at <= after.due_at
    await world.finish()
    assert broken(world) == {}


async def test_repair_brings_each_waiting_seat_back_once_and_in_time() -> None:
    """During a long pause no message is published; after it, one for each seat, within 5 s."""
    world = World()
    provider, other = Limited(world, hints={"first": 200.0}), world.new_process("other")
    await refused(world)
    seats = tuple(
        SeatRequest(seat=f"s{n}", provider="fake", model="m0", parameters={"seed": n})
        for n in range(12)
    )
    asked = submission(["m0"] * 12, question="q", key="panel")
    job = await world.submit(replace(asked, seats=seats))
    world.collect()
    await deliver_pending(world, other)
    due = {e.work_key: e.due_at for e in world.evaluations().values()}
    before = published(world)
    await live(world, 199.0, other)
    assert published(world) == before
    await live(world, 70.0, other)
    assert published(world) == before + 1 + 12
    assert all(second >= 200.0 for second in provider.seconds()[1:])
    for index in range(12):
        [attempt] = seat_of(world, job, index).attempts
        due_at = due[job.seats[index].work_key]
        assert due_at is not None
        assert 0 <= (attempt.started_at - due_at).total_seconds() <= 5.0
    await world.finish()
    assert broken(world) == {}


async def test_a_canceled_job_waits_for_no_pause() -> None:
    """A cancel ends the seats that a pause holds back; nothing is sent for them afterwards."""
    world = World()
    provider = Limited(world)
    await refused(world)
    job = await ask(world, "q")
    await deliver_pending(world)
    await world.cancel(job)
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, job).state is SeatState.CANCELED
    assert len(provider.seconds()) == 2  # the refused one, twice


async def test_a_shutdown_leaves_waiting_seats_to_their_timers() -> None:
    """An instance that closes while seats wait in its handlers hands all of them on."""
    world = World()
    Limited(world, hints={"first": 6.0})
    await ask(world, "first")
    job = await ask(world, "q")
    work = asyncio.create_task(deliver_pending(world))
    await world.clock.sleep(1.0)
    await world.evaluator.services.inflight.shut_down(8.0)
    await work
    world.evaluator = world.new_process("evaluate")
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, job).state is SeatState.SUCCEEDED


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", Fate, ids=lambda f: f.value)
@pytest.mark.parametrize("name", ["get providers", "commit create providers"])
async def test_a_writer_that_is_struck_over_its_pause_loses_no_seat(
    name: str, fate: Fate, moment: Moment
) -> None:
    """The attempt is settled before the pause is written, whatever becomes of the writer then."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    world.plan.always = {f"evaluate: {name}": Strike(fate=fate, moment=moment)}
    job = await ask(world, "first")
    await world.deliver(world.pending.popleft().message)
    [attempt] = evaluation_of(world, job).attempts
    assert attempt.outcome is Outcome.RETRYABLE
    world.plan.always = {}
    await ask(world, "q")
    await deliver_pending(world, other)
    reached = stored(world) is not None
    assert len(provider.seconds()) == (1 if reached else 2)
    await world.finish()
    assert broken(world) == {}


async def test_a_pause_that_is_always_contended_costs_no_seat() -> None:
    """When every write of the pause loses, its own process still obeys, and all seats end well."""
    world = World()
    provider = Limited(world)
    commit = world.ledger.commit

    async def contended(*writes: Write) -> datetime:
        if any(write.path.startswith("providers/") for write in writes):
            raise WriteConflict("busy")
        return await commit(*writes)

    world.ledger.commit = contended  # type: ignore[method-assign]
    first = await refused(world)
    job = await ask(world, "q")
    await deliver_pending(world)
    assert len(provider.seconds()) == 1
    await world.finish()
    assert stored(world) is None
    assert broken(world) == {}
    assert seat_of(world, first).state is seat_of(world, job).state is SeatState.SUCCEEDED


async def test_an_unreadable_pause_holds_nobody_back() -> None:
    """A damaged document is one incident; seats of its model go, the next refusal replaces it."""
    world = World()
    world.observed.expected_incidents = 1
    provider = Limited(world)
    far = START + timedelta(days=1)
    damaged = {"v": 1, "until": "tomorrow", "ends_at": far}
    await world.ledger.commit(Create(path=pause_path(SCOPE, "m0"), data=damaged))
    await ask(world, "q")
    await deliver_pending(world)
    assert provider.seconds() == [0.0]
    await refused(world)
    found = stored(world)
    assert found is not None
    assert found["until"] == START + timedelta(seconds=20)
    await world.finish()
    assert broken(world) == {}


async def test_an_instance_whose_looks_fail_goes_on() -> None:
    """Without an answer to its look an instance asks the provider and is refused by itself."""
    world = World()
    provider, other = Limited(world), world.new_process("other")
    await refused(world)
    world.plan.always = {"other: query providers": Strike(fate=Fate.FAIL, moment=Moment.BEFORE)}
    world.provider.seconds = 5.0
    job = await ask(world, "q")
    await deliver_pending(world, other)
    assert len(provider.seconds()) == 2
    assert seat_of(world, job).state is SeatState.SUCCEEDED


async def test_a_pause_spends_no_reservation() -> None:
    """A seat that is held back reserves nothing of a capped run: another seat can have it."""
    world = World()
    provider = Limited(world)
    await refused(world)
    job = await ask(world, "q", "m0", "m1", max_requests=1, required_seats=1)
    await deliver_pending(world, world.new_process("other"))
    assert provider.seconds("m1") == [0.0]
    assert world.seats(job.id)[(1, 1)].state is SeatState.SUCCEEDED
    await world.finish()
    assert broken(world) == {}


async def test_a_pause_is_deleted_by_the_store_only_when_it_is_over() -> None:
    """Its `expire_at` lies after the end of its spread."""
    world = World()
    Limited(world)
    await refused(world)
    found = stored(world)
    assert found is not None
    assert isinstance(found["expire_at"], datetime)
    assert found["ends_at"] == START + timedelta(seconds=30) < found["expire_at"]
