"""G: identity, budgets, leases and ends of jobs.

| case | where else it is shown |
|---|---|
| G04, G05 | over HTTP, with the status: `tests/e2e/test_panel.py`, `test_bad_requests.py` |
| G05 | canonical JSON, value by value: `tests/unit/test_identities.py` |
| G07 | struck at every call: `tests/faults/test_every_call.py`; in any order: `test_stateful.py` |
| G07 | twenty seats over HTTP: `tests/e2e/test_budgets.py` |
| G07 | a tenant's day: `tests/unit/test_tenant_days.py` |
| G12 | each write of a late holder: `tests/unit/test_leasing.py` |
| G14 | every call of every path: `tests/faults/test_every_call.py` |
| G19 | replays, each promise by itself: `tests/unit/test_replays.py` |
| G21 | purges, each promise by itself: `tests/unit/test_purging.py` |
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions import evaluation
from functions.acceptance import IdempotencyConflict, accept
from functions.budgeting import refund_unsent, reserve_attempt
from functions.core.endings import seat_record
from functions.core.identities import digest
from functions.core.jobs import Job, JobState, Outcome, SeatState
from functions.core.leases import Claimed, claim, end_attempt, released
from functions.core.strict_json import StrictJsonError, parse
from functions.core.submissions import Submission
from functions.core.verdicts import CallRequest, ProviderAnswer
from functions.leasing import Granted, commit_as_holder, try_claim
from functions.reports import build_report
from functions.settlement import settle_as_holder
from functions.statuses import read_status
from tests.cases.scenes import (
    deliver_at,
    envelope,
    error_code,
    messages,
    push,
    replies,
    strike_next,
    tasks_left,
    total_sent,
)
from tests.faults.fakes import Reply, failure
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import TOPIC, World, evaluation_of, seat_of, submission
from tests.unit.records import claimant
from tests.unit.seeing import asking, leased, look, seen

DIE_BEFORE = Strike(fate=Fate.DIE, moment=Moment.BEFORE)
DIE_AFTER = Strike(fate=Fate.DIE, moment=Moment.AFTER)


@pytest.mark.parametrize("lease_seconds", [0.001, 5.0, 600.0])
async def test_g01_a_claim_always_ends_in_the_future(lease_seconds: float) -> None:
    """Every lease has an end, after the claim, however short it is."""
    world = World()
    at = await seen(world)
    decision = claim(at.evaluation, now=at.now, claimant=claimant(lease_seconds=lease_seconds))
    assert isinstance(decision, Claimed)
    assert decision.evaluation.lease_until is not None
    assert decision.evaluation.lease_until > at.now


@pytest.mark.parametrize("seconds", [0.0, 1.0, 100.0])
async def test_g01_too_little_time_claims_nothing(seconds: float) -> None:
    """A handler with no time, or too little for a call, publishes the seat afresh unclaimed."""
    world = World(handler_deadline_seconds=seconds)
    job = await world.submit(submission())
    [message] = messages(world)
    assert await world.deliver(message)
    assert world.evaluations() == {}
    assert len(messages(world)) == 1
    assert job.id in world.jobs()


async def test_g01_a_dead_holder_blocks_until_its_lease_ends_and_no_longer() -> None:
    """A process that dies with its claim holds the question up for one lease."""
    world = World()
    strike_next(world, "evaluate: call", DIE_BEFORE)
    job = await world.submit(submission())
    [message] = messages(world)
    assert not await world.deliver(message)
    claimed_at = evaluation_of(world, job).attempts[0].started_at
    assert await world.deliver(message)
    again = evaluation_of(world, job).attempts[1].started_at
    waited = (again - claimed_at).total_seconds()
    assert world.settings.lease_seconds <= waited <= world.settings.lease_seconds + 2.0
    assert seat_of(world, job).state is SeatState.SUCCEEDED


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_g03_a_request_whose_process_died_is_charged_as_unknown(max_attempts: int) -> None:
    """A second request is sent only where the attempts allow it; the first stays on record."""
    world = World()
    strike_next(world, "evaluate: create object", DIE_BEFORE)
    job = await world.submit(submission(max_attempts=max_attempts))
    await world.finish()
    assert total_sent(world) == max_attempts
    record = seat_of(world, job)
    assert record.attempts[0].outcome is Outcome.UNKNOWN
    expected = SeatState.SUCCEEDED if max_attempts == 2 else SeatState.FAILED
    assert record.state is expected
    assert broken(world) == {}


async def test_g03_a_stored_answer_is_looked_for_before_another_is_bought() -> None:
    """With one attempt allowed and spent, the orphan object still makes the seat a success."""
    world = World()
    strike_next(world, "evaluate: create object", DIE_AFTER)
    job = await world.submit(submission(max_attempts=1))
    await world.finish()
    assert total_sent(world) == 1
    assert seat_of(world, job).state is SeatState.SUCCEEDED


async def _accept(world: World, asked: Submission) -> Job:
    return (await accept(world.api.services, asked)).job


async def test_g04_one_key_is_one_request_for_ever() -> None:
    """Same body: same job. Another body: a conflict, running or ended. Another tenant: its own."""
    world = World()
    body, other = submission(question="A"), submission(question="B")
    job = await _accept(world, body)
    world.clock.advance(1.0)
    assert (await _accept(world, body)).id == job.id
    assert len(world.topics.messages(TOPIC)) == 1
    before = world.ledger.documents()
    with pytest.raises(IdempotencyConflict) as running:
        await _accept(world, other)
    assert running.value.job.id == job.id
    assert world.ledger.documents() == before
    await world.finish()
    before = world.ledger.documents()
    with pytest.raises(IdempotencyConflict):
        await _accept(world, other)
    assert world.ledger.documents() == before
    foreign = await _accept(world, replace(body, tenant="another"))
    assert foreign.id != job.id
    assert foreign.seats[0].work_key != job.seats[0].work_key
    await world.deliver_all()
    assert not world.seats(foreign.id)[(1, 0)].reused


SAME = [
    ('{"a":1,"b":2}', '{"b":2, "a":1}'),
    ('{"w":1.0}', '{"w":1}'),
    ('{"w":1e2}', '{"w":100}'),
    ('{"t":"\\u00e9"}', '{"t":"é"}'),
    ('{"w":-0.0}', '{"w":0}'),
    ('{ "a" : [ 1 , 2 ] }', '{"a":[1,2]}'),
    ('{"w":0.1e1}', '{"w":1}'),
]
DIFFERENT = [
    ('{"t":"e\\u0301"}', '{"t":"\\u00e9"}'),
    ('{"l":[1,2]}', '{"l":[2,1]}'),
    ('{"x":null}', "{}"),
    ('{"w":"1"}', '{"w":1}'),
    ('{"w":true}', '{"w":1}'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_g05_spelling_does_not_change_a_digest(one: str, other: str) -> None:
    """Key order, white space and the spelling of a number or character are not the question."""
    assert digest(parse(one)) == digest(parse(other))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_g05_another_value_is_another_digest(one: str, other: str) -> None:
    """Array order, types, null and Unicode forms count, as documented."""
    assert digest(parse(one)) != digest(parse(other))


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":1,"a":1}', '{"a":1e999}', '{"a":"\\ud800"}'])
def test_g05_what_has_no_digest_is_refused(text: str) -> None:
    """NaN, duplicate keys, overflow and lone surrogates are no JSON here."""
    with pytest.raises(StrictJsonError):
        parse(text)


@pytest.mark.parametrize("instances", [1, 3])
async def test_g07_a_budget_of_three_sends_three_of_eight(instances: int) -> None:
    """Eight seats that start at once on a new budget of three: three requests, five refusals."""
    world = World()
    models = [f"m{n}" for n in range(8)]
    job = await world.submit(submission(models, max_requests=3, required_seats=1))
    processes = [world.evaluator, *(world.new_process("other") for _ in range(instances - 1))]
    taken = messages(world)
    acked = await asyncio.gather(
        *(world.deliver(m, processes[n % instances]) for n, m in enumerate(taken))
    )
    assert all(acked)
    assert total_sent(world) == 3
    codes = [error_code(world, job, index) for index in range(8)]
    assert sorted(map(str, codes)) == ["None"] * 3 + ["budget_exhausted"] * 5
    assert broken(world) == {}


async def test_g07_a_dead_reservation_is_used_by_the_same_attempt_once() -> None:
    """A process that dies between reservation and claim costs the run no request."""
    world = World()
    strike_next(world, "evaluate: commit create budgets", DIE_AFTER)
    job = await world.submit(submission(["m0", "m1"], max_requests=2))
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert total_sent(world) == 2


async def _asked_before(world: World, **policy: Any) -> Job:
    """Return a capped job whose question another job has asked in vain."""
    replies(world, failure("invalid_request", http_status=400))
    await world.submit(submission(key="first"))
    await world.finish()
    return await world.submit(submission(key="second", **policy))


async def test_g07_a_reservation_of_a_call_in_flight_is_not_given_back() -> None:
    """Who finds a seat ended, with an old look, gives back nothing that was sent since."""
    world = World()
    job = await _asked_before(world, max_requests=1)
    services = world.evaluator.services
    at = await look(world, job.id)
    assert await reserve_attempt(services, at) is None
    assert isinstance(await try_claim(services, at, asking(at)), Granted)
    await refund_unsent(services, job, 0)
    assert world.ledger.stored()[f"budgets/{job.id}.1"]["reservations"] == {"0.1": 0}


async def test_g07_a_claim_whose_reservation_was_given_back_sends_nothing() -> None:
    """A delivery that stood between reservation and claim finds its reservation gone, and stops."""
    world = World()
    job = await _asked_before(world, max_requests=1)
    services = world.evaluator.services
    at = await look(world, job.id)
    assert await reserve_attempt(services, at) is None
    await refund_unsent(services, job, 0)
    assert world.ledger.stored()[f"budgets/{job.id}.1"]["reservations"] == {}
    assert not isinstance(await try_claim(services, at, asking(at)), Granted)
    state = evaluation_of(world, job)
    assert (state.holder, state.attempts[-1].outcome) == (None, Outcome.CANCELED)
    assert not state.attempts[-1].sent


async def test_g08_what_was_sent_is_spent_and_nothing_else() -> None:
    """Unusable, unanswered and refused requests count; one that never left does not."""
    world = World()
    replies(
        world,
        ProviderAnswer(text="80, I think", usage=None),
        failure("timeout", http_status=None),
        failure("rate_limited", http_status=429),
        failure("connection_error", http_status=None, sent=False),
    )
    job = await world.submit(submission(max_requests=4, max_attempts=6))
    [message] = messages(world)
    await world.deliver(message)
    await world.finish()
    record = seat_of(world, job)
    assert record.state is SeatState.SUCCEEDED
    assert [(a.outcome, a.sent) for a in record.attempts] == [
        (Outcome.INVALID_OUTPUT, True),
        (Outcome.UNKNOWN, True),
        (Outcome.RETRYABLE, True),
        (Outcome.RETRYABLE, False),
        (Outcome.SUCCEEDED, True),
    ]
    budget = world.ledger.stored()[f"budgets/{job.id}.1"]
    assert budget["requests"] == 4
    before = world.ledger.documents()
    assert await world.deliver(message)
    assert world.ledger.documents() == before


async def test_g08_a_budget_that_failures_have_spent_is_spent() -> None:
    """A run whose requests all failed is not given more than its cap."""
    world = World()
    replies(world, *[failure("overloaded", http_status=529)] * 20)
    job = await world.submit(submission(["m0", "m1"], max_requests=3, max_attempts=6))
    await world.finish()
    assert total_sent(world) == 3
    codes = {error_code(world, job, index) for index in (0, 1)}
    assert "budget_exhausted" in codes


def _keyed(**changes: Any) -> tuple[str, ...]:
    """Return the work keys of a submission with one thing changed."""
    rubric = {"instructions": "Score it.", "scale": {"min": 0, "max": 100}}
    facts = {"subject": "a", "expected": "b"}
    asked = submission()
    seat = replace(asked.seats[0], **changes.pop("seat", {}))
    asked = replace(
        asked,
        facts=facts | changes.pop("facts", {}),
        rubric=rubric | changes.pop("rubric", {}),
        seats=(seat,),
        body=changes,
        tenant=changes.pop("tenant", asked.tenant),
    )

    async def keys() -> tuple[str, ...]:
        job = await _accept(World(), asked)
        return tuple(seat.work_key for seat in job.seats)

    return asyncio.run(keys())


def test_g10_every_part_of_a_question_is_in_its_key() -> None:
    """Wording, scale, parameters, sample, model, tenant, the split of texts: each counts."""
    questions = [
        _keyed(),
        _keyed(rubric={"instructions": "Score it!"}),
        _keyed(rubric={"scale": {"min": 0, "max": 10}}),
        _keyed(seat={"parameters": {"temperature": 0}}),
        _keyed(seat={"parameters": {"temperature": 0.7}}),
        _keyed(seat={"sample": 1}),
        _keyed(seat={"model": "m1"}),
        _keyed(facts={"subject": "a b", "expected": ""}),
        _keyed(facts={"subject": "a", "expected": " b"}),
        _keyed(tenant="another"),
    ]
    assert len(set(questions)) == len(questions)
    assert _keyed() == _keyed(body={"unrelated": 1})


async def test_g10_a_changed_question_is_bought_and_an_unchanged_seat_is_reused() -> None:
    """After one character more in the rubric all seats are asked; else only the new seat is."""
    world = World()
    await world.submit(submission(["m0"], key="first"))
    await world.finish()
    second = await world.submit(submission(["m0", "m1"], key="second"))
    await world.finish()
    assert [seat_of(world, second, index).reused for index in (0, 1)] == [True, False]
    assert total_sent(world) == 2
    changed = submission(["m0"], key="third")
    changed = replace(changed, rubric={**changed.rubric, "instructions": "Score it!"})
    third = await world.submit(changed)
    await world.finish()
    assert not seat_of(world, third).reused
    assert total_sent(world) == 3


async def test_g11_a_finish_after_a_cancel_changes_nothing() -> None:
    """The cancel stays; the late attempt is charged, its seat has a record of its own."""
    world = World()
    job = await world.submit(submission())
    strike_next(world, "evaluate: create object", Strike(fate=Fate.FREEZE, moment=Moment.BEFORE))
    [message] = messages(world)
    assert not await world.deliver(message)
    canceled = await world.cancel(job)
    assert canceled.state is JobState.CANCELED
    terminal = world.terminals(job.id)[1]
    await world.finish()
    assert world.terminals(job.id)[1] == terminal
    assert world.jobs()[job.id].state is JobState.CANCELED
    assert len(seat_of(world, job).attempts) == 1
    assert broken(world) == {}


async def test_g11_a_cancel_after_the_success_changes_nothing() -> None:
    """Who cancels too late is told how the job really ended."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    before = world.ledger.documents()
    assert (await world.cancel(job)).state is JobState.SUCCEEDED
    assert (await world.cancel(world.jobs()[job.id])).state is JobState.SUCCEEDED
    assert world.ledger.documents() == before


