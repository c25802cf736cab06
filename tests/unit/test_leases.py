"""Who may claim an evaluation: each clause by itself, in its order, and what a claim writes."""

from dataclasses import replace
from datetime import datetime

import pytest

from functions.core.jobs import Evaluation, Outcome, Wake
from functions.core.leases import (
    KEPT_ATTEMPTS,
    MAX_INTERRUPTIONS,
    MOST_ATTEMPTS,
    Claimed,
    Exhausted,
    Held,
    NotDue,
    Reusable,
    attempts_since,
    bury,
    claim,
    end_attempt,
    exhausted,
    is_held_by,
    is_live,
    own_attempts,
    released,
    under_way,
)
from tests.unit.records import NAME, at, attempt, claimant, evaluation, held, output

NOW = at(10)


def claimed(state: Evaluation | None, now: datetime = NOW, **fields: object) -> Claimed:
    decision = claim(state, now=now, claimant=claimant(**fields))
    assert isinstance(decision, Claimed)
    return decision


def everything_against_it() -> Evaluation:
    """Return an evaluation that breaks all clauses at once, for a claimant with one attempt."""
    return replace(held(until=at(30)), output=output(), due_at=at(20), token=2)


def satisfying(clauses: int) -> Evaluation:
    """Return an evaluation that satisfies the first `clauses` and breaks all others."""
    state = everything_against_it()
    if clauses >= 1:
        state = replace(state, output=None)
    if clauses >= 2:
        state = replace(state, lease_until=at(5))
    if clauses >= 3:
        state = replace(state, attempts=())
    if clauses >= 4:
        state = replace(state, due_at=at(9))
    return state


@pytest.mark.parametrize(
    ("satisfied", "answer"),
    [(0, Reusable), (1, Held), (2, Exhausted), (3, NotDue), (4, Claimed)],
)
def test_the_clauses_are_asked_in_their_order(satisfied: int, answer: type) -> None:
    """With the first clauses satisfied and all others broken, the next clause gives the answer."""
    asking = claimant(max_attempts=1)
    assert type(claim(satisfying(satisfied), now=NOW, claimant=asking)) is answer


def test_an_output_is_reused_only_when_it_is_young_enough() -> None:
    """Clause 1: an output stored at `reuse_since` is used; an older one is bought again."""
    state = evaluation(attempt(1, Outcome.SUCCEEDED), output=output(), object_name=NAME)
    young = claim(state, now=NOW, claimant=claimant(reuse_since=at(5)))
    assert young == Reusable(evaluation=state)
    decision = claimed(state, reuse_since=at(5.001))
    assert decision.evaluation.epoch == 1
    assert decision.evaluation.object_name == NAME.replace("/0.json", "/1.json")


def test_a_live_lease_is_held_until_its_end_and_free_at_it() -> None:
    """Clause 2: the lease holds up to its last moment, and no longer."""
    state = held(until=at(30))
    asking = claimant()
    assert claim(state, now=at(29.999), claimant=asking) == Held(until=at(30))
    assert isinstance(claim(state, now=at(30), claimant=asking), Claimed)


def test_a_spent_run_is_exhausted_even_when_a_retry_is_due() -> None:
    """Clause 3: a run without tries ends at once and does not wait for a due time."""
    state = evaluation(attempt(1, code="overloaded"), due_at=at(99))
    asking = claimant(max_attempts=1)
    decision = claim(state, now=NOW, claimant=asking)
    assert isinstance(decision, Exhausted)
    assert decision.error.code == "attempts_exhausted"
    assert decision.error.retryable


def test_a_retry_waits_for_its_time_and_no_longer() -> None:
    """Clause 4: not due before `due_at`, granted at it."""
    state = evaluation(attempt(1), due_at=at(20))
    asking = claimant()
    early = claim(state, now=at(19.999), claimant=asking)
    assert early == NotDue(evaluation=state, due_at=at(20))
    assert isinstance(claim(state, now=at(20), claimant=asking), Claimed)


def test_a_first_claim_writes_holder_token_expiry_and_the_attempt() -> None:
    """A claim of what was never claimed names its holder, counts from 1 and ends in time."""
    decision = claimed(None)
    state = decision.evaluation
    assert (state.holder, state.token, state.lease_until) == ("me", 1, at(40))
    assert (state.wake_at, state.wake) == (at(40), Wake(job="job", run=1, seat=0))
    assert state.attempts == (decision.attempt,)
    assert (decision.attempt.number, decision.attempt.token) == (1, 1)
    assert decision.attempt.outcome is Outcome.RUNNING
    assert decision.attempt.started_at == NOW
    assert state.object_name == NAME


