"""Notifications on record against runs that ended: one for each, delivered or given up.

Two counts tell whether every run has one; only a difference is looked for run by run.
"""

from collections.abc import Iterable, Sequence

from functions.audit_reports import read_chunk
from functions.core.audits import Findings
from functions.core.documents import notification_path
from functions.core.jobs import JobState
from functions.core.ports import Query, Snapshot
from functions.core.windows import Line, Window
from functions.services import Services

PAGE = 300
FAILED = "failed"  # the state of a notification that was given up
GONE = "gone"  # the state of one that its receiver wants no more: an end, and no gap


async def check_notifications(services: Services, window: Window, findings: Findings) -> None:
    """List the notifications of the window's ended runs that did not arrive, or do not exist.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no answer.
    """
    where = (("tenant", "==", window.tenant), ("window", "==", window.window))
    ended = sum(findings.counts[state.value] for state in JobState if state.is_terminal)
    undelivered = await _undelivered(services, where)
    _note(findings, undelivered)
    if await services.ledger.count(Query(collection="notifications", where=where)) < ended:
        for chunk in findings.chunks:
            lines = await read_chunk(services, chunk)
            absent = await _absent(services, lines)
            findings.undelivered_notifications += absent
            findings.lost_notifications += absent


def _note(findings: Findings, undelivered: Iterable[Snapshot]) -> None:
    for found in undelivered:
        if (found.data or {}).get("state") == GONE:
            continue
        findings.undelivered_notifications.append(found.id)
        if not found.exists or (found.data or {}).get("state") == FAILED:
            findings.lost_notifications.append(found.id)


async def _undelivered(
    services: Services, where: tuple[tuple[str, str, object], ...]
) -> list[Snapshot]:
    found: list[Snapshot] = []
    after = None
    while True:
        query = Query(
            collection="notifications",
            where=(*where, ("delivered", "==", False)),
            limit=PAGE,
            after=after,
        )
        page = await services.ledger.query(query)
        found += page
        if len(page) < PAGE:
            return found
        after = (None, page[-1].id)


async def _absent(services: Services, lines: Sequence[Line]) -> list[str]:
    absent: list[str] = []
    for start in range(0, len(lines), PAGE):
        some = lines[start : start + PAGE]
        paths = [notification_path(line.decision, line.run) for line in some]
        absent += [found.id for found in await services.ledger.get(*paths) if not found.exists]
    return absent


async def look_at_undelivered(services: Services, findings: Findings) -> None:
    """Look again at the notifications that had not arrived.

    Raises:
        LedgerUnavailable: no answer.
    """
    names, findings.undelivered_notifications = findings.undelivered_notifications, []
    findings.lost_notifications = []
    if names:
        found = await services.ledger.get(*(f"notifications/{name}" for name in names))
        _note(findings, (doc for doc in found if not (doc.data or {}).get("delivered", False)))