async def test_g11_a_cancel_before_the_claim_or_before_its_call_sends_nothing() -> None:
    """Canceled while queued, or between the look and the claim: no request."""
    world = World()
    at = await seen(world)
    await world.cancel(at.job)
    granted = await try_claim(world.evaluator.services, at, asking(at))
    assert not isinstance(granted, Granted)
    queued = await world.submit(submission(key="queued", question="other"))
    [message] = messages(world)
    await world.cancel(queued)
    assert await world.deliver(message)
    await world.finish()
    assert total_sent(world) == 0
    assert {job.state for job in world.jobs().values()} == {JobState.CANCELED}


async def test_g11_a_cancel_racing_with_a_success_has_one_winner() -> None:
    """Whichever commit is first stands, and the answer to the cancel tells which it was."""
    ends = set()
    for turns in range(12):
        world = World()
        world.provider.seconds = 0.0
        job = await world.submit(submission())
        [message] = messages(world)
        work = asyncio.create_task(world.deliver(message))
        for _ in range(turns * 3):
            await asyncio.sleep(0)
        told = await world.cancel(job)
        await work
        await world.finish()
        assert world.jobs()[job.id].state is told.state
        assert broken(world) == {}
        ends.add(told.state)
    assert ends == {JobState.CANCELED, JobState.SUCCEEDED}


