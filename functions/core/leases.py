"""The right to work on an evaluation: who may claim, and what a claim writes. Pure.

    t ------ claim ------ renew ------ lease_until ---------- next claim
             holder, token+1           expiry, server time     token+1, old attempt -> unknown

A claim is granted when all clauses hold, in this order:

1. there is no output the run may use        else `Reusable`
2. no live lease is held                     else `Held`
3. the run may still spend an attempt        else `Exhausted`
4. no retry is due later                     else `NotDue`

and, in the ledger (`functions.leasing`): the evaluation is as it was seen, else `Held` until now;
the run has no terminal record, else `Closed`.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions.core.identities import output_object
from functions.core.jobs import Attempt, Evaluation, Outcome, SeatError, Wake
from functions.core.retries import (
    MAX_INVALID_OUTPUTS,
    RECOVERABLE_CODES,
    is_retryable,
    with_until,
)

MAX_INTERRUPTIONS = 5
KEPT_ATTEMPTS = 16  # older ones go once no open run can need them
MOST_ATTEMPTS = 100  # a document must not grow without end; nor must what one question costs
LONGEST_RUN = timedelta(days=8)  # the longest deadline is seven days
INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimant:
    """Who asks, for which seat, and under which limits.

    `holder` is random. Outputs stored before `reuse_since` are not used. `traceparent` is kept with
    the attempt.
    """

    job: str
    run: int
    seat: int
    tenant: str
    work_key: str
    window: str
    holder: str
    lease_seconds: float
    run_at: datetime
    max_attempts: int
    reuse_since: datetime
    traceparent: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """The caller is the holder now; `attempt` is on record and its request may be sent."""

    evaluation: Evaluation
    attempt: Attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Reusable:
    """An output is there."""

    evaluation: Evaluation


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Somebody else works on it, until then at the latest; also when the ledger was contended."""

    until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class NotDue:
    """A retry waits for its time."""

    evaluation: Evaluation
    due_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """The run has ended; nothing may be bought for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exhausted:
    """The run may spend nothing more on this evaluation, and why."""

    evaluation: Evaluation
    error: SeatError


Claim = Claimed | Reusable | Held | NotDue | Closed | Exhausted


def claim(evaluation: Evaluation | None, *, now: datetime, claimant: Claimant) -> Claim:
    """Decide a claim on what was read at the server's time `now`."""
    state = evaluation or Evaluation(tenant=claimant.tenant, work_key=claimant.work_key)
    if has_output_since(state, claimant.reuse_since):
        return Reusable(evaluation=state)
    if state.lease_until is not None and is_live(state, now):
        return Held(until=state.lease_until)
    error = exhausted(bury(state, now), claimant.run_at, claimant.max_attempts)
    if error is not None:
        return Exhausted(evaluation=state, error=error)
    if len(_kept(state.attempts, now)) >= MOST_ATTEMPTS:
        return Exhausted(evaluation=state, error=_too_many())
    if state.due_at is not None and state.due_at > now:
        return NotDue(evaluation=state, due_at=state.due_at)
    return _grant(state, now, claimant)


def is_live(state: Evaluation, now: datetime) -> bool:
    """Whether a lease holds at the server's time `now`."""
    return state.holder is not None and state.lease_until is not None and state.lease_until > now


def has_output_since(state: Evaluation, since: datetime) -> bool:
    """Whether an output stored at or after `since` is on record."""
    return state.output is not None and state.output.stored_at >= since


def holds_output(state: Evaluation, object_name: str) -> bool:
    """Whether the output on record is the object of that name."""
    return state.output is not None and state.output.uri.endswith("/" + object_name)


def is_held_by(state: Evaluation | None, holder: str, token: int) -> bool:
    """Whether holder and token, both, still own the evaluation."""
    return state is not None and state.holder == holder and state.token == token


def attempts_since(state: Evaluation, run_at: datetime) -> tuple[Attempt, ...]:
    """Return the attempts, of any job, that had not ended when the run was asked for."""
    return tuple(a for a in state.attempts if a.ended_at is None or a.ended_at > run_at)


def exhausted(state: Evaluation, run_at: datetime, max_attempts: int) -> SeatError | None:
    """Return why a run may not spend another attempt, None when it may.

    Attempts of all jobs count that ended after the run was asked for: jobs that wait for the same
    evaluation share one refusal, and none buys what another has just been denied. Requests cut by a
    stop or a shutdown do not count as tries; shutdowns have a cap of their own.
    """
    attempts = attempts_since(state, run_at)
    permanent = [a for a in attempts if a.outcome is Outcome.PERMANENT]
    if permanent:
        return _error_of(permanent[-1])
    invalid = [a for a in attempts if a.outcome is Outcome.INVALID_OUTPUT]
    if len(invalid) >= MAX_INVALID_OUTPUTS:
        return _error_of(invalid[-1])
    tries = [a for a in attempts if a.outcome is not Outcome.CANCELED]
    if len(tries) >= max_attempts:
        return _error_after_last_try(tries[-1], len(tries))
    cuts = [a for a in attempts if a.code == INTERRUPTED]
    if len(cuts) >= MAX_INTERRUPTIONS:
        message = f"{len(cuts)} requests were cut by shutdowns"
        return SeatError(code=INTERRUPTED, message=message, retryable=True)
    return None


