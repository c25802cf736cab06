"""The books of a drill's jobs, read through the interfaces that operators and callers have."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from functions.audit_reports import find_window, read_report
from functions.core.jobs import Job
from functions.drill.accounting import ENDED, Books, Gap
from functions.drill.interface import InterfaceFailed
from functions.drill.site import Site

PER_SEAT = ("missing_output", "missing_failure", "digest_mismatch")
NAMED = (
    "missing_terminal",
    "orphan_outputs",
    "undelivered_notifications",
    "malformed",
    "off_window",
)


async def audited_books(site: Site, jobs: Sequence[str], since: datetime) -> Books:
    """Run an audit, and read what it and the other interfaces say of the jobs.

    Raises:
        EmpanelError: not everything could be read.
    """
    async with site.auditing:  # of two audits at once, one is on record
        await site.interface.audit()
        records = [await site.record(job) for job in jobs]
        names = {name for record in records for name in (record.window, record.run_window)}
        windows = {name: await _window(site, name) for name in sorted(names)}
    shown = {job: await site.interface.read(f"/v1/jobs/{job}") for job in jobs}
    own = _identities(records)
    incidents = await site.interface.incidents(since)
    return Books(
        windows=windows,
        jobs=shown,
        attempts={job: await site.interface.outcomes(job) for job in jobs},
        gaps=frozenset(_gaps(windows.values(), own)),
        repairs=[
            repair
            for report in windows.values()
            for repair in report["repairs"]
            if repair["job_id"] in own
        ],
        incidents=[incident for incident in incidents if _concerns(incident, own)],
        reports={job: await _is_complete(site, job) for job in jobs},
        notifications=await notifications(site, shown.values()),
    )


async def notifications(site: Site, jobs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the state of the notification of each run of the jobs that has ended."""
    names = [
        f"{job['decision_id']}.{run}"
        for job in jobs
        for run in range(1, job["run"] + (job["state"] in ENDED))
    ]
    found = await asyncio.gather(
        *(site.interface.read(f"/v1/notifications/{name}") for name in names)
    )
    return {name: str(shown["state"]) for name, shown in zip(names, found, strict=True)}


async def _window(site: Site, name: str) -> dict[str, Any]:
    """Return the audit's report of a window, its lists in full."""
    report = await site.interface.read(f"/v1/audits/{name}")
    if not report.get("truncated"):
        return report
    services = site.services()
    window = await find_window(services, site.pinned.tenant, name)
    if window is None or window.report is None:
        raise InterfaceFailed(f"the lists of {name} are cut, and there is no full report")
    full = (await read_report(services, window.report)).full()
    return report | {name: full[name] for name in report["truncated"]}


async def _is_complete(site: Site, job: str) -> bool:
    report = await site.interface.read(f"/v1/jobs/{job}/report", partial="true")
    return bool(report["complete"])


def _identities(records: Iterable[Job]) -> frozenset[str]:
    """Return what the entries of a report may call the jobs: job, decision, or work key."""
    names: set[str] = set()
    for job in records:
        names |= {job.id, job.decision_id, *(seat.work_key for seat in job.seats)}
    return frozenset(names)


def _gaps(reports: Iterable[Mapping[str, Any]], own: frozenset[str]) -> Iterable[Gap]:
    for report in reports:
        for kind in PER_SEAT:
            for entry in report[kind]:
                if entry["job_id"] in own:
                    yield Gap(kind=kind, name=f"{entry['job_id']} {entry['seat']}")
        for kind in NAMED:
            for name in report.get(kind, ()):
                if any(identity in name for identity in own):
                    yield Gap(kind=kind, name=name)


def _concerns(incident: Mapping[str, Any], own: frozenset[str]) -> bool:
    detail = incident["detail"] or ""
    return incident["job_id"] in own or any(identity in detail for identity in own)
