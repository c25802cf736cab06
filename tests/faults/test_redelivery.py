"""Messages that come twice, late or never; providers that fail; workers that die each time."""

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest

from functions.core.jobs import JobState, Outcome, SeatState
from functions.core.retries import backoff_seconds
from functions.core.verdicts import CallRequest, ProviderAnswer
from tests.faults.fakes import Reply, failure
from tests.faults.invariants import broken
from tests.faults.matrix import ONE, PATHS, STORIES, Shape, live, path_of
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, evaluation_of, seat_of, submission

DIE_BEFORE_CALL = {"evaluate: call": Strike(fate=Fate.DIE, moment=Moment.BEFORE)}


async def test_two_deliveries_at_once_buy_once() -> None:
    """Two deliveries of one message at the same time make one request; both are acked."""
    world = World()
    job = await world.submit(submission())
    world.collect()
    message = world.pending[0].message
    assert all(await asyncio.gather(world.deliver(message), world.deliver(message)))
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert sum(world.sent().values()) == 1


async def test_two_instances_with_the_same_message_buy_once() -> None:
    """The same message at two instances at the same time makes one request."""
    world = World()
    await world.submit(submission())
    world.collect()
    message, other = world.pending[0].message, world.new_process("other")
    await asyncio.gather(world.deliver(message), world.deliver(message, other))
    await world.finish()
    assert broken(world) == {}
    assert sum(world.sent().values()) == 1


@pytest.mark.parametrize("reply", ["answer", "refusal"])
async def test_duplicates_after_the_end_change_nothing(reply: str) -> None:
    """A message that comes again after its run has ended is acked and leaves no trace."""
    world = World()
    if reply == "refusal":
        world.provider.script = lambda request, number: failure("refused", http_status=200)
    await world.submit(submission())
    world.collect()
    message = world.pending[0].message
    await world.finish()
    before, sent = world.ledger.documents(), world.sent()
    for _ in range(3):
        assert await world.deliver(message)
    assert world.ledger.documents() == before
    assert world.sent() == sent


async def test_duplicates_of_an_ended_seat_buy_nothing_while_the_run_is_open() -> None:
    """A message of a failed seat that comes again before the run ends sends no request."""
    world = World()
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        failure("refused", http_status=200) if request.model == "m0" else answer(request, number)
    )
    job = await world.submit(submission(["m0", "m1"], required_seats=1))
    world.collect()
    first = world.pending[0].message
    for _ in range(3):
        assert await world.deliver(first)
    assert sum(world.sent().values()) == 1
    await world.finish()
    assert broken(world) == {}
    assert world.jobs()[job.id].state is JobState.SUCCEEDED


async def test_a_job_whose_messages_are_all_lost_is_finished_by_repair() -> None:
    """With nothing delivered of what was published, repair brings each seat to one request."""
    world = World()
    job = await world.submit(submission(["m0", "m1", "m2"]))
    assert world.drop_messages() == 3
    await world.finish()
    assert broken(world) == {}
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert set(world.sent().values()) == {1}


