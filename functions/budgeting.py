"""The run's request budget in the ledger: reserved before a claim, kept once a request was sent."""

from functions.core.budgets import Reservations, can_bind, key, reserve, unsent, unused
from functions.core.documents import (
    budget_path,
    evaluation_path,
    from_snapshot,
    reservations,
)
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.jobs import SCHEMA_VERSION, Evaluation, Job
from functions.core.leases import own_attempts
from functions.core.ports import Create, Snapshot, Update, Write
from functions.looking import Seen
from functions.services import Services

TRIES = 20
PAUSE_SECONDS = 0.02


async def reserve_request(services: Services, seen: Seen) -> bool:
    """Reserve the seat's next attempt; False when the run's budget is spent.

    Safe to repeat: the same attempt reserves once.

    Raises:
        LedgerUnavailable: no certain answer, or too much contention; nothing may be sent.
    """
    job = seen.job
    cap = job.policy.max_requests
    if cap is None or not can_bind(job):
        return True
    own = own_attempts(seen.evaluation, job.id, job.run, seen.index)
    wanted = key(seen.index, own[-1].number + 1 if own else 1)
    for number in range(TRIES):
        found, held = await _read(services, job)
        wider = reserve(held - unsent(own), wanted, cap)
        if wider is None:
            return False
        if wider == held or await _written(services, found, wider):
            return True
        await services.clock.sleep(PAUSE_SECONDS * (1 + number) * (1 + services.jitter()))
    raise LedgerUnavailable(f"{budget_path(job.id, job.run)}: too much contention")


async def refund_unsent(services: Services, job: Job, seat: int) -> None:
    """Give back what a seat that has ended reserved and never sent.

    A delivery that is late may stand between its reservation and its claim. So the evaluation must
    not have changed since it was read, and a claim after that finds its reservation gone
    (`functions.leasing`). What a lost race leaves reserved only makes the budget smaller.
    """
    if not can_bind(job):
        return
    for _ in range(TRIES):
        found, held, asked = await _read_both(services, job, seat)
        state = from_snapshot(Evaluation, asked)
        if state is None:
            return
        own = own_attempts(state, job.id, job.run, seat)
        left = held - unused(held, seat, own)
        unchanged = Update(
            path=asked.path, fields={"token": state.token}, if_updated_at=asked.update_time
        )
        if left == held or await _written(services, found, left, unchanged):
            return


async def _read(services: Services, job: Job) -> tuple[Snapshot, Reservations]:
    [found] = await services.ledger.get(budget_path(job.id, job.run))
    return found, reservations(found)


async def _read_both(
    services: Services, job: Job, seat: int
) -> tuple[Snapshot, Reservations, Snapshot]:
    """Return the budget and a seat's evaluation as they were at one moment."""
    paths = budget_path(job.id, job.run), evaluation_path(job.seats[seat].work_key)
    found, asked = await services.ledger.get(*paths)
    return found, reservations(found), asked


async def _written(
    services: Services, found: Snapshot, held: Reservations, *guards: Update
) -> bool:
    """Write the reservations over what was read; False when they, or a guard, have changed since.

    An ambiguous write counts as changed: reading again tells.
    """
    fields = {"reservations": sorted(held), "requests": len(held)}
    write: Write = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    if not found.exists:
        write = Create(path=found.path, data={"v": SCHEMA_VERSION, **fields})
    try:
        await services.ledger.commit(write, *guards)
    except (WriteConflict, LedgerUnavailable):
        return False
    return True
