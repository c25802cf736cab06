"""Seals: a window in which nothing is open gets a digest, and a sample must match it ever after.

The sample takes the windows that were looked at longest ago, so that in time all are looked at.
"""

import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from functions.audit_reports import read_chunk, read_report, update_window
from functions.audit_runs import line_of
from functions.core.audits import Findings
from functions.core.documents import from_snapshot, job_path, terminal_path
from functions.core.errors import ObjectMissing, UnknownVersion, UnreadableRecord
from functions.core.jobs import Job, Terminal
from functions.core.ports import Query, Snapshot
from functions.core.windows import (
    Line,
    Phase,
    ReportRef,
    Window,
    seal_digest,
    window_start,
)
from functions.incidents import open_incident, open_unreadable
from functions.outputs import was_purged
from functions.services import Services

R = TypeVar("R", Job, Terminal)
SAMPLED_WINDOWS = 3
SAMPLED_RUNS = 5


async def seal(services: Services, window: Window, findings: Findings) -> dict[str, Any]:
    """Return the head of a sealed window, unless a run was added to it after its scan.

    Raises:
        LedgerUnavailable: no answer.
    """
    if await _population(services, window) != findings.population:
        findings.errors.append("runs were added after the scan")
        return {"phase": Phase.OPEN}
    return {
        "phase": Phase.SEALED,
        "sealed": True,
        "sealed_at": services.clock.now(),
        "digest": seal_digest(chunk.sha256 for chunk in findings.chunks),
    }


async def _population(services: Services, window: Window) -> int:
    """Return how many runs the ledger counts in the window now: first runs and replays."""
    where = (("tenant", "==", window.tenant), ("window", "==", window.window))
    first_runs = await services.ledger.count(Query(collection="jobs", where=where))
    return first_runs + await services.ledger.count(Query(collection="runs", where=where))


async def sample_sealed(services: Services, leave_out: Collection[str]) -> AsyncIterator[str]:
    """Look at a few runs of some sealed windows; yield the name of each window looked at.

    What has changed is an incident. `leave_out` names the windows that were sealed just now.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no answer.
        UnreadableRecord: a window cannot be read.
    """
    query = Query(
        collection="windows",
        where=(("sealed", "==", True),),
        order_by="audited_at",
        limit=SAMPLED_WINDOWS,
    )
    for found in await services.ledger.query(query):
        window = from_snapshot(Window, found)
        if window is None or window.report is None or window.name in leave_out:
            continue
        try:
            changed = await _changes_since_seal(services, window, window.report)
        except UnknownVersion as exc:  # another release's, so that nothing can be told from it
            await open_unreadable(services, exc, window.name)
            changed = {}
        for cause, detail in changed.items():
            await open_incident(
                services, "changed_after_seal", cause, tenant=window.tenant, detail=detail
            )
        after = replace(window, audited_at=services.clock.now())
        await update_window(services, found, window, after)
        yield window.name


async def _changes_since_seal(
    services: Services, window: Window, report: ReportRef
) -> Mapping[str, str]:
    """Return what differs in a sample of a sealed window, by cause.

    Once its records may be deleted by their age nothing can be told from their absence.

    Raises:
        UnknownVersion: the report or a record is another release's.
    """
    name = window.name
    if services.clock.now() >= window.runs_expire_at:
        return {}
    try:
        findings = await read_report(services, report)
        if await _population(services, window) != window.population:
            return {name: f"{name}: the number of runs has changed since the window was sealed"}
        if seal_digest(chunk.sha256 for chunk in findings.chunks) != window.digest:
            return {name: f"{name}: the report no longer matches the seal"}
        if not findings.chunks:
            return {}
        lines = await read_chunk(services, random.choice(findings.chunks))  # noqa: S311 - a sample
    except UnknownVersion:
        raise
    except (ObjectMissing, UnreadableRecord) as exc:
        return {name: f"{name}: what was sealed cannot be read any more: {exc}"}
    sample = random.sample(lines, min(SAMPLED_RUNS, len(lines)))
    known = {entry["uri"] for entry in (*findings.missing_output, *findings.digest_mismatch)}
    return await _compare(services, window, sample, known)


async def _compare(
    services: Services, window: Window, sample: Sequence[Line], known: Collection[str]
) -> Mapping[str, str]:
    """Compare records and outputs with the seal; `known` are the outputs that it left as gaps."""
    paths = [
        path for line in sample for path in (job_path(line.job), terminal_path(line.job, line.run))
    ]
    found = await services.ledger.get(*paths)
    changed = {}
    for index, line in enumerate(sample):
        job, terminal = _read(Job, found[2 * index]), _read(Terminal, found[2 * index + 1])
        is_there = found[2 * index].exists
        if not is_there and line.run > 1 and services.clock.now() >= _half_kept(window):
            continue
        if not is_there or terminal is None or line_of(terminal) != line:
            path = found[2 * index + 1].path
            changed[path] = f"{path}: not what it was when {window.window} was sealed"
        elif job is not None and job.purged_at is None:
            for uri in await _lost_outputs(services, window, terminal):
                if uri not in known:
                    changed[uri] = f"{uri}: not what it was when {window.window} was sealed"
    return changed


def _half_kept(window: Window) -> datetime:
    """Return when a job that was replayed in the window may expire (`functions.replays`).

    It is older than the window, by half of the retention at most.
    """
    start = window_start(window.window)
    return start + (window.runs_expire_at - start) / 2


async def _lost_outputs(services: Services, window: Window, terminal: Terminal) -> list[str]:
    """Return the outputs of a run that are gone or damaged; those of older windows expire first."""
    prefix, lost = services.objects.uri(f"outputs/{window.tenant}/{window.window}/"), []
    for seat in terminal.seats:
        if seat.uri is not None and seat.uri.startswith(prefix):
            stored = await services.objects.stat(seat.uri.removeprefix(services.objects.uri("")))
            if stored is None:
                lost += [] if await was_purged(services, seat.uri) else [seat.uri]
            elif (stored.generation, stored.metadata.get("sha256")) != (
                seat.generation,
                seat.sha256,
            ):
                lost.append(seat.uri)
    return lost


def _read(kind: type[R], found: Snapshot) -> R | None:
    try:
        return from_snapshot(kind, found)
    except UnknownVersion:
        raise
    except UnreadableRecord:
        return None
