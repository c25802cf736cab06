"""One drill from its fault to its account."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from functions.core.errors import EmpanelError
from functions.drill.accounting import ENDED, Books, Check, account
from functions.drill.catalog import BY_NAME, DRILLS
from functions.drill.deployment import DrillRefused
from functions.drill.evidence import audited_books, notifications
from functions.drill.injected import Drill, Injected
from functions.drill.site import NotSeen, Site

PENDING = "pending"
SETTLED = "every run ends and is told in time"
AUDITS = 3  # another audit at the same time may be the one on record, begun before the end
CLOCKS_APART = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What one drill came to. `error` says why it could not be carried through."""

    drill: Drill
    jobs: tuple[str, ...] = ()
    checks: Sequence[Check] = ()
    first: Books | None = None
    last: Books | None = None
    error: str | None = None
    resolved: tuple[str, ...] = field(default=())

    @property
    def accounted(self) -> bool:
        """Whether the books say exactly what happened."""
        return self.error is None and bool(self.checks) and all(c.kept for c in self.checks)

    def view(self) -> dict[str, Any]:
        """Return the account as `--json` prints it."""
        first, last = self.first, self.last
        return {
            "drill": self.drill.name,
            "injected": self.drill.injects,
            "accounted": self.accounted,
            "error": self.error,
            "jobs": list(self.jobs),
            "windows": _windows(last),
            "found": _found(first, last) if first and last else [],
            "repaired": list(last.repairs) if last else [],
            "open": {
                "gaps": [f"{gap.kind}: {gap.name}" for gap in sorted(last.gaps)] if last else [],
                "incidents": [
                    incident
                    for incident in (last.incidents if last else ())
                    if incident["id"] not in self.resolved
                ],
            },
            "resolved": list(self.resolved),
            "checks": [
                {"promise": check.promise, "kept": check.kept}
                | ({} if check.kept else {"seen": check.seen})
                for check in self.checks
            ],
        }


def _found(first: Books, last: Books) -> list[str]:
    """Return what the fault has left: gaps, runs still open at the first audit, lost attempts."""
    gaps = [f"{gap.kind}: {gap.name}" for gap in sorted(first.gaps)]
    waiting = [
        f"{shown['state']}: {job}"
        for job, shown in first.jobs.items()
        if shown["state"] not in ENDED
    ]
    unknown = [
        f"attempts without an answer on record: {count} of {job}"
        for job, outcomes in last.attempts.items()
        if (count := outcomes.count("unknown"))
    ]
    return gaps + waiting + unknown


def _windows(books: Books | None) -> list[dict[str, Any]]:
    if books is None:
        return []
    names = ("window", "audited_at", "complete", "population", "counts")
    return [{name: report[name] for name in names} for report in books.windows.values()]


def chosen(names: Sequence[str], *, local: bool) -> list[Drill]:
    """Return the drills of these names, all that can run here for none.

    Raises:
        DrillRefused: a name is unknown, or its drill needs a local stack.
    """
    if unknown := sorted(set(names) - BY_NAME.keys()):
        known = ", ".join(BY_NAME)
        raise DrillRefused(f"there is no drill {unknown[0]!r}; there are {known}")
    drills = [BY_NAME[name] for name in names] or [d for d in DRILLS if local or not d.local]
    for drill in drills:
        if drill.local and not local:
            raise DrillRefused(f"{drill.name} kills or freezes a process: local stacks only")
    return drills


async def run(site: Site, drills: Sequence[Drill], *, resolve: bool) -> AsyncIterator[Account]:
    """Run drills one after the other; yield the account of each."""
    for drill in drills:
        made = await run_one(site, drill)
        yield await _resolved(site, made) if resolve else made


async def run_one(site: Site, drill: Drill) -> Account:
    """Run one drill. What keeps it from its end is in the account, and never accounted for."""
    try:
        return await _run(site, drill)
    except EmpanelError as exc:
        return Account(drill=drill, error=f"{type(exc).__name__}: {exc}")


async def _run(site: Site, drill: Drill) -> Account:
    since = site.clock.now() - CLOCKS_APART
    injected = await drill.inject(site)
    first = await audited_books(site, injected.jobs, since)
    settled = await _settled(site, injected)
    for _ in range(AUDITS):
        last = await audited_books(site, injected.jobs, since)
        checks = [*injected.checks, settled, *account(injected.promise, first, last)]
        if all(check.kept for check in checks):
            break
    return Account(drill=drill, jobs=injected.jobs, checks=checks, first=first, last=last)


async def _settled(site: Site, injected: Injected) -> Check:
    """Repair until every run has ended and is told; whether that came in time."""
    try:
        async with site.interface.repairing():
            jobs = await site.ended(*injected.jobs)
            await site.until(
                lambda: notifications(site, jobs),
                lambda states: PENDING not in states.values(),
                f"the notifications of {', '.join(injected.jobs)} end",
            )
    except NotSeen as exc:
        return Check(promise=SETTLED, kept=False, seen=str(exc))
    return Check(promise=SETTLED, kept=True)


async def _resolved(site: Site, made: Account) -> Account:
    """Resolve the incidents that a drill has caused, with its name as the note."""
    resolved = []
    for incident in made.last.incidents if made.last else ():
        path = f"/v1/incidents/{incident['id']}/resolve"
        note = f"caused by the drill {made.drill.name}"
        response = await site.interface.call("POST", path, json={"note": note})
        if response.is_success:
            resolved.append(str(incident["id"]))
    return replace(made, resolved=tuple(resolved))
