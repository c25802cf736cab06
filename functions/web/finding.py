"""The job that a request's path names, within the caller's tenant; answers of several routes."""

from starlette.requests import Request

from functions.acceptance import find
from functions.core.identities import is_identity
from functions.core.jobs import Job
from functions.open_seats import RETRY_AFTER_SECONDS, TooManyOpen
from functions.web import problems
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.faults import Fault


async def find_job(application: Application, request: Request) -> tuple[Caller, Job]:
    """Return the caller and the job in the path.

    Raises:
        Problem: 401; 403 for a lesser role; 404 for unknown and foreign jobs alike.
        LedgerUnavailable: no answer.
    """
    caller = await application.keys.caller(request)
    identity = request.path_params["job"]
    known = is_identity(identity)
    job = await find(application.services, caller.tenant, identity) if known else None
    if job is None:
        raise problems.not_found("there is no such job")
    return caller, job


def too_many_open(error: TooManyOpen) -> problems.Problem:
    """Return the answer to a request for more open seats than fit: now, or ever."""
    if error.never:
        return problems.unprocessable([Fault(path=("seats",), detail=error.reason)])
    return problems.rate_limited(error.reason, RETRY_AFTER_SECONDS)
