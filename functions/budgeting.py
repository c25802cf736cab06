"""The run's budget in the ledger: reserved before a claim, trued up after the call.

    reserve the worst case -> claim -> look that it is still reserved -> call -> real cost

A process that dies anywhere in between leaves the worst case reserved: the safe side. The next
delivery of the seat makes it right.
"""

from functions import telemetry
from functions.contention import TRIES, pause_before_next
from functions.core.budgets import (
    Caps,
    Reservations,
    budget_of,
    can_bind,
    in_usd,
    key,
    reserve,
    settled,
    unused,
)
from functions.core.documents import (
    budget_path,
    evaluation_path,
    from_snapshot,
    reservations,
)
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.jobs import Evaluation, Job
from functions.core.leases import own_attempts
from functions.core.ports import Create, Snapshot, Update, Write
from functions.core.versions import BUDGET
from functions.looking import Seen
from functions.services import Services


async def reserve_attempt(services: Services, seen: Seen) -> str | None:
    """Reserve the seat's next attempt; else return why the run's budget has no room for it.

    Safe to repeat: the same attempt reserves once.

    Raises:
        LedgerUnavailable: no certain answer, or too much contention; nothing may be sent.
    """
    job, caps = seen.job, budget_of(seen.job)
    if not caps.any:
        return None
    own = own_attempts(seen.evaluation, job.id, job.run, seen.index)
    wanted = key(seen.index, own[-1].number + 1 if own else 1)
    worst = job.seats[seen.index].worst_nano_usd or 0
    for number in range(TRIES):
        found, held = await _read(services, job)
        known = settled(held, own)
        wider = reserve(known, wanted, worst, caps)
        if wider is None:
            return _no_room(known, worst, caps)
        if wider == held or await _written(services, job, found, wider):
            return None
        await pause_before_next(services, number)
    raise LedgerUnavailable(f"{budget_path(job.id, job.run)}: too much contention")


def _no_room(held: Reservations, worst: int, caps: Caps) -> str:
    if caps.requests is not None and len(held) >= caps.requests:
        return f"the run's {caps.requests} requests are spent or reserved"
    taken, cap = in_usd(sum(held.values())), in_usd(caps.nano_usd or 0)
    return (
        f"{taken:.6f} of the run's {cap:.6f} USD are spent or reserved, and an attempt may cost"
        f" {in_usd(worst):.6f}"
    )


async def true_up(services: Services, job: Job, seat: int) -> None:
    """Let a seat's attempts hold what they really cost, as far as that is known.

    Done after a call, so that others find the room. What is not done here for want of an answer is
    done by the next look at the seat, or never: the worst case stays reserved then.
    """
    if budget_of(job).nano_usd is None:
        return
    for number in range(TRIES):
        try:
            found, held, asked = await _read_both(services, job, seat)
        except LedgerUnavailable as exc:
            telemetry.warning("worst case stays reserved", job=job.id, error=str(exc)[:300])
            return
        state = from_snapshot(Evaluation, asked)
        known = settled(held, own_attempts(state, job.id, job.run, seat))
        if known == held or await _written(services, job, found, known):
            return
        await pause_before_next(services, number)
    telemetry.warning("worst case stays reserved", job=job.id, error="too much contention")


async def refund_unsent(services: Services, job: Job, seat: int) -> None:
    """Give back what a seat that has ended reserved and never sent, and what it did not cost.

    A delivery that is late may stand between its reservation and its claim. So the evaluation must
    not have changed since it was read, and a claim after that finds its reservation gone
    (`functions.leasing`). What a lost race leaves reserved only makes the budget smaller.
    """
    if not can_bind(job):
        return
    for number in range(TRIES):
        found, held, asked = await _read_both(services, job, seat)
        state = from_snapshot(Evaluation, asked)
        if state is None:
            return
        own = own_attempts(state, job.id, job.run, seat)
        given_back = unused(held, seat, own)
        left = {name: nano for name, nano in settled(held, own).items() if name not in given_back}
        unchanged = Update(
            path=asked.path, fields={"token": state.token}, if_updated_at=asked.update_time
        )
        if left == held or await _written(services, job, found, left, unchanged):
            return
        await pause_before_next(services, number)
    telemetry.warning("reservation not given back", job=job.id, error="too much contention")


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
    services: Services, job: Job, found: Snapshot, held: Reservations, *guards: Update
) -> bool:
    """Write the reservations over what was read; False when they, or a guard, have changed since.

    An ambiguous write counts as changed: reading again tells.
    """
    fields = {
        "reservations": dict(held),
        "requests": len(held),
        "reserved_nano_usd": sum(held.values()),
    }
    write: Write = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    if not found.exists:
        new = {"v": BUDGET.written, "expire_at": job.expire_at, **fields}
        write = Create(path=found.path, data=new)
    try:
        await services.ledger.commit(write, *guards)
    except (WriteConflict, LedgerUnavailable):
        return False
    return True
