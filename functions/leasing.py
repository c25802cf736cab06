"""Lease I/O: claim what was seen, renew while a call runs, write only as the holder.

All writes of a lease's owner go through `commit_as_holder`, which checks holder and token in the
ledger and says whether it won. An ambiguous commit is resolved by reading back.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions.core.budgets import can_bind, key
from functions.core.documents import (
    budget_path,
    changes,
    evaluation_path,
    from_snapshot,
    reservations,
    terminal_path,
    to_document,
)
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.identities import shard_of
from functions.core.jobs import Attempt, Evaluation, Outcome
from functions.core.leases import (
    Claim,
    Claimant,
    Claimed,
    Closed,
    Held,
    claim,
    end_attempt,
    is_held_by,
    released,
)
from functions.core.ports import Create, Update, Write
from functions.looking import Seen
from functions.services import Services

RESOLVE_TRIES = 5
RESOLVE_PAUSE_SECONDS = 0.2  # doubled at each try: 3 s in all
RENEWAL_MARGIN_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A granted lease: the evaluation as this holder last wrote it, and that write's time.

    `seat_recorded` says that the seat's record was created in that same write, `lost` that a
    renewal has found that the lease cannot be kept.
    """

    evaluation: Evaluation
    attempt: Attempt
    update_time: datetime
    claimed_at: datetime
    provider: str
    seat_recorded: bool = False
    lost: bool = False

    @property
    def path(self) -> str:
        """The path of the evaluation's document."""
        return evaluation_path(self.evaluation.work_key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The claim succeeded and this process is the holder."""

    lease: Lease


class LeaseLost(Exception):
    """Raised beside a call when its lease can no longer be kept; it ends the call."""


async def try_claim(services: Services, seen: Seen, claimant: Claimant) -> Granted | Claim:
    """Claim the evaluation as it was seen, for one attempt, written down in the same commit.

    The commit holds only while the evaluation has the `update_time` of the look, so one of several
    claimants wins and no lock outlives a process that dies. The terminal record is read after it: a
    stop committed before that read lets no request start, a later one is found by the watcher
    (`functions.stops`). So is the budget, where one can bind: a late claim may find that the seat
    has ended and its reservation was given back. Returns `Granted` for a win, else why not.

    Raises:
        LedgerUnavailable: it is unknown who holds the lease, or whether the run has ended; nothing
            may be sent.
    """
    now = max(seen.now, services.clock.now())  # the wait for a slot must not shorten the lease
    decision = claim(seen.evaluation, now=now, claimant=claimant)
    if not isinstance(decision, Claimed):
        return decision
    granted = await _commit_claim(services, seen, decision)
    if granted is None:
        return Held(until=seen.now)
    paths = [terminal_path(claimant.job, claimant.run)]
    if can_bind(seen.job):
        paths.append(budget_path(claimant.job, claimant.run))
    try:
        terminal, *budget = await services.ledger.get(*paths)
    except LedgerUnavailable:
        await give_back(services, granted.lease, "the run's end could not be looked up")
        raise
    if terminal.exists:
        await give_back(services, granted.lease, "the run had ended")
        return Closed()
    reserved = key(claimant.seat, granted.lease.attempt.number)
    if any(reserved not in reservations(found) for found in budget):
        await give_back(services, granted.lease, "the seat had ended")
        return Held(until=seen.now)
    return granted


async def _commit_claim(services: Services, seen: Seen, claimed: Claimed) -> Granted | None:
    """Write the claim; None when the evaluation has changed since the look."""
    after = replace(claimed.evaluation, shard=shard_of(claimed.evaluation.work_key))
    path = evaluation_path(after.work_key)
    write: Write = Create(path=path, data=to_document(after))
    if seen.evaluation is not None:
        fields = changes(seen.evaluation, after)
        write = Update(path=path, fields=fields, if_updated_at=seen.evaluation_update_time)
    try:
        committed = await services.ledger.commit(write)
    except WriteConflict:
        return None
    except LedgerUnavailable:
        granted = await _own_claim(services, seen, after)
    else:
        granted = _granted(seen, after, claimed.attempt, committed)
    if granted is not None:
        before = seen.evaluation.attempts if seen.evaluation is not None else ()
        services.metrics.attempts_ended(before, after.attempts, granted.lease.provider)
    return granted


async def _own_claim(services: Services, seen: Seen, mine: Evaluation) -> Granted | None:
    """Find out whether an ambiguous claim was applied: my random holder is on the lease, or not."""
    [found] = await services.ledger.get(evaluation_path(mine.work_key))
    state = from_snapshot(Evaluation, found)
    if state is None or state.holder != mine.holder or found.update_time is None:
        return None
    attempt = next(a for a in state.attempts if a.token == state.token)
    return _granted(seen, state, attempt, found.update_time)


async def give_back(services: Services, lease: Lease, reason: str) -> None:
    """End a claim whose request was never sent.

    Raises:
        LedgerUnavailable: not certainly; the lease runs out and the attempt ends `unknown`.
    """
    ended = replace(
        lease.attempt,
        outcome=Outcome.CANCELED,
        ended_at=services.clock.now(),
        sent=False,
        code="canceled",
        message=f"never sent: {reason}",
    )
    await commit_as_holder(services, lease, released(end_attempt(lease.evaluation, ended)))


def _granted(seen: Seen, state: Evaluation, attempt: Attempt, committed: datetime) -> Granted:
    return Granted(
        lease=Lease(
            evaluation=state,
            attempt=attempt,
            update_time=committed,
            claimed_at=attempt.started_at,
            provider=seen.job.seats[seen.index].provider,
        )
    )


async def commit_as_holder(
    services: Services, lease: Lease, after: Evaluation, create: Create | None = None
) -> Lease | None:
    """Write the evaluation while holder and token are still this lease's; None when they are not.

    `create`, the seat's record, goes into the same commit; when it exists already, the evaluation
    is written alone.

    Raises:
        LedgerUnavailable: still without a certain answer after `RESOLVE_TRIES`.
    """
    written = await _write_as_holder(services, lease, after, create)
    if written is None and not lease.lost:
        services.metrics.lease_lost()
    return written


async def _write_as_holder(
    services: Services, lease: Lease, after: Evaluation, create: Create | None
) -> Lease | None:
    for number in range(RESOLVE_TRIES):
        if number:
            await services.clock.sleep(RESOLVE_PAUSE_SECONDS * 2 ** (number - 1))
        update = Update(
            path=lease.path,
            fields=changes(lease.evaluation, after),
            if_updated_at=lease.update_time,
        )
        try:
            committed = await services.ledger.commit(update, *((create,) if create else ()))
        except (WriteConflict, LedgerUnavailable):
            paths = (lease.path, *((create.path,) if create else ()))
            try:
                found, *seat = await services.ledger.get(*paths)
            except LedgerUnavailable:
                continue
            state = from_snapshot(Evaluation, found)
            if state == after and found.update_time is not None:
                return _written(services, lease, after, found.update_time, create)
            if not is_held_by(state, lease.attempt.holder, lease.attempt.token):
                return None
            if state is None or found.update_time is None:
                return None
            lease = replace(lease, evaluation=state, update_time=found.update_time)
            if seat and seat[0].exists:
                create = None
        else:
            return _written(services, lease, after, committed, create)
    raise LedgerUnavailable(f"{lease.path}: no certain answer after {RESOLVE_TRIES} tries")


def _written(
    services: Services, lease: Lease, after: Evaluation, at: datetime, create: Create | None
) -> Lease:
    """Return the lease as it was just written; what the write ended is counted."""
    services.metrics.attempts_ended(lease.evaluation.attempts, after.attempts, lease.provider)
    recorded = create is not None
    return replace(lease, evaluation=after, update_time=at, seat_recorded=recorded)


class LeaseKeeper:
    """Keeps one lease alive beside its call; `lease` is the latest state."""

    def __init__(self, services: Services, lease: Lease) -> None:
        self.lease = lease
        self._services = services
        self._seconds = services.settings.lease_seconds

    async def keep(self) -> None:
        """Renew at a third of the lease's length until cancelled.

        Raises:
            LeaseLost: another holder was found, or no renewal succeeded in time.
        """
        while True:
            await self._services.clock.sleep(self._seconds / 3)
            while not await self._renew():
                if self.left_seconds <= RENEWAL_MARGIN_SECONDS:
                    self._services.metrics.lease_lost()
                    raise self._lost()
                await self._services.clock.sleep(min(1.0, self._seconds / 10))

    async def _renew(self) -> bool:
        """Push the expiry on; False when the ledger gave no answer.

        Raises:
            LeaseLost: holder or token have changed.
        """
        until = self._services.clock.now() + timedelta(seconds=self._seconds)
        after = replace(self.lease.evaluation, lease_until=until, wake_at=until)
        patience = max(0.1, self.left_seconds - RENEWAL_MARGIN_SECONDS)
        try:
            async with asyncio.timeout(patience):
                renewed = await commit_as_holder(self._services, self.lease, after)
        except (LedgerUnavailable, TimeoutError):
            return False
        if renewed is None:
            raise self._lost()
        self.lease = renewed
        return True

    def _lost(self) -> LeaseLost:
        self.lease = replace(self.lease, lost=True)
        return LeaseLost(self.lease.path)

    @property
    def left_seconds(self) -> float:
        """How long the lease still holds, by the server's clock as estimated here."""
        until = self.lease.evaluation.lease_until or self._services.clock.now()
        return (until - self._services.clock.now()).total_seconds()
