"""Routes of the `api` target for consumers that act on a decision, once."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.core.identities import is_identity
from functions.decisions import act_once
from functions.statuses import timestamp
from functions.web import problems, queries, strict_json
from functions.web.application import Application
from functions.web.bodies import read_body, require_json
from functions.web.faults import Fault
from functions.web.routing import route

MAX_HOLDER_CHARACTERS = 255
HOLDER = re.compile(rf".{{1,{MAX_HOLDER_CHARACTERS}}}")
ACTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


async def claim_action(application: Application, request: Request) -> Response:
    """Tell whether the caller's holder is the first to act: 201 the first time, then 200."""
    caller = await application.keys.caller(request)
    queries.only(request.query_params, frozenset())
    decision, name = request.path_params["decision"], request.path_params["name"]
    if not is_identity(decision):
        raise problems.not_found("there is no such decision")
    if ACTION_NAME.fullmatch(name) is None:
        raise problems.bad_request(
            "the action's name must be 1 to 128 letters, digits, '.', '_' or '-', and begin with "
            "a letter or digit"
        )
    require_json(request)
    holder = _holder(strict_json.parse(await read_body(request)))
    action = await act_once(application.services, caller.tenant, decision, name, holder)
    if action is None:
        raise problems.not_found("there is no such decision")
    body = {
        "first": action.holder == holder,
        "holder": action.holder,
        "at": timestamp(action.at),
    }
    return JSONResponse(body, status_code=201 if action.created else 200)


def _holder(body: Any) -> str:
    if not isinstance(body, dict):
        raise problems.unprocessable([Fault(path=(), detail="must be an object")])
    for name in body.keys() - {"holder"}:
        raise problems.unprocessable([Fault(path=(name,), detail="unknown field; known: holder")])
    holder = body.get("holder")
    if isinstance(holder, str) and HOLDER.fullmatch(holder) and holder.isprintable():
        return holder
    rule = f"must be a text of 1 to {MAX_HOLDER_CHARACTERS} printable characters"
    raise problems.unprocessable([Fault(path=("holder",), detail=rule)])


ROUTES = (route("/v1/decisions/{decision}/actions/{name}", claim_action, "PUT"),)
