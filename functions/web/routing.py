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
    UnreadableRecord,
)
from functions.web import problems
from functions.web.operations import Operation

Endpoint = Callable[[Any, Request], Awaitable[Response]]
_PATH = "empanel.path"


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
        return await endpoint(application, matched)
    except problems.Problem as problem:
        return problem.to_response()
    except ClientDisconnect:
        return problems.bad_request("the request's body ended too early").to_response()
    except (CallersUnknown, LedgerError, ObjectError, PublishFailed) as exc:
        telemetry.error("not available", exc=exc, path=request.url.path)
        return problems.unavailable(
            "a part of the service gives no answer; ask again"
        ).to_response()
    except UnreadableRecord as exc:
        telemetry.error("unreadable record", exc=exc, path=request.url.path)
        return problems.unavailable("a stored record cannot be read").to_response()
    except Exception as exc:  # noqa: BLE001 - the last door: logged with its stack, never shown
        telemetry.error("unexpected error", exc=exc, path=request.url.path)
        return problems.internal_error().to_response()


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
