"""A tenant's day in the ledger: reserved when a run is asked for, trued up when its seats ended.

    accept  -> the job, and its worst case onto the day                  one commit
    close   -> the terminal record, the head, and the day's difference   one commit
    repair  -> the same for a stopped run, once each of its seats has a record

Both commits carry a write that can be done once only, so a run is added once and trued up once,
whatever dies in between. A run's part stays on the day it was asked for. The day is one document,
written under the `update_time` that was read, so its sum never passes the cap; a tenant without
caps has none.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from functions.contention import TRIES, pause_before_next
from functions.core.budgets import (
    day_of,
    day_reservation,
    end_of_day,
    moved,
    spent_cap,
    trued_up,
)
from functions.core.documents import (
    day_fields,
    from_snapshot,
    tenant_day_path,
    to_document,
)
from functions.core.errors import EmpanelError, LedgerUnavailable, WriteConflict
from functions.core.jobs import Attempt, DayReservation, Job, Policy, Seat, TenantDay
from functions.core.ports import Create, Snapshot, Update, Write
from functions.services import Services

Change = Callable[[TenantDay], TenantDay]


class DaySpent(EmpanelError):
    """The tenant's day has no room for the run; `reason` says which cap, `until` when it ends."""

    def __init__(self, reason: str, until: datetime) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until


def wanted_day(
    services: Services, tenant: str, policy: Policy, seats: Sequence[Seat], now: datetime
) -> DayReservation | None:
    """Return what a run asked for now reserves of its tenant's day; None without a cap."""
    caps = services.settings.tenant_caps.of(tenant)
    return day_reservation(policy, seats, caps, day_of(now))


async def ensure_room(services: Services, tenant: str, wanted: DayReservation | None) -> None:
    """Look whether a run would fit into its day now, before anything is stored for it.

    Raises:
        DaySpent: it would not.
        LedgerUnavailable: no answer.
    """
    if wanted is not None:
        path = tenant_day_path(tenant, wanted.day)
        [found] = await services.ledger.get(path)
        _adding(services, tenant, wanted)(_day(services, tenant, wanted.day, found))


async def commit_reserved(
    services: Services, tenant: str, wanted: DayReservation | None, *writes: Write
) -> datetime:
    """Commit the writes that begin a run together with its reservation; return the commit's time.

    For acceptance, and for a replay, which reserves the day it is asked for on. Without a
    reservation the writes are committed as they are.

    Raises:
        DaySpent: the day has no room; nothing was written.
        WriteConflict: one of `writes` did not hold; nothing was written.
        LedgerUnavailable: the writes may or may not have been applied, or too much contention.
    """
    if wanted is None:
        return await services.ledger.commit(*writes)
    change = _adding(services, tenant, wanted)
    return await _commit_with_day(services, tenant, wanted.day, change, writes)


async def commit_trued_up(
    services: Services, job: Job, attempts: Iterable[Attempt], head: Update, *others: Write
) -> datetime:
    """Commit the end of a run whose seats all have their records; its day is trued up with it.

    `attempts` are all the run's own; `head` updates the job's document. At least one of the writes
    must hold only once.

    Raises:
        WriteConflict: `head` or one of `others` did not hold; nothing was written.
        LedgerUnavailable: as for `commit_reserved`.
    """
    reserved = job.day
    if reserved is None or reserved.final:
        return await services.ledger.commit(*others, head)
    real = trued_up(job, reserved, attempts)

    def change(day: TenantDay) -> TenantDay:
        return moved(day, reserved, real)

    final = replace(head, fields={**head.fields, **day_fields(real)})
    return await _commit_with_day(services, job.tenant, real.day, change, (*others, final))


def _adding(services: Services, tenant: str, wanted: DayReservation) -> Change:
    def change(day: TenantDay) -> TenantDay:
        reason = spent_cap(day, wanted, services.settings.tenant_caps.of(tenant))
        if reason is not None:
            raise DaySpent(reason, end_of_day(day.day))
        return moved(day, None, wanted)

    return change


async def _commit_with_day(
    services: Services, tenant: str, day: str, change: Change, writes: Sequence[Write]
) -> datetime:
    """Commit `writes` and the changed day; when only the day has moved meanwhile, change it again.

    What `writes` create is looked for after a conflict, so that a repeated request is told at once.
    """
    path = tenant_day_path(tenant, day)
    created = [write.path for write in writes if isinstance(write, Create)]
    [found] = await services.ledger.get(path)
    for number in range(TRIES):
        after = change(_day(services, tenant, day, found))
        try:
            return await services.ledger.commit(_write(found, after), *writes)
        except WriteConflict:
            await pause_before_next(services, number)
            again, *existing = await services.ledger.get(path, *created)
            if again.update_time == found.update_time or any(e.exists for e in existing):
                raise
            found = again
    raise LedgerUnavailable(f"{path}: too much contention")


def _day(services: Services, tenant: str, day: str, found: Snapshot) -> TenantDay:
    """Return the day as it was read; one that nothing is reserved of yet is empty."""
    expire_at = end_of_day(day) + timedelta(days=services.settings.retention_days)
    return from_snapshot(TenantDay, found) or TenantDay(tenant=tenant, day=day, expire_at=expire_at)


def _write(found: Snapshot, after: TenantDay) -> Write:
    if not found.exists:
        return Create(path=found.path, data=to_document(after))
    fields = {"requests": after.requests, "nano_usd": after.nano_usd}
    return Update(path=found.path, fields=fields, if_updated_at=found.update_time)