async def test_the_same_request_again_makes_no_new_work() -> None:
    """The same identity gives the same job, publishes nothing and sends nothing."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    published = len(world.topics.messages("empanel-evaluate"))
    again = await world.submit_once(submission())
    assert again is not None
    assert (again.job.id, again.created) == (job.id, False)
    assert len(world.topics.messages("empanel-evaluate")) == published
    assert broken(world) == {}


async def test_another_job_with_the_same_question_reuses_the_answer() -> None:
    """A later job that asks the same gets the stored output without a request, and says so."""
    world = World()
    first = await world.submit(submission(key="first"))
    await world.finish()
    second = await world.submit(submission(key="second"))
    await world.finish()
    assert broken(world) == {}
    assert sum(world.sent().values()) == 1
    assert not seat_of(world, first).reused
    assert seat_of(world, second).reused
    assert seat_of(world, second).output == seat_of(world, first).output


async def test_an_output_that_is_gone_is_an_incident_and_bought_again() -> None:
    """Reuse looks at the object: when it is gone, one incident is opened and a new name is used."""
    world = World()
    await world.submit(submission(key="first"))
    await world.finish()
    [lost] = world.objects.names()
    world.objects.lose(lost)
    second = await world.submit(submission(key="second"))
    await world.finish()
    [incident] = world.incidents()
    assert incident["kind"] == "output_missing"
    assert lost not in world.objects.names()
    record = seat_of(world, second)
    assert record.state is SeatState.SUCCEEDED
    assert not record.reused
    assert evaluation_of(world, second).epoch == 1
    assert sum(world.sent().values()) == 2


async def test_jobs_that_wait_together_share_one_refusal() -> None:
    """Two jobs with one question buy one refusal; a later job asks afresh."""
    world = World()
    world.provider.script = lambda request, number: failure("refused", http_status=200)
    jobs = [await world.submit(submission(key=key)) for key in ("first", "second")]
    await world.finish(at_once=True)
    assert [seat_of(world, job).error.code for job in jobs] == ["refused", "refused"]  # type: ignore[union-attr]
    assert sum(world.sent().values()) == 1
    later = await world.submit(submission(key="third"))
    await world.finish()
    assert sum(world.sent().values()) == 2
    assert seat_of(world, later).state is SeatState.FAILED
    assert broken(world) == {}


async def test_a_permanent_failure_ends_its_seat_after_one_request() -> None:
    """A refusal for good is asked once; the other seats succeed and the run counts them."""
    world = World()
    answer = world.provider.answer
    world.provider.script = lambda request, number: (
        failure("quota_exhausted", http_status=429)
        if request.model == "m1"
        else answer(request, number)
    )
    job = await world.submit(submission(["m0", "m1", "m2"]))
    await world.finish(at_once=True)
    assert broken(world) == {}
    assert [seat_of(world, job, i).state.value for i in range(3)] == [
        "succeeded",
        "failed",
        "succeeded",
    ]
    error = seat_of(world, job, 1).error
    assert error is not None
    assert (error.code, error.retryable) == ("quota_exhausted", False)
    assert set(world.sent().values()) == {1}
    assert world.jobs()[job.id].state is JobState.FAILED


async def test_a_retryable_failure_is_asked_max_attempts_times() -> None:
    """An overloaded provider is asked `max_attempts` times, later each time, and then no more."""
    world = World()
    sent_at = []

    def busy(request: CallRequest, number: int) -> Reply:
        sent_at.append(world.clock.monotonic())
        return failure("overloaded", http_status=529)

    world.provider.script = busy
    job = await world.submit(submission(max_attempts=3))
    await world.finish()
    assert broken(world) == {}
    record = seat_of(world, job)
    assert record.error is not None
    assert record.error.code == "attempts_exhausted"
    assert [attempt.outcome for attempt in record.attempts] == [Outcome.RETRYABLE] * 3
    waits = [later - earlier for earlier, later in pairwise(sent_at)]
    assert len(waits) == 2
    first, second = (backoff_seconds(number) + world.provider.seconds for number in (1, 2))
    assert waits[0] >= first
    assert waits[1] >= second >= first + 1.0


async def test_a_hint_is_waited_for() -> None:
    """No request is sent before the time that the provider asked for, and one is soon after."""
    world = World()
    answer, sent_at = world.provider.answer, []

    def limited(request: CallRequest, number: int) -> Reply:
        sent_at.append(world.clock.monotonic())
        if number > 1:
            return answer(request, number)
        return failure("rate_limited", http_status=429, hint_seconds=120.0)

    world.provider.script = limited
    job = await world.submit(submission())
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert 120.0 <= sent_at[1] - sent_at[0] <= 180.0


async def test_an_unusable_answer_is_asked_for_once_more() -> None:
    """An answer that is no verdict is bought twice, never a third time, and never stored."""
    world = World()
    world.provider.script = lambda request, number: ProviderAnswer(text="I would say 80")
    job = await world.submit(submission(max_attempts=4))
    await world.finish()
    assert broken(world) == {}
    record = seat_of(world, job)
    assert record.error is not None
    assert record.error.code == "invalid_output"
    assert [attempt.outcome for attempt in record.attempts] == [Outcome.INVALID_OUTPUT] * 2
    assert world.objects.names() == []


async def test_a_worker_that_dies_at_each_claim_spends_its_attempts() -> None:
    """A seat whose worker dies after every claim ends `attempts_exhausted` after `max_attempts`."""
    world = World()
    world.plan.always = DIE_BEFORE_CALL
    job = await world.submit(submission(max_attempts=3))
    await world.finish()
    assert broken(world) == {}
    record = seat_of(world, job)
    assert record.error is not None
    assert record.error.code == "attempts_exhausted"
    assert [attempt.outcome for attempt in record.attempts] == [Outcome.UNKNOWN] * 3
    assert evaluation_of(world, job).token == 3
    assert sum(world.sent().values()) == 0


async def test_a_worker_that_dies_with_each_answer_pays_for_no_more_than_its_attempts() -> None:
    """A seat whose worker dies before every store sends `max_attempts` requests and ends."""
    world = World()
    world.plan.always = {"evaluate: create object": Strike(fate=Fate.DIE, moment=Moment.BEFORE)}
    job = await world.submit(submission(max_attempts=2))
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, job).state is SeatState.FAILED
    assert sum(world.sent().values()) == 2


async def test_an_interruption_is_spent_but_not_counted() -> None:
    """A call cut by a shutdown is on record, and does not use up the only attempt of the seat."""
    world = World()
    world.provider.seconds = 12.0
    job = await world.submit(submission(max_attempts=1))
    work = asyncio.create_task(world.deliver_all())
    await world.clock.sleep(3.0)
    old, world.evaluator = world.evaluator, world.new_process("evaluate")
    await old.services.inflight.shut_down(0.0)
    await work
    world.observed.lost_calls.update([job.seats[0].work_key])
    await world.finish()
    assert broken(world) == {}
    record = seat_of(world, job)
    assert record.state is SeatState.SUCCEEDED
    outcomes = [(attempt.outcome, attempt.code) for attempt in record.attempts]
    assert outcomes == [(Outcome.CANCELED, "interrupted"), (Outcome.SUCCEEDED, None)]


async def test_a_cancel_cuts_the_calls_within_two_seconds() -> None:
    """After a cancel in one process the calls of another end within 2 s, counted as spent."""
    world = World()
    world.provider.seconds = 60.0
    job = await world.submit(submission(["m0", "m1"]))
    work = asyncio.create_task(world.deliver_all(at_once=True))
    await world.clock.sleep(5.0)
    canceled_at = world.clock.now()
    assert (await world.cancel(job)).state is JobState.CANCELED
    await work
    assert len(world.provider.cut_at) == 2
    assert all((cut - canceled_at).total_seconds() <= 2.0 for cut in world.provider.cut_at)
    await world.finish()
    assert broken(world) == {}
    for index in range(2):
        record = seat_of(world, job, index)
        assert record.state is SeatState.CANCELED
        assert [attempt.outcome for attempt in record.attempts] == [Outcome.CANCELED]


async def test_a_late_success_changes_no_terminal_record_and_is_kept() -> None:
    """An answer that comes after its run has expired is stored, and the next job reuses it."""
    world = World()
    job = await world.submit(submission(key="first", deadline_seconds=20))
    world.collect()
    world.plan.strikes = {
        len(world.plan.calls) + 6: Strike(fate=Fate.FREEZE, moment=Moment.AFTER)
    }  # peek, pauses, claim, terminal, start, call: frozen with the answer in hand
    assert not await world.deliver(world.pending.popleft().message)
    for _ in range(3):
        world.clock.advance(20.0)
        await world.repair()
    terminal = world.terminals(job.id)[1]
    assert terminal.state is JobState.EXPIRED
    await world.finish()
    assert world.terminals(job.id)[1] == terminal
    later = await world.submit(submission(key="second"))
    await world.finish()
    assert broken(world) == {}
    assert seat_of(world, later).reused
    assert sum(world.sent().values()) == 1


async def test_a_changed_endpoint_ends_the_seat_without_a_call() -> None:
    """A seat whose endpoint is no longer the one in its work key ends `identity_changed`."""
    world = World()
    job = await world.submit(submission())
    world.provider.endpoint = "another endpoint"
    await world.finish()
    assert broken(world) == {}
    error = seat_of(world, job).error
    assert error is not None
    assert error.code == "identity_changed"
    assert sum(world.sent().values()) == 0


async def test_a_lost_input_ends_the_seat_and_calls_an_operator() -> None:
    """A job whose input object is gone ends `identity_changed`, with an incident and no call."""
    world = World()
    world.observed.expected_incidents = 1
    job = await world.submit(submission(filler=40_000))
    for name in world.objects.names():
        world.objects.lose(name)
    await world.finish()
    assert world.jobs()[job.id].state is JobState.FAILED
    assert [incident["kind"] for incident in world.incidents()] == ["input_missing"]
    assert world.provider.sent == Counter()


@pytest.mark.parametrize("length", [2, 4, 8])
def test_an_outage_of_the_ledger_costs_no_request(length: int) -> None:
    """However an outage of some calls falls on the path, no answer is bought a second time."""
    calls = path_of(ONE)
    for start in range(1, len(calls) + 1):
        world = asyncio.run(_outage(start, length))
        assert broken(world) == {}, f"from call {start}"
        assert sum(world.sent().values()) == 1, f"from call {start}"


async def _outage(start: int, length: int) -> World:
    """Live through a world in which `length` calls of the ledger fail, from call `start` on."""
    world = World()
    failing = iter(range(length))

    class Outage(dict[str, Strike]):
        def get(self, name: str, default: object = None) -> Strike | None:  # type: ignore[override]
            ledger = not any(word in name for word in ("call", "object", "publish"))
            if len(world.plan.calls) < start or not ledger or next(failing, None) is None:
                return None
            return Strike(fate=Fate.FAIL, moment=Moment.BEFORE)

    world.plan.always = Outage()
    return await live(world, ONE)


@pytest.mark.parametrize("seed", range(60))
def test_any_few_faults_break_no_invariant(seed: int) -> None:
    """Up to four strikes of any kind, anywhere in any story, break no invariant."""
    dice = random.Random(seed)
    shape: Shape = dice.choice((*PATHS, *STORIES))
    strikes = {
        dice.randint(1, 60): Strike(fate=dice.choice([*Fate]), moment=dice.choice([*Moment]))
        for _ in range(dice.randint(2, 4))
    }
    world = asyncio.run(live(World(strikes), shape))
    assert broken(world) == {}, (str(shape), strikes)