def own_attempts(state: Evaluation | None, job: str, run: int, seat: int) -> tuple[Attempt, ...]:
    """Return the attempts that this seat's deliveries claimed in this run."""
    attempts = state.attempts if state is not None else ()
    return tuple(a for a in attempts if (a.job, a.run, a.seat) == (job, run, seat))


def under_way(state: Evaluation | None, job: str, run: int, seat: int, now: datetime) -> bool:
    """Whether a call of this very seat is in flight under a live lease."""
    own = own_attempts(state, job, run, seat)
    return state is not None and is_live(state, now) and bool(own) and own[-1].ended_at is None


def bury(state: Evaluation, now: datetime) -> Evaluation:
    """Return the state with attempts of a holder whose lease is over ended as `unknown`."""
    if is_live(state, now):
        return state
    ended_at = min(state.lease_until or now, now)
    attempts = tuple(_unknown(a, ended_at) for a in state.attempts)
    return replace(state, holder=None, lease_until=None, attempts=attempts)


def end_attempt(state: Evaluation, ended: Attempt) -> Evaluation:
    """Return the state with `ended` in the place of the attempt that has its token."""
    attempts = tuple(ended if a.token == ended.token else a for a in state.attempts)
    return replace(state, attempts=attempts)


def released(state: Evaluation, *, due_at: datetime | None = None) -> Evaluation:
    """Return the state without holder; with `due_at` a retry waits and repair will wake it."""
    wake = state.wake if due_at is not None else None
    return replace(state, holder=None, lease_until=None, due_at=due_at, wake_at=due_at, wake=wake)


def _grant(state: Evaluation, now: datetime, claimant: Claimant) -> Claimed:
    until = now + timedelta(seconds=claimant.lease_seconds)
    own = own_attempts(state, claimant.job, claimant.run, claimant.seat)
    attempt = Attempt(
        job=claimant.job,
        run=claimant.run,
        seat=claimant.seat,
        number=own[-1].number + 1 if own else 1,
        holder=claimant.holder,
        token=state.token + 1,
        started_at=now,
        traceparent=claimant.traceparent,
    )
    buried = bury(state, now)
    claimed = replace(
        _with_object_name(buried, claimant),
        holder=claimant.holder,
        token=attempt.token,
        lease_until=until,
        due_at=None,
        wake_at=until,
        wake=Wake(job=claimant.job, run=claimant.run, seat=claimant.seat),
        attempts=_kept((*buried.attempts, attempt), now),
    )
    return Claimed(evaluation=claimed, attempt=attempt)


def _kept(attempts: tuple[Attempt, ...], now: datetime) -> tuple[Attempt, ...]:
    """Return the attempts that stay on record: the last ones, and all that open runs may need."""
    older, newest = attempts[:-KEPT_ATTEMPTS], attempts[-KEPT_ATTEMPTS:]
    return (*(a for a in older if a.started_at > now - LONGEST_RUN), *newest)


def _too_many() -> SeatError:
    message = f"this question took {MOST_ATTEMPTS} requests within {LONGEST_RUN.days} days"
    return SeatError(code="attempts_exhausted", message=message, retryable=True)


def _with_object_name(state: Evaluation, claimant: Claimant) -> Evaluation:
    """Name the object of this claim: a new epoch when the old one has an output not to be used."""
    if state.object_name is not None and not holds_output(state, state.object_name):
        return state
    epoch = state.epoch if state.output is None else state.epoch + 1
    name = output_object(claimant.tenant, claimant.window, claimant.work_key, epoch)
    return replace(state, epoch=epoch, object_name=name)


def _unknown(attempt: Attempt, ended_at: datetime) -> Attempt:
    if attempt.outcome is not Outcome.RUNNING:
        return attempt
    return replace(attempt, outcome=Outcome.UNKNOWN, ended_at=max(ended_at, attempt.started_at))


def _error_of(attempt: Attempt) -> SeatError:
    code = attempt.code or attempt.outcome.value
    if code in RECOVERABLE_CODES:
        message = f"not to be asked again after {code}: {attempt.message}"
        return SeatError(code="attempts_exhausted", message=message, retryable=True)
    message = with_until(attempt.message or code, attempt.until)
    return SeatError(code=code, message=message, retryable=is_retryable(code))


def _error_after_last_try(attempt: Attempt, tries: int) -> SeatError:
    """Name the end of a seat whose tries are spent: some codes stay, the others are summed up."""
    if attempt.code is not None and attempt.code not in RECOVERABLE_CODES:
        return _error_of(attempt)
    message = f"{tries} attempts spent, the last ended {attempt.code or attempt.outcome.value}"
    if attempt.message:
        message = f"{message}: {attempt.message}"
    return SeatError(code="attempts_exhausted", message=message, retryable=True)