def test_a_claim_after_a_dead_holder_counts_on_and_buries_its_attempt() -> None:
    """The dead holder's attempt ends `unknown` at its lease's end; the token counts up."""
    decision = claimed(held(until=at(9)))
    first, second = decision.evaluation.attempts
    assert (first.outcome, first.ended_at) == (Outcome.UNKNOWN, at(9))
    assert (second.token, second.number, second.holder) == (2, 2, "me")
    assert decision.evaluation.object_name == NAME


def test_numbers_count_the_seats_own_attempts_in_its_run() -> None:
    """An attempt is numbered within its seat and run; those of others do not count."""
    others = (attempt(1, job="other"), attempt(2, run=2), attempt(3, seat=5))
    decision = claimed(evaluation(*others))
    assert (decision.attempt.number, decision.attempt.token) == (1, 4)


def test_a_claim_clears_the_due_time() -> None:
    """A retry that was due is due no more once it is claimed."""
    assert claimed(evaluation(attempt(1), due_at=at(9))).evaluation.due_at is None


DAY = 86_400.0


def test_only_the_last_attempts_are_kept() -> None:
    """A document does not grow with its attempts: of those no open run can need the last stay."""
    attempts = [
        attempt(n, job="old", started_at=at(-9 * DAY), ended_at=at(-9 * DAY + 1))
        for n in range(1, 17)
    ]
    tokens = [a.token for a in claimed(evaluation(*attempts)).evaluation.attempts]
    assert tokens == list(range(2, KEPT_ATTEMPTS + 2))


def test_an_attempt_that_an_open_run_may_need_is_never_dropped() -> None:
    """However many requests later jobs add, one of the last week stays on record."""
    attempts = [
        attempt(n, job="other", started_at=at(-2 * DAY), ended_at=at(-2 * DAY + 1))
        for n in range(1, 40)
    ]
    kept = claimed(evaluation(*attempts)).evaluation.attempts
    assert [a.token for a in kept] == list(range(1, 41))


def test_one_question_takes_no_more_requests_than_its_document_can_hold() -> None:
    """A question that was asked a hundred times within the week is not asked again."""
    attempts = [
        attempt(n, job="other", started_at=at(-2 * DAY), ended_at=at(-2 * DAY + 1))
        for n in range(1, MOST_ATTEMPTS + 1)
    ]
    decision = claim(evaluation(*attempts), now=NOW, claimant=claimant())
    assert isinstance(decision, Exhausted)
    assert decision.error.code == "attempts_exhausted"


def test_an_object_name_without_output_is_kept_for_the_next_claim() -> None:
    """Claims of one epoch store under one name, so that an orphan is found by the next."""
    assert claimed(evaluation(attempt(1), object_name=NAME)).evaluation.object_name == NAME


def test_two_runs_asked_before_the_failure_share_it() -> None:
    """A refusal that ended after both runs were asked for ends both, whichever paid for it."""
    refusal = attempt(1, Outcome.PERMANENT, code="refused", ended_at=at(5))
    state = evaluation(refusal)
    for asked in (at(0), at(4.9)):
        error = exhausted(state, asked, 4)
        assert error is not None
        assert (error.code, error.retryable) == ("refused", False)


def test_a_run_asked_after_the_failure_starts_fresh() -> None:
    """A failure is not cached: a run asked for at its end or later may ask again."""
    state = evaluation(attempt(1, Outcome.PERMANENT, code="refused", ended_at=at(5)))
    assert exhausted(state, at(5), 4) is None
    assert exhausted(state, at(6), 4) is None


def test_the_bound_of_one_job_does_not_limit_another() -> None:
    """With two tries on record a job of two is spent, one of three is not."""
    state = evaluation(attempt(1), attempt(2))
    assert exhausted(state, at(0), 2) is not None
    assert exhausted(state, at(0), 3) is None


def test_attempts_that_ended_before_the_run_do_not_count() -> None:
    """A job with a fresh run has all its attempts, whatever others spent before."""
    state = evaluation(*(attempt(n, ended_at=at(3)) for n in range(1, 5)))
    assert exhausted(state, at(3), 1) is None
    assert attempts_since(state, at(2.9)) == state.attempts


def test_an_attempt_that_has_not_ended_counts() -> None:
    """What is in flight, or whose holder died, belongs to every run that waits for it."""
    state = evaluation(attempt(1, Outcome.RUNNING, started_at=at(-5)))
    assert attempts_since(state, at(0)) == state.attempts


