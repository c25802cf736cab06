"""One door for every target: match the route, run its endpoint, turn errors into problems."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from functions import telemetry
from functions.core.errors import (
    CallersUnknown,
    LedgerError,
    ObjectError,
    PublishFailed,
    UnknownVersion,
    UnreadableRecord,
)
from functions.incidents import Books, open_unreadable
from functions.tracing import name_request
from functions.web import problems
from functions.web.operations import Operation

Endpoint = Callable[[Any, Request], Awaitable[Response]]
_PATH = "empanel.path"
UNREADABLE_AGAIN_SECONDS = 60.0  # a release is rolled out, or back, in minutes


class ApiRoute(Route):
    """A route for one method, and what it promises; without a promise it is not published."""

    def __init__(
        self, path: str, endpoint: Endpoint, method: str, operation: Operation | None
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.operation = operation


def route(
    path: str, endpoint: Endpoint, method: str, operation: Operation | None = None
) -> ApiRoute:
    """Return a route to an endpoint that takes the application and the request."""
    return ApiRoute(path, endpoint, method, operation)


async def respond(application: Any, routes: Sequence[Route], request: Request) -> Response:
    """Answer a request from the first route that matches; every error becomes a problem."""
    telemetry.begin(request.headers)
    try:
        endpoint, matched = _match(routes, request)
        name_request(request.method, matched_path(matched))
        return await endpoint(application, matched)
    except Exception as exc:  # noqa: BLE001 - the last door: logged with its stack, never shown
        return (await refusal(application, exc, request)).to_response()


async def refusal(application: Any, error: Exception, request: Request) -> problems.Problem:
    """Return what a caller is told of an error; an operator is told of unreadable records."""
    if isinstance(error, UnreadableRecord):
        await record_unreadable(application.services, error)
    return problem_of(error, request)


async def record_unreadable(services: Books, error: UnreadableRecord) -> None:
    """Have an operator told of a record that cannot be read; what fails is logged."""
    try:
        await open_unreadable(services, error, str(error))
    except LedgerError as exc:
        telemetry.error("unreadable record not recorded", exc=exc)  # whoever reads next tries again


def problem_of(error: Exception, request: Request) -> problems.Problem:
    """Return what a caller is told of an error; what is no refusal is logged."""
    path = request.url.path
    match error:
        case problems.Problem():
            return error
        case ClientDisconnect():
            return problems.bad_request("the request's body ended too early")
        case CallersUnknown() | LedgerError() | ObjectError() | PublishFailed():
            telemetry.error("not available", exc=error, path=path)
            return problems.unavailable("a part of the service gives no answer; ask again")
        case UnreadableRecord():
            telemetry.error("unreadable record", exc=error, path=path)
            return problems.unavailable(_unreadable(error), UNREADABLE_AGAIN_SECONDS)
        case _:
            telemetry.error("unexpected error", exc=error, path=path)
            return problems.internal_error()


def _unreadable(error: UnreadableRecord) -> str:
    what = "a stored record cannot be read"
    if isinstance(error, UnknownVersion):
        what += f": it is of schema version {error.version}, unknown to this release"
    return f"{what}; an operator is told by an incident"


def _match(routes: Sequence[Route], request: Request) -> tuple[Endpoint, Request]:
    allowed: set[str] = set()
    for candidate in routes:
        match, child = candidate.matches(request.scope)
        if match is Match.FULL:
            scope = {**request.scope, **child, _PATH: candidate.path}
            endpoint: Endpoint = candidate.endpoint
            return endpoint, Request(scope, request.receive)
        if match is Match.PARTIAL:
            allowed |= candidate.methods or set()
    if allowed:
        raise problems.method_not_allowed(request.method, allowed)
    raise problems.not_found("there is nothing at this path")


def matched_path(request: Request) -> str:
    """Return the path of the route that a request was matched to, with its parameters' names."""
    return str(request.scope[_PATH])


async def health(_: Any, __: Request) -> Response:
    """Answer that the process serves requests; it asks nothing else."""
    return JSONResponse({"status": "ok"})
