"""What is counted is what the ledger holds, whatever happened on the way."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from functions.audit import audit
from functions.core.audits import GAPS
from functions.core.documents import seat_path, to_document
from functions.core.endings import stopped_seat
from functions.core.jobs import JobState, Outcome
from functions.core.ports import Create
from functions.core.verdicts import CallRequest
from functions.settlement import close_if_ended
from tests.cases.scenes import envelope, messages, push, strike_next
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld
from tests.faults.notifying import failed as webhook_failed
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission
from tests.signals import Signals

CLAIM, RETRY = "commit create evaluations", "commit update evaluations"
SETTLE = "commit update evaluations, create seats"
CLOSE = "commit create terminals, create notifications, update jobs"
RUNS, SEATS, ATTEMPTS = "empanel.runs.ended", "empanel.seats.ended", "empanel.attempts.ended"


def ledger_attempts(world: World) -> dict[str, int]:
    """All attempts on record that have ended, by outcome."""
    found = [a for state in world.evaluations().values() for a in state.attempts]
    return dict(Counter(a.outcome.value for a in found if a.outcome is not Outcome.RUNNING))


def ledger_seats(world: World) -> dict[str, int]:
    found = [record for job in world.jobs() for record in world.seats(job).values()]
    return dict(Counter(record.state.value for record in found))


def ledger_runs(world: World) -> dict[str, int]:
    found = [t for job in world.jobs() for t in world.terminals(job).values()]
    return dict(Counter(terminal.state.value for terminal in found))


def script(request: CallRequest, number: int) -> Any:
    """Answer by the model's name: some at once, some late, some never."""
    if request.model == "refused":
        return failure("refused", http_status=200)
    if request.model == "busy" and number < 3:
        return failure("overloaded", http_status=529)
    return None


@pytest.mark.parametrize(
    ("call", "fate", "moment"),
    [
        ("call", Fate.FAIL, Moment.AFTER),
        ("call", Fate.DIE, Moment.AFTER),
        ("create object", Fate.FAIL, Moment.AFTER),
        ("create object", Fate.DIE, Moment.AFTER),
        (CLAIM, Fate.FAIL, Moment.AFTER),
        (CLAIM, Fate.FAIL, Moment.BEFORE),
        (RETRY, Fate.FAIL, Moment.AFTER),
        (SETTLE, Fate.FAIL, Moment.AFTER),
        (SETTLE, Fate.FAIL, Moment.BEFORE),
        (SETTLE, Fate.DIE, Moment.BEFORE),
        (CLOSE, Fate.FAIL, Moment.AFTER),
        (CLOSE, Fate.DIE, Moment.BEFORE),
    ],
)
async def test_counts_are_those_of_the_ledger(call: str, fate: Fate, moment: Moment) -> None:
    """With retries, failures, a shared question, and a process that dies or gets no answer.

    A process that dies loses the counts of what it has written just then, so here it writes nothing
    else at that time.
    """
    signals = Signals()
    world = World(metrics=signals.metrics)
    answer = world.provider.answer
    world.provider.script = lambda asked, n: script(asked, n) or answer(asked, n)
    for key in ("one", "two"):
        await world.submit(submission(("plain", "busy", "refused"), key=key, required_seats=2))
    strike_next(world, f"evaluate: {call}", Strike(fate=fate, moment=moment), times=2)
    await world.finish(at_once=fate is Fate.FAIL)
    assert f"evaluate: {call}" in world.plan.calls
    assert signals.by(ATTEMPTS, "empanel.outcome") == ledger_attempts(world)
    assert signals.by(SEATS, "empanel.state") == ledger_seats(world)
    assert signals.by(RUNS, "empanel.state") == ledger_runs(world)
    assert signals.by("empanel.runs.accepted", "empanel.replay") == {False: 2}
    assert set(signals.by(ATTEMPTS, "empanel.provider")) == {"fake"}


async def test_a_run_that_is_closed_already_is_not_counted_again() -> None:
    """Whoever finds the terminal record there has ended nothing."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    job = await world.submit(submission())
    await world.finish()
    assert not await close_if_ended(world.evaluator.services, world.jobs()[job.id])
    assert signals.by(RUNS, "empanel.state") == {"succeeded": 1}


async def test_a_seat_that_another_process_recorded_is_not_counted_again() -> None:
    """The holder's write then ends its attempt alone."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    world.provider.seconds = 10.0
    job = await world.submit(submission())
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(5.0)
    now = world.clock.now()
    record = stopped_seat(replace(job, state=JobState.CANCELED), 0, None, now)
    path = seat_path(job.id, job.run, 0)
    await world.ledger.commit(Create(path=path, data=to_document(record)))
    await work
    assert signals.by(ATTEMPTS, "empanel.outcome") == {"succeeded": 1}
    assert signals.points(SEATS) == {}


