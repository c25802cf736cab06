"""Routes of the `api` target that show a tenant's books: audits, incidents, notifications."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.audit_reports import audit_summary, audit_view, find_window, list_windows
from functions.core.access import OPERATOR
from functions.core.cursors import BadCursor
from functions.core.identities import is_identity
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
    query = request.query_params
    queries.only(query, {"from", "to"})
    first = queries.window(query.get("from"), "from") or FIRST_WINDOW
    last = queries.window(query.get("to"), "to") or LAST_WINDOW
    if first > last:
        raise problems.bad_request("the query parameter 'from' must not be later than 'to'")
    windows = await list_windows(application.services, caller.tenant, first, last, MAX_WINDOWS)
    return JSONResponse({"audits": [audit_summary(window) for window in windows]})


async def read_audit(application: Application, request: Request) -> Response:
    """Show the last audit of one window."""
    caller = await application.keys.caller(request)
    queries.only(request.query_params, frozenset())
    name = request.path_params["window"]
    known = queries.is_window(name)
    found = await find_window(application.services, caller.tenant, name) if known else None
    if found is None:
        raise problems.not_found("nothing was accepted in this window")
    return JSONResponse(audit_view(found))


async def read_incidents(application: Application, request: Request) -> Response:
    """Show a page of incidents, newest first."""
    caller = await application.keys.caller(request)
    query = request.query_params
    queries.only(query, {"status", "limit", "cursor"})
    status = query.get("status")
    if status not in (None, OPEN, RESOLVED):
        raise problems.bad_request(f"the query parameter 'status' must be {OPEN!r} or {RESOLVED!r}")
    try:
        page, next_cursor = await list_incidents(
            application.services,
            _tenants_seen(application, caller),
            status,
            limit=queries.limit(query.get("limit")),
            cursor=query.get("cursor"),
        )
    except BadCursor as exc:
        raise problems.bad_request(f"the query parameter 'cursor' is wrong: {exc}") from exc
    shown = [incident_view(found) for found in page]
    return JSONResponse({"incidents": shown, "next_cursor": next_cursor})


async def resolve_incident(application: Application, request: Request) -> Response:
    """Mark an incident as resolved, with the operator's note."""
    services, caller = application.services, await application.keys.caller(request)
    identity, tenants = request.path_params["incident"], _tenants_seen(application, caller)
    if not is_identity(identity) or not await is_known(services, tenants, identity):
        raise problems.not_found("there is no such incident")
    queries.only(request.query_params, frozenset())
    require_json(request)
    note = read_small(NoteBody, strict_json.parse(await read_body(request))).note
    found = await resolve(services, tenants, identity, note, caller.name)
    if found is None:
        raise problems.not_found("there is no such incident")
    return JSONResponse(incident_view(found))


def _tenants_seen(application: Application, caller: Caller) -> tuple[str | None, ...]:
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