async def test_g12_a_late_holder_can_neither_renew_nor_release_nor_fail() -> None:
    """A's three writes after B's claim are refused, also from the same instance; B's end stands."""
    world = World()
    services = world.evaluator.services
    at = await seen(world)
    first = await leased(world, at)
    world.clock.advance(world.settings.lease_seconds + 1.0)
    again = await look(world, at.job.id)
    second = await leased(world, again, holder="the same instance, another claim")
    before = world.ledger.documents()
    renewal = replace(first.evaluation, lease_until=world.clock.now() + timedelta(seconds=30))
    failed = end_attempt(first.evaluation, replace(first.attempt, outcome=Outcome.UNKNOWN))
    record = seat_record(at.job, 0, SeatState.FAILED, ended_at=world.clock.now(), evaluation=failed)
    assert await commit_as_holder(services, first, renewal) is None
    assert await commit_as_holder(services, first, released(first.evaluation)) is None
    assert not await settle_as_holder(services, at.job, first, released(failed), record)
    assert world.ledger.documents() == before
    won = replace(record, state=SeatState.SUCCEEDED)
    assert await settle_as_holder(services, at.job, second, released(second.evaluation), won)
    before = world.ledger.documents()
    assert not await settle_as_holder(services, at.job, first, released(failed), record)
    assert world.ledger.documents() == before


