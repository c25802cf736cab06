"""Pages of the books: audits of every hour, one audit, incidents."""

from starlette.responses import Response

from functions.audit_reports import audit_summary, audit_view
from functions.core.access import OPERATOR
from functions.core.audits import LISTS
from functions.core.times import rfc3339
from functions.incidents import OPEN, RESOLVED
from functions.web import queries
from functions.web.console.pages import rendered
from functions.web.console.visits import Visit, form, page, redirect
from functions.web.ledger_api import (
    find_incidents,
    find_windows,
    require_incident,
    resolved,
    window_of,
)

AUDITS_ON_A_PAGE = 100
INCIDENTS_ON_A_PAGE = "50"
ANY = "all"
NO_GAPS = ("repairs", "errors")  # what was brought back, and what makes an audit incomplete
# What the entries are, in those of an audit's lists whose entries are texts.
NAMED = {
    "missing_terminal": "job_id",
    "off_window": "job_id",
    "orphan_outputs": "uri",
    "undelivered_notifications": "notification",
    "malformed": "document",
    "errors": "error",
}


async def show_audits(visit: Visit) -> Response:
    """Show the hours in which jobs were asked for, newest first."""
    query = visit.query
    found = await find_windows(visit.application, visit.caller, query, AUDITS_ON_A_PAGE + 1)
    audits = [audit_summary(window) for window in found]
    return rendered(
        "audits.html",
        visit=visit,
        audits=audits[:AUDITS_ON_A_PAGE],
        older=audits[-1]["window"] if len(audits) > AUDITS_ON_A_PAGE else None,
        filters={name: query.get(name, "") for name in ("from", "to")},
    )


async def show_audit(visit: Visit) -> Response:
    """Show the last audit of one hour."""
    queries.only(visit.query, frozenset())
    audit = audit_view(await window_of(visit.application, visit.caller, visit.request))
    shown = [name for name in LISTS if audit[name]]
    return rendered(
        "audit.html",
        visit=visit,
        audit=audit,
        lists=[
            {"name": name, "rows": [_row(name, entry) for entry in audit[name]]} for name in shown
        ],
        gaps=any(name not in NO_GAPS for name in shown),
    )


def _row(name: str, entry: object) -> dict[str, object]:
    """Return an entry of an audit's list as named cells."""
    return entry if isinstance(entry, dict) else {NAMED.get(name, "entry"): entry}


async def show_incidents(visit: Visit) -> Response:
    """Show a page of incidents, the open ones unless others are asked for."""
    query = {"status": OPEN, "limit": INCIDENTS_ON_A_PAGE} | visit.query
    asked = {name: text for name, text in query.items() if (name, text) != ("status", ANY)}
    incidents, next_cursor = await find_incidents(visit.application, visit.caller, asked)
    return rendered(
        "incidents.html",
        visit=visit,
        incidents=incidents,
        wanted=query["status"],
        statuses=(OPEN, RESOLVED, ANY),
        next_cursor=next_cursor,
        now=rfc3339(visit.services.clock.now()),
        may_resolve=visit.caller.role == OPERATOR,
    )


async def resolve_incident(visit: Visit) -> Response:
    """Mark an incident as resolved and go back to the list."""
    identity = visit.request.path_params["incident"]
    await require_incident(visit.application, visit.caller, identity)
    body = {"note": visit.form.get("note", "")}
    await resolved(visit.application, visit.caller, identity, body)
    return redirect("/incidents")


ROUTES = (
    page("/audits", show_audits),
    page("/audits/{window}", show_audit),
    page("/incidents", show_incidents),
    form("/incidents/{incident}/resolve", resolve_incident),
)
