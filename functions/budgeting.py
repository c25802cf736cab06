"""The run's request budget in the ledger: reserved before a claim, kept once a request was sent."""

from functions.core.budgets import Reservations, can_bind, key, reserve, unused
from functions.core.documents import budget_path
from functions.core.errors import LedgerUnavailable, UnreadableRecord, WriteConflict
from functions.core.jobs import SCHEMA_VERSION, Attempt, Job
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
        sent = [attempt.number for attempt in own if attempt.sent]
        wider = reserve(held - unused(held, seen.index, sent), wanted, cap)
        if wider is None:
            return False
        if wider == held or await _written(services, found, wider):
            return True
        await services.clock.sleep(PAUSE_SECONDS * (1 + number) * (1 + services.jitter()))
    raise LedgerUnavailable(f"{budget_path(job.id, job.run)}: too much contention")


async def refund_unsent(
    services: Services, job: Job, seat: int, attempts: tuple[Attempt, ...]
) -> None:
    """Give back what a seat that has ended reserved and never sent.

    `attempts` are the seat's own of this run; one whose request certainly never left this process
    carries `sent` false. What a lost race leaves reserved only makes the budget smaller.
    """
    if not can_bind(job):
        return
    sent = [attempt.number for attempt in attempts if attempt.sent]
    for _ in range(TRIES):
        found, held = await _read(services, job)
        left = held - unused(held, seat, sent)
        if left == held or await _written(services, found, left):
            return


async def _read(services: Services, job: Job) -> tuple[Snapshot, Reservations]:
    [found] = await services.ledger.get(budget_path(job.id, job.run))
    names = (found.data or {}).get("reservations", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnreadableRecord(f"{found.path}: unreadable field reservations")
    return found, frozenset(names)


async def _written(services: Services, found: Snapshot, held: Reservations) -> bool:
    """Write the reservations over what was read; False when they have changed since.

    An ambiguous write counts as changed: reading again tells.
    """
    fields = {"reservations": sorted(held), "requests": len(held)}
    write: Write = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    if not found.exists:
        write = Create(path=found.path, data={"v": SCHEMA_VERSION, **fields})
    try:
        await services.ledger.commit(write)
    except (WriteConflict, LedgerUnavailable):
        return False
    return True