@pytest.mark.parametrize(
    ("call", "strike"),
    [
        ("api: publish 3", DIE_BEFORE),
        ("api: publish 3", DIE_AFTER),
        ("reconcile: publish 3", DIE_BEFORE),
        ("reconcile: publish 3", DIE_AFTER),
    ],
)
@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_g14_an_accepted_job_is_never_stranded(call: str, strike: Strike, lost: int) -> None:
    """Death before, in or after a publish, and lost messages: each seat runs, each once."""
    world = World()
    strike_next(world, call, strike)
    job = await world.submit(submission(["m0", "m1", "m2"]))
    if "reconcile" in call:
        world.drop_messages()
    world.collect()
    for _ in range(min(lost, len(world.pending))):
        world.pending.popleft()
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert set(world.sent().values()) == {1}
    assert broken(world) == {}


async def test_g15_a_failed_seat_is_named_and_never_a_number() -> None:
    """Two of three answered: partial, mean over two of three, the third named and no score."""
    world = World()

    def panel(request: CallRequest, number: int) -> Reply:
        if request.model == "b":
            return failure("provider_error", http_status=500)
        score = {"a": 80, "c": 60}[request.model]
        return ProviderAnswer(text=f'{{"rationale": "x", "score": {score}}}')

    world.provider.script = panel
    job = await world.submit(submission(["a", "b", "c"], max_attempts=1, required_seats=3))
    await world.finish()
    services = world.api.services
    status = await read_status(services, world.jobs()[job.id])
    report = await build_report(services, status)
    assert report["complete"] is False
    assert [seat["seat"] for seat in report["missing"]] == ["fake/b"]
    assert [seat["score"] for seat in report["seats"]] == [80, 60]
    summary = report["summary"]
    assert (summary["mean"], summary["min"], summary["n"], summary["of"]) == (70, 60, 2, 3)
    assert world.jobs()[job.id].state is JobState.FAILED  # three were required, not two of two


