"""Audits and incidents as tables for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType

from functions.cli import text
from functions.cli.book_answers import Audit, AuditList, AuditPass, Incident, IncidentPage
from functions.cli.tables import line, table

SHOWN_GAPS = 20


def audit_list(listed: AuditList) -> RenderableType:
    """The windows, newest first."""
    rows = (
        (
            audit.window,
            str(audit.population),
            _yes(audit.complete),
            _yes(audit.sealed),
            _counts(audit.counts),
        )
        for audit in listed.audits
    )
    header = ("window", "accepted", "complete", "sealed", "states")
    return table(header, rows) if listed.audits else line("No windows.")


def audit_view(audit: Audit) -> RenderableType:
    """One window: how many were accepted, how they ended, and what is missing."""
    whole = "complete" if audit.complete else "INCOMPLETE: not everything could be looked at"
    sealed = ", sealed" if audit.sealed else ""
    cost = "unknown" if audit.cost_usd is None else f"${audit.cost_usd:.6g}"
    lines: list[RenderableType] = [
        line(f"window {audit.window}: {audit.population} accepted", style="bold"),
        line(f"{_counts(audit.counts)}; {whole}{sealed}; audited {text.moment(audit.audited_at)}"),
        line(f"{audit.attempts} attempts, cost {cost}, {audit.purged} purged"),
    ]
    for name, items in audit.gaps():
        lines += _gap(name, items, audit.truncated.get(name, 0))
    lines += _gap("aged", audit.aged, audit.truncated.get("aged", 0))
    lines += _gap("repairs", audit.repairs, audit.truncated.get("repairs", 0))
    lines += [line(f"error: {error}") for error in audit.errors]
    if audit.in_order:
        lines.append(line("Every accepted run is accounted for."))
    return Group(*lines)


def pass_view(result: AuditPass) -> RenderableType:
    """An audit that was run now."""
    rows = (
        (w.tenant, w.window, str(w.population), str(w.gaps), _yes(w.complete), _yes(w.sealed))
        for w in result.windows
    )
    lines: list[RenderableType] = [
        table(("tenant", "window", "accepted", "gaps", "complete", "sealed"), rows),
        line(f"sealed now: {len(result.sealed)}; sampled: {len(result.sampled)}"),
    ]
    lines += [line(f"malformed: {path}") for path in result.malformed]
    errors = [*result.errors, *(error for window in result.windows for error in window.errors)]
    return Group(*lines, *(line(f"error: {error}") for error in errors))


def incident_table(page: IncidentPage) -> RenderableType:
    """A page of incidents, newest first, and how to get the next page."""
    rows = (_incident(incident) for incident in page.incidents)
    header = ("incident", "kind", "status", "job", "seat", "owner", "opened", "escalates", "detail")
    if not page.incidents:
        return line("No incidents.")
    listed = table(header, rows)
    if page.next_cursor is None:
        return listed
    return Group(listed, line(f"More: --cursor {page.next_cursor}"))


def _incident(incident: Incident) -> tuple[str, ...]:
    return (
        incident.id,
        incident.kind,
        incident.status,
        incident.job_id or text.NONE,
        incident.seat or text.NONE,
        incident.owner or text.NONE,
        text.moment(incident.opened_at),
        text.moment(incident.escalate_at),
        incident.note or incident.detail or text.NONE,
    )


def _gap(name: str, items: Sequence[Any], more: int) -> list[RenderableType]:
    if not items:
        return []
    shown = [line(f"  {_described(item)}") for item in items[:SHOWN_GAPS]]
    left = len(items) - len(shown) + more
    rest = [line(f"  and {left} more")] if left else []
    return [line(f"{name}: {len(items) + more}", style="bold"), *shown, *rest]


def _described(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {value}" for key, value in item.items() if value is not None)
    return str(item)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in counts.items() if number) or "none"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
