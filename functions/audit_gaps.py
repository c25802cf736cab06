"""Gaps between audits: looked at again one by one, told as incidents, settled before a seal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any

from functions.audit_notifications import check_notifications
from functions.audit_outputs import WindowObjects, find_orphans
from functions.audit_reports import write_chunk
from functions.audit_runs import RunSeen, examine, read_repairs, read_runs
from functions.core.audits import Findings, error_text
from functions.core.documents import from_snapshot, incident_path, job_path, seat_path
from functions.core.errors import EmpanelError
from functions.core.identities import name_in_bucket
from functions.core.jobs import Job
from functions.core.windows import Window
from functions.incidents import incident_id, is_resolved, open_incident
from functions.services import Services

TOLD = 100  # incidents of one kind and window by name; the rest are told as one
GET_AT_ONCE = 300


async def look_again(
    services: Services, window: Window, before: Findings, now: datetime
) -> Findings:
    """Return the findings of a scanned window as they are now; reads only what was not in order.

    A failure keeps what was known and is in `errors`.
    """
    after = deepcopy(before)
    try:
        await _open_runs(services, window, after, now)
        await _outputs(services, window, after)
        await _failures(services, after)
        await check_notifications(services, window, after)
        after.repairs = await read_repairs(services, after, window.tenant, window.window)
    except EmpanelError as exc:
        after = deepcopy(before)
        after.errors = [error_text(exc)]
    return after


async def _open_runs(services: Services, window: Window, findings: Findings, now: datetime) -> None:
    """Look at the runs that had not ended; those that have are counted and lined up now."""
    runs, findings.open = findings.open, []
    findings.missing_terminal, findings.aged = [], []
    looked_at = {run.job for run in runs}
    findings.off_window = [job for job in findings.off_window if job not in looked_at]
    for start in range(0, len(runs), GET_AT_ONCE):
        some = runs[start : start + GET_AT_ONCE]
        for run in some:
            findings.counts[run.state] -= 1
        jobs = await services.ledger.get(*(job_path(run.job) for run in some))
        numbers = [run.run for run in some]
        seen = await read_runs(services, findings, list(zip(jobs, numbers, strict=True)))
        objects = WindowObjects(services, window.tenant, window.window)
        _forget(findings, [run for run in seen if run.terminal is not None])
        lines = await examine(services, findings, objects, seen, now, again=True)
        if lines:
            findings.chunks.append(await write_chunk(services, window, lines))


def _forget(findings: Findings, ended: Sequence[RunSeen]) -> None:
    """Drop what is listed of runs that have ended: they are looked at as a whole."""
    again = {(run.job.id, run.run) for run in ended}
    for entries in (
        findings.missing_output,
        findings.digest_mismatch,
        findings.missing_failure,
    ):
        entries[:] = [e for e in entries if (e["job_id"], e["run"]) not in again]


async def _outputs(services: Services, window: Window, findings: Findings) -> None:
    objects = WindowObjects(services, window.tenant, window.window)
    entries = [*findings.missing_output, *findings.digest_mismatch]
    findings.missing_output, findings.digest_mismatch = [], []
    purged = await _purged(services, [entry["job_id"] for entry in entries])
    findings.purged += len(purged)
    for entry in entries:
        if entry["job_id"] in purged:
            continue
        found = await objects.find(entry["uri"])
        if found is None:
            if await objects.was_purged(entry["uri"]):
                findings.purged += 1
            else:
                findings.missing_output.append(entry)
        elif (found.generation, found.sha256) != (
            entry["generation"],
            entry["sha256"],
        ):
            findings.digest_mismatch.append(entry | {"found_sha256": found.sha256})
    names = [name_in_bucket(uri) for uri in findings.orphan_outputs]
    there = [name for name in names if await services.objects.stat(name) is not None]
    findings.orphan_outputs = await find_orphans(services, findings, window.tenant, there)


async def _purged(services: Services, jobs: Sequence[str]) -> set[str]:
    """Return those of the jobs whose outputs were deleted on purpose meanwhile."""
    names = list(dict.fromkeys(jobs))
    found = await services.ledger.get(*map(job_path, names)) if names else []
    records = (from_snapshot(Job, snapshot) for snapshot in found)
    return {job.id for job in records if job is not None and job.purged_at is not None}


async def _failures(services: Services, findings: Findings) -> None:
    entries, findings.missing_failure = findings.missing_failure, []
    if entries:
        paths = [seat_path(entry["job_id"], entry["run"], entry["index"]) for entry in entries]
        found = await services.ledger.get(*paths)
        findings.missing_failure = [
            entry for entry, doc in zip(entries, found, strict=True) if not doc.exists
        ]


async def report_incidents(services: Services, window: Window, findings: Findings) -> None:
    """Open an incident for each gap, once per cause; of many of one kind, one for the rest.

    Raises:
        LedgerUnavailable: it is not certain that they are on record.
    """
    for kind, cause, facts in _told(window, findings):
        await open_incident(services, kind, cause, tenant=window.tenant, **facts)


async def still_unresolved(services: Services, window: Window, findings: Findings) -> bool:
    """Whether any gap is neither mended nor answered for by an operator.

    Raises:
        LedgerUnavailable: no answer.
    """
    if len(findings.undelivered_notifications) > len(findings.lost_notifications):
        return True
    causes = [(kind, cause) for kind, cause, _ in _told(window, findings)]
    paths = [incident_path(incident_id(kind, cause)) for kind, cause in causes]
    for start in range(0, len(paths), GET_AT_ONCE):
        found = await services.ledger.get(*paths[start : start + GET_AT_ONCE])
        if not all(map(is_resolved, found)):
            return True
    return False


def _told(window: Window, findings: Findings) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the first causes of each kind by name, and what is beyond them as one."""
    seen = Counter[str]()
    for kind, cause, facts in _causes(findings):
        seen[kind] += 1
        if seen[kind] <= TOLD:
            yield kind, cause, facts
    for kind, number in seen.items():
        if number > TOLD:
            detail = f"{number} findings in {window.window}; the audit lists them"
            yield kind, window.name, {"detail": detail}