def test_two_unusable_answers_end_a_run_and_name_their_code() -> None:
    """The third purchase of the same unusable answer does not happen."""
    invalid = [attempt(n, Outcome.INVALID_OUTPUT, code="empty_response") for n in (1, 2)]
    assert exhausted(evaluation(invalid[0]), at(0), 4) is None
    error = exhausted(evaluation(*invalid), at(0), 4)
    assert error is not None
    assert error.code == "empty_response"


def test_interruptions_are_no_tries_and_have_their_own_cap() -> None:
    """Shutdowns do not use up `max_attempts`; five of them end the seat `interrupted`."""
    cuts = [attempt(n, Outcome.CANCELED, code="interrupted") for n in range(1, 6)]
    assert len(cuts) == MAX_INTERRUPTIONS
    assert exhausted(evaluation(*cuts[:4]), at(0), 1) is None
    error = exhausted(evaluation(*cuts), at(0), 1)
    assert error is not None
    assert (error.code, error.retryable) == ("interrupted", True)


def test_requests_cut_by_a_cancel_count_for_nobody() -> None:
    """Another job's cancel uses up neither tries nor interruptions."""
    cuts = [attempt(n, Outcome.CANCELED, code="canceled") for n in range(1, 10)]
    assert exhausted(evaluation(*cuts), at(0), 1) is None


@pytest.mark.parametrize(
    ("code", "seat_code"),
    [
        ("overloaded", "attempts_exhausted"),
        ("timeout", "attempts_exhausted"),
        (None, "attempts_exhausted"),
        ("invalid_response", "invalid_response"),
    ],
)
def test_the_last_try_names_the_end(code: str | None, seat_code: str) -> None:
    """Recoverable codes are summed up, a code without a rule of its own is kept."""
    error = exhausted(evaluation(attempt(1, code=code)), at(0), 1)
    assert error is not None
    assert error.code == seat_code
    assert error.message


def test_bury_leaves_a_live_holder_alone() -> None:
    """Nothing of a lease that still holds is touched."""
    state = held(until=at(11))
    assert bury(state, NOW) is state


def test_bury_ends_what_a_dead_holder_left_running() -> None:
    """The attempt ends `unknown`, no later than the lease and no earlier than it began."""
    state = bury(held(until=at(0.5)), NOW)
    assert (state.holder, state.lease_until) == (None, None)
    assert [(a.outcome, a.ended_at) for a in state.attempts] == [(Outcome.UNKNOWN, at(1))]


def test_bury_keeps_attempts_that_have_ended() -> None:
    """An end on record is not rewritten."""
    state = evaluation(attempt(1, Outcome.PERMANENT))
    assert bury(state, NOW).attempts == state.attempts


@pytest.mark.parametrize(
    ("holder", "token", "held_by_me"),
    [("holder1", 1, True), ("holder1", 2, False), ("other", 1, False)],
)
def test_holder_and_token_both_decide(holder: str, token: int, *, held_by_me: bool) -> None:
    """Neither the same holder nor the same token is enough alone."""
    assert is_held_by(held(), holder, token) is held_by_me
    assert not is_held_by(None, holder, token)


def test_release_wakes_somebody_only_for_a_retry() -> None:
    """With a due time the timer and its seat stay, without one both go."""
    state = replace(held(), wake=Wake(job="job", run=1, seat=0), wake_at=at(30))
    waiting, free = released(state, due_at=at(50)), released(state)
    assert (waiting.holder, waiting.lease_until) == (None, None)
    assert (waiting.due_at, waiting.wake_at, waiting.wake) == (at(50), at(50), state.wake)
    assert (free.due_at, free.wake_at, free.wake) == (None, None, None)


def test_the_end_of_an_attempt_replaces_the_one_with_its_token() -> None:
    """Other attempts stay as they are."""
    state = evaluation(attempt(1), attempt(2, Outcome.RUNNING))
    ended = replace(state.attempts[1], outcome=Outcome.SUCCEEDED, ended_at=NOW)
    assert end_attempt(state, ended).attempts == (state.attempts[0], ended)


def test_a_call_is_under_way_only_under_its_own_live_lease() -> None:
    """The seat's own last attempt runs and the lease holds: otherwise nobody ends it."""
    state = held(until=at(30))
    assert under_way(state, "job", 1, 0, NOW)
    assert not under_way(state, "job", 1, 0, at(31))
    assert not under_way(state, "other", 1, 0, NOW)
    assert not under_way(None, "job", 1, 0, NOW)
    assert own_attempts(None, "job", 1, 0) == ()


def test_a_lease_without_expiry_or_holder_is_none() -> None:
    """Half a lease holds nothing."""
    assert not is_live(evaluation(holder="me"), NOW)
    assert not is_live(evaluation(lease_until=at(30)), NOW)
