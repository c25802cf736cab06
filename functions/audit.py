"""The audit: accepted runs against terminal records, outputs, failures and notifications.

It changes nothing but its own reports. Whatever it could not look at makes a report incomplete,
never clean. A window that is over is scanned once; later audits look only at what was not in order.
Once everything is, the window is sealed. Sealed windows are sampled: a change is an incident.
"""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.audit_gaps import look_again, report_incidents, still_unresolved
from functions.audit_notifications import check_notifications
from functions.audit_outputs import WindowObjects, find_orphans
from functions.audit_reports import (
    read_chunk,
    read_report,
    record_report,
    update_window,
    write_chunk,
)
from functions.audit_runs import examine, line_of, pages_of_runs, read_repairs
from functions.core.audits import Findings
from functions.core.documents import from_snapshot, job_path, terminal_path
from functions.core.errors import EmpanelError, ObjectsUnavailable
from functions.core.jobs import Terminal
from functions.core.ports import Query, Snapshot
from functions.core.windows import Line, Phase, Window, is_closed, seal_digest, window_start
from functions.incidents import open_incident
from functions.services import Services

PAGE = 100
SAMPLED_WINDOWS = 3
SAMPLED_RUNS = 5
UNSEALED_SHARE = 0.8  # of the retention; past it an unsealed window is an incident


@dataclass(kw_only=True)
class AuditPass:
    """What one audit came to, over all windows it looked at."""

    windows: list[dict[str, Any]] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everything was looked at."""
        return not self.errors and all(window["complete"] for window in self.windows)

    def view(self) -> dict[str, Any]:
        """Return the pass as the scheduler's call is answered."""
        return {
            "complete": self.complete,
            "windows": self.windows,
            "sealed": self.sealed,
            "sampled": self.sampled,
            "malformed": self.malformed[:PAGE],
            "errors": self.errors,
        }


async def audit(services: Services) -> AuditPass:
    """Audit every window that is not sealed, and a sample of the sealed ones.

    Safe to repeat and to run twice at once. What fails is in the result's `errors`.
    """
    result = AuditPass()
    try:
        async for found in _unsealed(services):
            await _audit_found(services, result, found)
        await _check_totals(services, result)
        await _sample(services, result)
    except EmpanelError as exc:
        result.errors.append(_text(exc))
        telemetry.error("audit incomplete", exc=exc)
    return result


async def _unsealed(services: Services) -> AsyncIterator[Snapshot]:
    after = None
    while True:
        query = Query(
            collection="windows", where=(("sealed", "==", False),), limit=PAGE, after=after
        )
        page = await services.ledger.query(query)
        for found in page:
            yield found
        if len(page) < PAGE:
            return
        after = (None, page[-1].id)


async def _audit_found(services: Services, result: AuditPass, found: Snapshot) -> None:
    """Audit one window; what fails in it leaves the others alone."""
    try:
        window = from_snapshot(Window, found)
        if window is not None:
            await audit_window(services, result, found, window)
    except EmpanelError as exc:
        result.errors.append(f"{found.path}: {_text(exc)}")
        telemetry.error("window not audited", exc=exc, path=found.path)


async def audit_window(
    services: Services, result: AuditPass, found: Snapshot, window: Window
) -> None:
    """Look at one window, put the report on record, and seal the window when nothing is open."""
    findings = await _look(services, window, found.read_time)
    closed = is_closed(window.window, found.read_time)
    head: dict[str, Any] = {}
    if findings.complete and closed:
        head["phase"] = Phase.SCANNED
        if not findings.open and not await still_unresolved(services, window, findings):
            head |= await _seal(services, window, findings)
    await _alarm_when_late(services, window, found.read_time, sealed="digest" in head)
    await report_incidents(services, window, findings)
    try:
        recorded = await record_report(services, found, window, findings, **head)
    except ObjectsUnavailable as exc:
        findings.errors.append(_text(exc))
        incomplete = replace(
            window, complete=False, audited_at=services.clock.now(), view=findings.view()
        )
        recorded = await update_window(services, found, window, incomplete)
    if recorded and "digest" in head:
        result.sealed.append(_name(window))
    result.windows.append(_summary(window, findings, sealed=recorded and "digest" in head))


def _summary(window: Window, findings: Findings, *, sealed: bool) -> dict[str, Any]:
    return {
        "tenant": window.tenant,
        "window": window.window,
        "population": findings.population,
        "complete": findings.complete,
        "sealed": sealed,
        "gaps": findings.gaps,
        "errors": findings.errors[:10],
    }


async def _look(services: Services, window: Window, now: datetime) -> Findings:
    """Return what is known of the window now; a failure is in its `errors`."""
    findings = Findings()
    try:
        if window.phase is Phase.SCANNED and window.report is not None:
            before = await read_report(services, window.report)
            if not before.malformed:
                return await look_again(services, window, before, now)
        await scan(services, window, findings, now)
    except EmpanelError as exc:
        findings.errors.append(_text(exc))
        telemetry.error(
            "window not audited whole", exc=exc, tenant=window.tenant, window=window.window
        )
    return findings