def _causes(findings: Findings) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield kind, cause and facts of each incident that the findings call for."""
    for entry in findings.aged:
        cause = f"{entry['job_id']}.{entry['run']}"
        facts = {"job_id": entry["job_id"], "owner": entry["owner"]}
        yield "aged_gap", cause, facts | {"detail": "accepted, past its time, and not ended"}
    for entry in findings.missing_output:
        facts = _facts(entry)
        name = name_in_bucket(entry["uri"])
        yield "output_missing", name, facts | {"detail": f"the object {entry['uri']} is gone"}
    for entry in findings.digest_mismatch:
        facts = _facts(entry)
        name = name_in_bucket(entry["uri"])
        yield "output_damaged", name, facts | {"detail": f"{entry['uri']} is not what was stored"}
    for entry in findings.missing_failure:
        cause = f"{entry['job_id']}.{entry['run']}.{entry['index']}"
        facts = _facts(entry)
        yield "failure_missing", cause, facts | {"detail": "failed, and without its record"}
    for uri in findings.orphan_outputs:
        yield "orphan_output", uri, {"detail": f"nothing points to {uri}"}
    for name in findings.lost_notifications:
        yield "notification_lost", name, {"detail": f"the notification {name} did not arrive"}
    for path in findings.malformed:
        yield "malformed_record", path, {"detail": f"{path} cannot be read"}
    for job in findings.off_window:
        yield "off_window", job, {"job_id": job, "detail": "accepted outside the hour it counts in"}


def _facts(entry: dict[str, Any]) -> dict[str, Any]:
    return {"job_id": entry["job_id"], "seat": entry["seat"], "owner": entry["owner"]}