async def test_g17_a_failure_costs_the_siblings_nothing() -> None:
    """Answers beside a failed seat are kept; asking again buys the failed one only."""
    world = World()
    broke = iter([True])

    def panel(request: CallRequest, number: int) -> Reply:
        if request.model == "b" and next(broke, False):
            return failure("invalid_request", http_status=400)
        return world.provider.answer(request, number)

    world.provider.script = panel
    await world.submit(submission(["a", "b", "c"], key="first"))
    assert all(await asyncio.gather(*map(world.deliver, messages(world))))
    assert len(world.objects.names()) == 2
    assert await tasks_left() == set()
    second = await world.submit(submission(["a", "b", "c"], key="second"))
    await world.finish(at_once=True)
    assert world.jobs()[second.id].state is JobState.SUCCEEDED
    assert sorted(world.sent().values()) == [1, 1, 2]
    assert await tasks_left() == set()


async def test_g19_a_replay_uses_what_was_pinned_at_acceptance() -> None:
    """Between a failure and its replay prices and defaults change: seats and digests stay."""
    world = World()
    replies(world, failure("refused", http_status=200))
    job = await world.submit(submission(("m0",)))
    await world.finish()
    before = world.jobs()[job.id]
    world.settings = replace(world.settings, provider_deadline_seconds=60.0, retention_days=100)
    world.api = world.new_process("api")
    await world.replay(before)
    await world.finish()
    after = world.jobs()[job.id]
    pinned = ("seats", "policy", "digests", "inputs", "policy_revision", "decision_id")
    assert all(getattr(after, name) == getattr(before, name) for name in pinned)
    first, second = (world.terminals(job.id)[run] for run in (1, 2))
    assert (first.state, second.state) == (JobState.FAILED, JobState.SUCCEEDED)
    assert first.input_digest == second.input_digest
    assert broken(world) == {}


