"""What the framework refuses by itself, as problems: methods it does not know, its own paths."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from functions.web import problems
from functions.web.headers import harden


def speak_problems(app: Starlette) -> Starlette:
    """Let the framework's application refuse as ours does."""
    app.add_exception_handler(HTTPException, _refused)
    return app


async def _refused(request: Request, refusal: Exception) -> Response:
    return harden(request, _problem(request, refusal).to_response())


def _problem(request: Request, refusal: Exception) -> problems.Problem:
    if not isinstance(refusal, HTTPException):
        return problems.internal_error()
    if refusal.status_code == 405:
        allowed = (refusal.headers or {}).get("Allow", "")
        return problems.method_not_allowed(
            request.method, [name.strip() for name in allowed.split(",")]
        )
    if refusal.status_code == 404:
        return problems.not_found("there is nothing at this path")
    return problems.internal_error()
