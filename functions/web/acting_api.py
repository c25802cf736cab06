"""Routes of the `api` target for consumers that act on a decision, once."""

import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.core.identities import is_identity
from functions.core.times import timestamp
from functions.decisions import act_once, is_known
from functions.web import catalog, problems, queries, strict_json
from functions.web.acting_models import HolderBody, read_small
from functions.web.application import Application
from functions.web.bodies import read_body, require_json
from functions.web.routing import route

ACTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


async def claim_action(application: Application, request: Request) -> Response:
    """Tell whether the caller's holder is the first to act: 201 the first time, then 200."""
    caller = await application.keys.caller(request)
    services = application.services
    decision, name = request.path_params["decision"], request.path_params["name"]
    if not is_identity(decision) or not await is_known(services, caller.tenant, decision):
        raise problems.not_found("there is no such decision")
    queries.only(request.query_params, frozenset())
    if ACTION_NAME.fullmatch(name) is None:
        raise problems.bad_request(
            "the action's name must be 1 to 128 letters, digits, '.', '_' or '-', and begin with "
            "a letter or digit"
        )
    require_json(request)
    holder = read_small(HolderBody, strict_json.parse(await read_body(request))).holder
    action = await act_once(services, caller.tenant, decision, name, holder)
    if action is None:
        raise problems.not_found("there is no such decision")
    body = {
        "first": action.holder == holder,
        "holder": action.holder,
        "at": timestamp(action.at),
    }
    return JSONResponse(body, status_code=201 if action.created else 200)


ROUTES = (
    route("/v1/decisions/{decision}/actions/{name}", claim_action, "PUT", catalog.CLAIM_ACTION),
)
