"""The audit: accepted runs against terminal records, outputs, failures and notifications.

It changes nothing but its own reports. Whatever it could not look at makes a report incomplete,
never clean. A window that is over is scanned once; later audits look only at what was not in order.
Once everything is, the window is sealed. Sealed windows are sampled: a change is an incident.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.audit_gaps import look_again, report_incidents, still_unresolved
from functions.audit_notifications import check_notifications
from functions.audit_outputs import WindowObjects, find_orphans
from functions.audit_reports import read_report, record_report, update_window, write_chunk
from functions.audit_runs import examine, pages_of_runs, read_repairs
from functions.audit_seals import sample_sealed, seal
from functions.core.audits import SHOWN, Findings, error_text
from functions.core.documents import from_snapshot
from functions.core.errors import (
    EmpanelError,
    ObjectMissing,
    ObjectsUnavailable,
    UnknownVersion,
    UnreadableRecord,
)
from functions.core.ports import Query, Snapshot
from functions.core.windows import Phase, Window, is_closed, window_start
from functions.incidents import open_incident, open_unreadable
from functions.metrics import Tally
from functions.paging import pages
from functions.services import Services

PAGE = 100
# What the audit's queries look for, with the least value of its type: a query by a field finds no
# document that lacks it.
LOOKED_FOR: Mapping[str, Mapping[str, str | bool]] = {
    "jobs": {"tenant": "", "window": ""},
    "runs": {"tenant": "", "window": ""},
    "windows": {"tenant": "", "window": "", "sealed": False},
}
UNSEALED_SHARE = 0.8  # of the retention; past it an unsealed window is an incident


@dataclass(kw_only=True)
class AuditPass:
    """What one audit came to, over all windows it looked at."""

    windows: list[dict[str, Any]] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

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
        unsealed = Query(collection="windows", where=(("sealed", "==", False),))
        async for page in pages(services.ledger, unsealed, PAGE):
            for found in page:
                await _audit_found(services, result, found)
        await _check_totals(services, result)
        async for name in sample_sealed(services, result.sealed):
            result.sampled.append(name)
    except EmpanelError as exc:
        result.errors.append(error_text(exc))
        telemetry.error("audit incomplete", exc=exc)
        await _tell_unreadable(services, result, exc)
    services.metrics.audited(result.tally)
    return result


async def _audit_found(services: Services, result: AuditPass, found: Snapshot) -> None:
    """Audit one window; what fails in it leaves the others alone."""
    try:
        window = from_snapshot(Window, found)
        if window is not None:
            await audit_window(services, result, found, window)
    except EmpanelError as exc:
        result.errors.append(f"{found.path}: {error_text(exc)}")
        telemetry.error("window not audited", exc=exc, path=found.path)
        await _tell_unreadable(services, result, exc)


async def _tell_unreadable(services: Services, result: AuditPass, error: EmpanelError) -> None:
    """Open the incident of a record that an audit cannot read; what fails is in the result."""
    if not isinstance(error, UnreadableRecord):
        return
    try:
        await open_unreadable(services, error, str(error))
    except EmpanelError as exc:
        result.errors.append(error_text(exc))
        telemetry.error("unreadable record not recorded", exc=exc)


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
            head |= await seal(services, window, findings)
    await _alarm_when_late(services, window, found.read_time, sealed="digest" in head)
    await report_incidents(services, window, findings)
    recorded = await _put_on_record(services, found, window, findings, head)
    sealed = recorded and "digest" in head
    if sealed:
        result.sealed.append(window.name)
    result.windows.append(_summary(window, findings, sealed=sealed))
    result.tally.add(findings)
    services.metrics.window_audited(findings, sealed=sealed)


async def _put_on_record(
    services: Services, found: Snapshot, window: Window, findings: Findings, head: dict[str, Any]
) -> bool:
    """Store the report; say whether it is on record.

    A report that is the base of later audits is not replaced by one of what could not be looked at.
    """
    if findings.complete or window.phase is not Phase.SCANNED:
        try:
            return await record_report(services, found, window, findings, **head)
        except ObjectsUnavailable as exc:
            findings.errors.append(error_text(exc))
            head = {"view": findings.view()}
    else:
        head = head | {"view": window.view | {"complete": False, "errors": findings.errors[:SHOWN]}}
    incomplete = replace(window, complete=False, audited_at=services.clock.now(), **head)
    return await update_window(services, found, window, incomplete)


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
        if now >= window.runs_expire_at:
            findings.errors.append("its records have begun to expire: it can no longer be audited")
            return findings
        before = await _base(services, window)
        if before is not None:
            return await look_again(services, window, before, now)
        await scan(services, window, findings, now)
    except EmpanelError as exc:
        findings.errors.append(error_text(exc))
        telemetry.error(
            "window not audited whole", exc=exc, tenant=window.tenant, window=window.window
        )
    return findings


async def _base(services: Services, window: Window) -> Findings | None:
    """Return what an earlier audit left to look at; None when the window must be scanned whole."""
    if window.phase is not Phase.SCANNED or window.report is None:
        return None
    try:
        before = await read_report(services, window.report)
    except UnknownVersion as exc:
        await open_unreadable(services, exc, window.name)
        return None
    except (ObjectMissing, UnreadableRecord) as exc:
        telemetry.warning("report lost", window=window.name, error=error_text(exc))
        return None
    return before if before.is_base else None


async def scan(services: Services, window: Window, findings: Findings, now: datetime) -> None:
    """Look at everything in a window.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: a page failed.
    """
    tenant, name = window.tenant, window.window
    objects = WindowObjects(services, tenant, name)
    await objects.read_listing()
    async for runs in pages_of_runs(services, findings, tenant, name):
        lines = await examine(services, findings, objects, runs, now)
        if lines:
            findings.chunks.append(await write_chunk(services, window, lines))
    findings.orphan_outputs = await find_orphans(services, findings, tenant, objects.unused())
    await check_notifications(services, window, findings)
    findings.repairs = await read_repairs(services, findings, tenant, name)


async def _alarm_when_late(
    services: Services, window: Window, now: datetime, *, sealed: bool
) -> None:
    late = timedelta(days=services.settings.retention_days * UNSEALED_SHARE)
    if not sealed and now > window_start(window.window) + late:
        await open_incident(
            services,
            "window_unsealed",
            window.name,
            tenant=window.tenant,
            detail=f"the window {window.window} is not sealed, and its records will soon expire",
        )


async def _check_totals(services: Services, result: AuditPass) -> None:
    """Find documents that no audit can see, because they lack what it looks for: by counts alone.

    Raises:
        LedgerUnavailable: no answer.
    """
    for collection, fields in LOOKED_FOR.items():
        whole = await services.ledger.count(Query(collection=collection))
        for name, least in fields.items():
            having = Query(collection=collection, where=((name, ">=", least),), order_by=name)
            if whole > await services.ledger.count(having):
                await _find_malformed(services, result, collection)
                break


async def _find_malformed(services: Services, result: AuditPass, collection: str) -> None:
    """Name the documents that lack a field: told as incidents; the audit is not complete."""
    everything = Query(collection=collection)
    async for page in pages(services.ledger, everything, PAGE):
        for found in page:
            data, fields = found.data or {}, LOOKED_FOR[collection]
            lacks = [n for n, least in fields.items() if type(data.get(n)) is not type(least)]
            if lacks:
                result.malformed.append(found.path)
                detail = f"{found.path} lacks {', '.join(lacks)}: no audit can see it"
                await open_incident(services, "malformed_record", found.path, detail=detail)
    if result.malformed:
        result.errors.append(f"{collection}: documents that no audit can see; see malformed")