async def test_no_attribute_is_an_identity() -> None:
    """Jobs, tenants, owners and seats may be any number; none of them is a series of its own."""
    signals = Signals()
    world = NotifyingWorld(metrics=signals.metrics)
    job = await world.ended(seats=("m0", "m1"))
    await world.settle()
    await audit(world.reconciler.services)
    names = [
        *(RUNS, SEATS, ATTEMPTS, "empanel.runs.accepted", "empanel.slot.wait"),
        *("empanel.audit.runs", "empanel.audit.gaps", "empanel.audit.windows"),
        *("empanel.notifications.tries", "gen_ai.client.operation.duration"),
        "gen_ai.client.token.usage",
    ]
    told = {str(value) for name in names for labels in signals.points(name) for _, value in labels}
    assert "m0" in told
    assert not told & {job.id, job.tenant, job.owner, job.decision_id, "fake/m0"}


async def test_a_call_is_timed_and_its_tokens_counted() -> None:
    """Seconds and tokens, by vendor and model."""
    signals = Signals()
    world = World(metrics=signals.metrics, tracing=signals.tracing)
    world.provider.seconds = 3.0
    await world.submit(submission())
    await world.deliver_all()
    [(labels, point)] = signals.points("gen_ai.client.operation.duration").items()
    assert (point.count, point.sum) == (1, pytest.approx(3.0))
    assert (
        dict(labels).items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "acme",
            "gen_ai.request.model": "m0",
        }.items()
    )
    tokens = signals.points("gen_ai.client.token.usage").items()
    sums = {dict(labels)["gen_ai.token.type"]: point.sum for labels, point in tokens}
    assert sums == {"input": 100, "output": 20}


async def test_the_queue_is_timed_from_publish_to_the_first_claim() -> None:
    """A message that was delivered late waited; a later attempt's wait is the retry's own."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    replies = iter([failure("overloaded", http_status=529)])
    answer = world.provider.answer
    world.provider.script = lambda asked, n: next(replies, None) or answer(asked, n)
    await world.submit(submission())
    [message] = messages(world)
    body = envelope(message).replace(
        b"2026-11-29T12:00:00Z", world.clock.now().isoformat().encode()
    )
    world.clock.advance(7.0)
    assert await push(world, body) == 204
    [point] = signals.points("empanel.queue.wait").values()
    assert point.count == 1
    assert point.sum == pytest.approx(7.0, abs=0.1)
    [state] = world.evaluations().values()
    assert len(state.attempts) == 2


async def test_a_full_provider_is_a_wait() -> None:
    """Two seats at one call at once: the second waits for the first one's call."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    world.provider.concurrency = 1
    world.provider.seconds = 4.0
    await world.submit(submission(("m0", "m1")))
    await world.deliver_all(at_once=True)
    [point] = signals.points("empanel.slot.wait").values()
    assert point.count == 2
    assert point.max >= 4.0


async def test_a_lost_lease_is_counted() -> None:
    """A process that stood still finds another holder."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    await world.submit(submission())
    strike_next(world, "evaluate: call", Strike(fate=Fate.FREEZE, moment=Moment.AFTER))
    await world.deliver_all()
    await world.finish()
    await world.thaw()
    assert sum(signals.points("empanel.leases.lost").values()) == 1


async def test_work_without_room_is_a_refusal() -> None:
    """A run's cap on requests ends its second seat."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    await world.submit(submission(("m0", "m1"), max_requests=1, required_seats=1))
    await world.finish()
    assert signals.by("empanel.budget.refusals", "empanel.cap") == {"run": 1}
    assert signals.by(SEATS, "error.type") == {None: 1, "budget_exhausted": 1}


async def test_tries_of_notifications_are_counted_by_outcome() -> None:
    """One that fails and one that arrives."""
    signals = Signals()
    world = NotifyingWorld(metrics=signals.metrics)
    world.answers(webhook_failed())
    await world.ended()
    await world.settle()
    tries = signals.by("empanel.notifications.tries", "empanel.outcome")
    assert tries == {"retryable": 1, "delivered": 1}


async def test_repairs_are_counted_by_kind() -> None:
    """A message that was lost is dispatched again."""
    signals = Signals()
    world = World(metrics=signals.metrics)
    await world.submit(submission())
    world.drop_messages()
    await world.finish()
    assert signals.by("empanel.repairs", "empanel.kind") == {"dispatched": 1}


async def test_an_audit_shows_its_denominator_and_each_gap() -> None:
    """A gap is there while it is, and 0 again when it is mended."""
    signals = Signals()
    world = NotifyingWorld(metrics=signals.metrics)
    job = await world.ended()
    await world.settle()
    [output] = [record.output for record in world.seats(job.id).values()]
    assert output is not None
    name = output.uri.split("/", 3)[-1]
    kept = world.objects._objects.pop(name)
    await audit(world.reconciler.services)
    assert signals.by("empanel.audit.runs", "empanel.state")["succeeded"] == 1
    gaps = signals.by("empanel.audit.gaps", "empanel.kind")
    assert gaps.keys() >= set(GAPS)
    assert gaps["missing_output"] == 1
    world.objects._objects[name] = kept
    await audit(world.reconciler.services)
    assert signals.by("empanel.audit.gaps", "empanel.kind")["missing_output"] == 0
    assert sum(signals.by("empanel.audit.windows", "empanel.result").values()) == 2
