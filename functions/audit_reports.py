"""Reports of audits: whole in the bucket, their heads in the ledger, and as readers see them.

A report is written create-only under a name of its own, then the window's document points to it
under the `update_time` that was read. Of two audits at once one is on record; both were right.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from functions.core.audits import Chunk, Findings, read_findings
from functions.core.documents import changes, from_document, from_snapshot, window_path
from functions.core.errors import ObjectsUnavailable, UnreadableRecord, WriteConflict
from functions.core.ports import Query, Snapshot, Update
from functions.core.times import timestamp
from functions.core.windows import Line, Phase, ReportRef, Window, chunk_data, read_line
from functions.services import Services


async def write_chunk(services: Services, window: Window, lines: Sequence[Line]) -> Chunk:
    """Store lines of ended runs; return where they are.

    Raises:
        ObjectsUnavailable: they are not certainly stored.
    """
    name, generation, sha256 = await _store(services, window, "runs", "tsv", chunk_data(lines))
    return Chunk(name=name, generation=generation, sha256=sha256, lines=len(lines))


async def read_chunk(services: Services, chunk: Chunk) -> list[Line]:
    """Return the lines of a chunk.

    Raises:
        ObjectMissing, ObjectsUnavailable: it is gone, or no answer.
        UnreadableRecord: it is not what was stored.
    """
    data = await services.objects.read(chunk.name, chunk.generation)
    if hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise UnreadableRecord(f"{chunk.name}: the lines do not match their digest")
    return [read_line(text) for text in data.decode().splitlines()]


async def write_report(services: Services, window: Window, findings: Findings) -> ReportRef:
    """Store a full report; return where it is.

    Raises:
        ObjectsUnavailable: it is not certainly stored.
    """
    data = json.dumps(findings.full(), ensure_ascii=False, sort_keys=True).encode()
    name, generation, sha256 = await _store(services, window, "report", "json", data)
    return ReportRef(name=name, generation=generation, sha256=sha256)


async def read_report(services: Services, ref: ReportRef) -> Findings:
    """Return the findings of a stored report.

    Raises:
        ObjectMissing, ObjectsUnavailable: it is gone, or no answer.
        UnknownVersion: it is another release's.
        UnreadableRecord: it is not what was stored.
    """
    data = await services.objects.read(ref.name, ref.generation)
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise UnreadableRecord(f"{ref.name}: the report does not match its digest")
    try:
        return read_findings(json.loads(data), ref.name)
    except (ValueError, KeyError, TypeError) as exc:
        raise UnreadableRecord(f"{ref.name}: no report of this version") from exc


async def _store(
    services: Services, window: Window, kind: str, ending: str, data: bytes
) -> tuple[str, int, str]:
    name = f"audits/{window.tenant}/{window.window}/{kind}-{services.new_id()}.{ending}"
    sha256 = hashlib.sha256(data).hexdigest()
    content_type = "application/json" if ending == "json" else "text/tab-separated-values"
    stored = await services.objects.create(
        name, data, content_type=content_type, metadata={"sha256": sha256}
    )
    if stored is None:  # the name is random: an object there can only be this one
        stored = await services.objects.stat(name)
    if stored is None:
        raise ObjectsUnavailable(f"{name}: refused as existing, yet not there")
    return name, stored.generation, sha256


async def record_report(
    services: Services, found: Snapshot, before: Window, findings: Findings, **head: Any
) -> bool:
    """Store the report and let the window point to it; False when another audit was first.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: it is not certainly on record.
    """
    ref = await write_report(services, before, findings)
    after = replace(
        before,
        audited_at=services.clock.now(),
        complete=findings.complete,
        population=findings.population,
        counts=dict(findings.counts),
        report=ref,
        view=findings.view(),
        **head,
    )
    return await update_window(services, found, before, after)


async def update_window(services: Services, found: Snapshot, before: Window, after: Window) -> bool:
    """Write a window if it is still as it was read; say whether it was.

    Raises:
        LedgerUnavailable: not certainly written.
    """
    fields = changes(before, after)
    if not fields:
        return True
    update = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        return False
    return True


async def find_window(services: Services, tenant: str, window: str) -> Window | None:
    """Return what is known of a window, None when nothing was accepted in it.

    Raises:
        LedgerUnavailable: no answer.
    """
    [found] = await services.ledger.get(window_path(tenant, window))
    return from_snapshot(Window, found)


async def list_windows(
    services: Services, tenant: str, first: str, last: str, limit: int
) -> list[Window]:
    """Return the tenant's windows from `first` to `last`, both included, newest first.

    Raises:
        LedgerUnavailable: no answer, or the query lacks its index.
    """
    query = Query(
        collection="windows",
        where=(("tenant", "==", tenant), ("window", ">=", first), ("window", "<=", last)),
        order_by="window",
        descending=True,
        limit=limit,
    )
    found = await services.ledger.query(query)
    return [from_document(Window, doc.data or {}, doc.path) for doc in found]


def audit_view(window: Window) -> dict[str, Any]:
    """Return a window's last audit as the interface shows it."""
    return {
        "window": window.window,
        "audited_at": timestamp(window.audited_at),
        "sealed": window.phase is Phase.SEALED,
        "digest": window.digest,
        **Findings().view(),
        "cost_usd": None,  # an unknown cost is absent from the document, as every None is
        **window.view,
        "complete": window.complete,
    }


def audit_summary(window: Window) -> dict[str, Any]:
    """Return a window as lists of audits show it."""
    return {
        "window": window.window,
        "population": window.population,
        "complete": window.complete,
        "sealed": window.phase is Phase.SEALED,
        "counts": window.counts or Findings().counts,
    }
