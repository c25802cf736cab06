"""Notifications on record against runs that ended: one for each, delivered or given up.

Two counts tell whether every run has one; only a difference is looked for run by run.
"""

from collections.abc import Iterable, Sequence

from functions.audit_reports import read_chunk
from functions.core.audits import Findings
from functions.core.documents import notification_path
from functions.core.jobs import JobState
from functions.core.notifications import NotificationState
from functions.core.ports import Query, Snapshot
from functions.core.windows import Line, Window
from functions.paging import pages
from functions.services import Services

Where = tuple[tuple[str, str, object], ...]
PAGE = 300


async def check_notifications(services: Services, window: Window, findings: Findings) -> None:
    """List the notifications of the window's ended runs that did not arrive, or do not exist.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no answer.
    """
    known, findings.undelivered_notifications = findings.undelivered_notifications, []
    findings.lost_notifications = []
    where = (("tenant", "==", window.tenant), ("window", "==", window.window))
    ended = sum(findings.counts[state.value] for state in JobState if state.is_terminal)
    undelivered = await _all(services, (*where, ("delivered", "==", False)))
    _note(findings, undelivered)
    delivered = await _count(services, (*where, ("delivered", "==", True)))
    on_record = await _count(services, where)
    if on_record > delivered + len(undelivered):
        await _find_malformed(services, where, findings)
    absent = await _absent(services, known)
    if on_record + len(absent) < ended:
        for chunk in findings.chunks:
            await _look_for_each(services, await read_chunk(services, chunk), findings)
    else:
        _note(findings, absent)


async def _count(services: Services, where: Where) -> int:
    return await services.ledger.count(Query(collection="notifications", where=where))


async def _find_malformed(services: Services, where: Where, findings: Findings) -> None:
    """List the notifications that say neither that they arrived nor that they did not."""
    for found in await _all(services, where):
        if not isinstance((found.data or {}).get("delivered"), bool):
            findings.malformed.append(found.path)


async def _absent(services: Services, known: Sequence[str]) -> list[Snapshot]:
    """Return those that an earlier audit listed and that do not exist."""
    found = await services.ledger.get(*(f"notifications/{name}" for name in known)) if known else []
    return [doc for doc in found if not doc.exists]


def _note(findings: Findings, undelivered: Iterable[Snapshot]) -> None:
    for found in undelivered:
        state = (found.data or {}).get("state")
        if state == NotificationState.GONE:  # its receiver wants no more: an end, and no gap
            continue
        findings.undelivered_notifications.append(found.id)
        if not found.exists or state == NotificationState.FAILED:
            findings.lost_notifications.append(found.id)


async def _all(services: Services, where: Where) -> list[Snapshot]:
    query = Query(collection="notifications", where=where)
    return [found async for page in pages(services.ledger, query, PAGE) for found in page]


async def _look_for_each(services: Services, lines: Sequence[Line], findings: Findings) -> None:
    """List the runs whose notification does not exist, or belongs to no window that counts it."""
    for start in range(0, len(lines), PAGE):
        some = lines[start : start + PAGE]
        paths = [notification_path(line.decision, line.run) for line in some]
        for found in await services.ledger.get(*paths):
            if not found.exists:
                _note(findings, [found])
            elif any(not isinstance((found.data or {}).get(n), str) for n in ("tenant", "window")):
                findings.malformed.append(found.path)
