"""Routes of the `api` target that show a tenant's books: audits, incidents, notifications."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.audit_reports import audit_summary, audit_view, find_window, list_windows
from functions.core.access import OPERATOR
from functions.core.cursors import BadCursor
from functions.core.identities import is_identity
from functions.core.windows import Window
from functions.incidents import (
    OPEN,
    RESOLVED,
    incident_view,
    is_known,
    list_incidents,
    resolve,
    tenants_seen,
)
from functions.notification import find, notification_view, redeliver
from functions.web import catalog, problems, queries, strict_json
from functions.web.acting_models import NoteBody, read_small
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.bodies import read_body, require_json
from functions.web.routing import route

FIRST_WINDOW, LAST_WINDOW = "0000-01-01T00", "9999-12-31T23"
MAX_WINDOWS = 1000
MAX_RUN_DIGITS = 9


async def read_audits(application: Application, request: Request) -> Response:
    """Show the windows from `from` to `to`, both included, newest first."""
    caller = await application.keys.caller(request)
    windows = await find_windows(application, caller, request.query_params, MAX_WINDOWS)
    return JSONResponse({"audits": [audit_summary(window) for window in windows]})


async def find_windows(
    application: Application, caller: Caller, query: Mapping[str, str], most: int
) -> list[Window]:
    """Return the windows that a query asks for, newest first.

    Raises:
        Problem: 400 for an unknown parameter or a bad value.
        LedgerUnavailable: no answer.
    """
    queries.only(query, {"from", "to"})
    first = queries.window(query.get("from"), "from") or FIRST_WINDOW
    last = queries.window(query.get("to"), "to") or LAST_WINDOW
    if first > last:
        raise problems.bad_request("the query parameter 'from' must not be later than 'to'")
    return await list_windows(application.services, caller.tenant, first, last, most)


async def read_audit(application: Application, request: Request) -> Response:
    """Show the last audit of one window."""
    caller = await application.keys.caller(request)
    queries.only(request.query_params, frozenset())
    return JSONResponse(audit_view(await window_of(application, caller, request)))


async def window_of(application: Application, caller: Caller, request: Request) -> Window:
    """Return the window in the path.

    Raises:
        Problem: 404 when nothing was accepted in it.
        LedgerUnavailable: no answer.
    """
    name = request.path_params["window"]
    known = queries.is_window(name)
    found = await find_window(application.services, caller.tenant, name) if known else None
    if found is None:
        raise problems.not_found("nothing was accepted in this window")
    return found


async def read_incidents(application: Application, request: Request) -> Response:
    """Show a page of incidents, newest first."""
    caller = await application.keys.caller(request)
    shown, next_cursor = await find_incidents(application, caller, request.query_params)
    return JSONResponse({"incidents": shown, "next_cursor": next_cursor})


async def find_incidents(
    application: Application, caller: Caller, query: Mapping[str, str]
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the page of incidents that a query asks for, and the next page's cursor.

    Raises:
        Problem: 400 for an unknown parameter or a bad value.
        LedgerUnavailable: no answer.
    """
    queries.only(query, {"status", "limit", "cursor"})
    status = query.get("status")
    if status not in (None, OPEN, RESOLVED):
        raise problems.bad_request(f"the query parameter 'status' must be {OPEN!r} or {RESOLVED!r}")
    try:
        page, next_cursor = await list_incidents(
            application.services,
            _whose(application, caller),
            status,
            limit=queries.limit(query.get("limit")),
            cursor=query.get("cursor"),
        )
    except BadCursor as exc:
        raise problems.bad_request(f"the query parameter 'cursor' is wrong: {exc}") from exc
    return [incident_view(found) for found in page], next_cursor


async def resolve_incident(application: Application, request: Request) -> Response:
    """Mark an incident as resolved, with the operator's note."""
    caller = await application.keys.caller(request)
    identity = request.path_params["incident"]
    await require_incident(application, caller, identity)
    queries.only(request.query_params, frozenset())
    require_json(request)
    note = strict_json.parse(await read_body(request))
    return JSONResponse(await resolved(application, caller, identity, note))


async def require_incident(application: Application, caller: Caller, identity: str) -> None:
    """Refuse what names none of the incidents that a caller may see.

    Raises:
        Problem: 404.
        LedgerUnavailable: no answer.
    """
    tenants = _whose(application, caller)
    if not is_identity(identity) or not await is_known(application.services, tenants, identity):
        raise problems.not_found("there is no such incident")


async def resolved(
    application: Application, caller: Caller, identity: str, body: Any
) -> dict[str, Any]:
    """Mark an incident as resolved, with the note in a body, and return it as it is then.

    Raises:
        Problem: 422 for the note, 404 when there is no such incident.
        LedgerUnavailable: it is not certain that it is on record.
    """
    note, tenants = read_small(NoteBody, body).note, _whose(application, caller)
    found = await resolve(application.services, tenants, identity, note, caller.name)
    if found is None:
        raise problems.not_found("there is no such incident")
    return incident_view(found)


def _whose(application: Application, caller: Caller) -> tuple[str | None, ...]:
    operator = caller.role == OPERATOR
    return tenants_seen(application.services, caller.tenant, operator=operator)


async def read_notification(application: Application, request: Request) -> Response:
    """Show how far a notification is, and its last tries."""
    caller = await application.keys.caller(request)
    name = _notification_name(request)
    _, found = await find(application.services, caller.tenant, name) if name else (None, None)
    if found is None:
        raise problems.not_found("there is no such notification")
    queries.only(request.query_params, frozenset())
    return JSONResponse(notification_view(found))


async def redeliver_notification(application: Application, request: Request) -> Response:
    """Let a notification be sent again, under the same ID and with the same bytes."""
    caller = await application.keys.caller(request)
    name = _notification_name(request)
    queries.only(request.query_params, frozenset())
    services = application.services
    found = await redeliver(services, caller.tenant, name, by=caller.name) if name else None
    if found is None:
        raise problems.not_found("there is no such notification")
    return JSONResponse(notification_view(found), status_code=202)


def _notification_name(request: Request) -> str | None:
    """Return the notification's name in the path, None when none can be named so."""
    name = str(request.path_params["notification"])
    decision, _, run = name.partition(".")
    known = is_identity(decision) and run.isascii() and run.isdigit()
    return name if known and len(run) <= MAX_RUN_DIGITS else None


ROUTES = (
    route("/v1/audits", read_audits, "GET", catalog.LIST_AUDITS),
    route("/v1/audits/{window}", read_audit, "GET", catalog.READ_AUDIT),
    route("/v1/incidents", read_incidents, "GET", catalog.LIST_INCIDENTS),
    route("/v1/incidents/{incident}/resolve", resolve_incident, "POST", catalog.RESOLVE),
    route("/v1/notifications/{notification}", read_notification, "GET", catalog.READ_NOTIFICATION),
    route(
        "/v1/notifications/{notification}/redeliver",
        redeliver_notification,
        "POST",
        catalog.REDELIVER,
    ),
)