async def test_g19_a_replay_under_another_prompt_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deploy changed the prompt template: the seat ends with that reason and asks nothing."""
    world = World()
    replies(world, failure("refused", http_status=200))
    job = await world.submit(submission(("m0",)))
    await world.finish()
    monkeypatch.setattr(evaluation, "PROMPT_DIGEST", digest("another template"))
    await world.replay(world.jobs()[job.id])
    await world.finish()
    record = world.seats(job.id)[(2, 0)]
    assert record.error is not None
    assert record.error.code == "identity_changed"
    assert total_sent(world) == 1


async def test_g21_a_purged_identity_stays_reserved() -> None:
    """Job and answers purged: the same key is the purged job or a conflict, never an old answer."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    await world.purge(world.jobs()[job.id])
    again = await accept(world.api.services, submission())
    assert (again.created, again.job.purged_at is not None) == (False, True)
    with pytest.raises(IdempotencyConflict):
        await accept(world.api.services, submission(question="a new payload"))
    fresh = await world.submit(submission(key="fresh"))
    await world.finish()
    assert world.jobs()[fresh.id].state is JobState.SUCCEEDED
    assert total_sent(world) == 2
    assert broken(world) == {}


async def test_g21_an_object_without_its_records_is_not_served() -> None:
    """The ledger forgot everything and the bucket did not: a new job buys its own answer."""
    world = World()
    await world.submit(submission())
    await world.finish()
    [old] = world.objects.names()
    world.ledger._documents.clear()
    world.clock.advance(40 * 86_400)
    world.api = world.new_process("api")  # it remembers no window
    job = await world.submit(submission())
    await world.finish()
    assert old in world.objects.names()
    status = await read_status(world.api.services, world.jobs()[job.id])
    report = await build_report(world.api.services, status)
    assert [seat["rationale"] for seat in report["seats"]] == ["m0, answer 2"]
    assert total_sent(world) == 2


async def test_g22_a_call_longer_than_its_lease_is_made_once() -> None:
    """A call of 70 s under leases of 30 s, its message again every 20 s: one request."""
    world = World(lease_seconds=30.0)
    world.provider.seconds = 70.0
    job = await world.submit(submission())
    [message] = messages(world)
    acked = await asyncio.gather(*(deliver_at(world, 20.0 * n, message) for n in range(5)))
    assert all(acked)
    await world.finish()
    assert total_sent(world) == 1
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert broken(world) == {}


async def test_g22_an_owner_that_cannot_renew_stops_and_writes_nothing() -> None:
    """Renewals without an answer until the lease is nearly over cut the call; no writes."""
    world = World(lease_seconds=30.0)
    world.provider.seconds = 70.0
    job = await world.submit(submission())
    [message] = messages(world)
    renewal = "evaluate: commit update evaluations"
    strike_next(world, renewal, Strike(fate=Fate.FAIL, moment=Moment.BEFORE), times=10_000)
    work = asyncio.create_task(push(world, envelope(message)))
    await world.clock.sleep(29.9)
    assert len(world.provider.cut_at) == 1
    cut = world.provider.cut_at[0] - evaluation_of(world, job).attempts[0].started_at
    assert cut.total_seconds() < 30.0
    assert evaluation_of(world, job).attempts[0].outcome is Outcome.RUNNING
    world.plan.always = {}
    assert await work == 204
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert [a.outcome for a in seat_of(world, job).attempts] == [
        Outcome.UNKNOWN,
        Outcome.SUCCEEDED,
    ]