async def scan(services: Services, window: Window, findings: Findings, now: datetime) -> None:
    """Look at everything in a window.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: a page failed.
        UnreadableRecord: a record that a finding depends on cannot be read.
    """
    tenant, name = window.tenant, window.window
    objects = WindowObjects(services, tenant, name)
    await objects.read_listing()
    async for runs in pages_of_runs(services, findings, tenant, name):
        lines = await examine(services, findings, objects, runs, now)
        if lines:
            findings.chunks.append(await write_chunk(services, window, lines))
    findings.orphan_outputs = await find_orphans(services, tenant, objects.unused())
    await check_notifications(services, window, findings)
    findings.repairs = await read_repairs(services, tenant, name)


async def _seal(services: Services, window: Window, findings: Findings) -> dict[str, Any]:
    """Return the head of a sealed window, unless a run was added to it after its scan."""
    if (
        await _first_runs(services, window) + await _replays(services, window)
        != findings.population
    ):
        findings.errors.append("runs were added after the scan")
        return {"phase": Phase.OPEN}
    return {
        "phase": Phase.SEALED,
        "sealed": True,
        "sealed_at": services.clock.now(),
        "digest": seal_digest(chunk.sha256 for chunk in findings.chunks),
    }


async def _first_runs(services: Services, window: Window) -> int:
    where = (("tenant", "==", window.tenant), ("window", "==", window.window))
    return await services.ledger.count(Query(collection="jobs", where=where))


async def _replays(services: Services, window: Window) -> int:
    where = (("tenant", "==", window.tenant), ("window", "==", window.window))
    return await services.ledger.count(Query(collection="runs", where=where))


async def _alarm_when_late(
    services: Services, window: Window, now: datetime, *, sealed: bool
) -> None:
    late = timedelta(days=services.settings.retention_days * UNSEALED_SHARE)
    if not sealed and now > window_start(window.window) + late:
        await open_incident(
            services,
            "window_unsealed",
            _name(window),
            tenant=window.tenant,
            detail=f"the window {window.window} is not sealed, and its records will soon expire",
        )


async def _check_totals(services: Services, result: AuditPass) -> None:
    """Find jobs that no window can count, because they lack one: two counts when there are none.

    Raises:
        LedgerUnavailable: no answer.
    """
    whole = await services.ledger.count(Query(collection="jobs"))
    counted = Query(collection="jobs", where=(("window", ">=", ""),), order_by="window")
    if whole <= await services.ledger.count(counted):
        return
    after = None
    while page := await services.ledger.query(Query(collection="jobs", limit=PAGE, after=after)):
        for found in page:
            if not isinstance((found.data or {}).get("window"), str):
                result.malformed.append(found.path)
                detail = f"{found.path} has no window: no audit can count it"
                await open_incident(services, "malformed_record", found.path, detail=detail)
        after = (None, page[-1].id)


async def _sample(services: Services, result: AuditPass) -> None:
    """Look at a few runs of the sealed windows that were looked at longest ago.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no answer.
    """
    query = Query(
        collection="windows",
        where=(("sealed", "==", True),),
        order_by="audited_at",
        limit=SAMPLED_WINDOWS,
    )
    for found in await services.ledger.query(query):
        window = from_snapshot(Window, found)
        if window is None or window.report is None or _name(window) in result.sealed:
            continue
        changed = await _changes_since_seal(services, window)
        for cause, detail in changed.items():
            await open_incident(
                services, "changed_after_seal", cause, tenant=window.tenant, detail=detail
            )
        after = replace(window, audited_at=services.clock.now())
        await update_window(services, found, window, after)
        result.sampled.append(_name(window))


async def _changes_since_seal(services: Services, window: Window) -> dict[str, str]:
    """Return what differs in a sample of a sealed window, by cause."""
    assert window.report is not None
    name = _name(window)
    findings = await read_report(services, window.report)
    if await _first_runs(services, window) + await _replays(services, window) != window.population:
        return {name: f"{name}: the number of runs has changed since the window was sealed"}
    if seal_digest(chunk.sha256 for chunk in findings.chunks) != window.digest:
        return {name: f"{name}: the report no longer matches the seal"}
    if not findings.chunks:
        return {}
    lines = await read_chunk(services, random.choice(findings.chunks))  # noqa: S311 - a sample
    sample = random.sample(lines, min(SAMPLED_RUNS, len(lines)))
    return await _compare(services, window, sample)


async def _compare(services: Services, window: Window, sample: list[Line]) -> dict[str, str]:
    paths = [
        path for line in sample for path in (job_path(line.job), terminal_path(line.job, line.run))
    ]
    found = await services.ledger.get(*paths)
    changed = {}
    for index, line in enumerate(sample):
        job, record = found[2 * index], found[2 * index + 1]
        terminal = from_snapshot(Terminal, record)
        if not job.exists or terminal is None or line_of(terminal) != line:
            changed[record.path] = f"{record.path}: not what it was when {window.window} was sealed"
    return changed


def _name(window: Window) -> str:
    return f"{window.tenant}.{window.window}"


def _text(exc: EmpanelError) -> str:
    return f"{type(exc).__name__}: {exc}"[:500]
