"""The job that a request's path names, within the caller's tenant."""

from starlette.requests import Request

from functions.acceptance import find
from functions.core.identities import is_identity
from functions.core.jobs import Job
from functions.web import problems
from functions.web.application import Application
from functions.web.authentication import Caller


async def find_job(
    application: Application, request: Request, *, role: str | None = None
) -> tuple[Caller, Job]:
    """Return the caller, who must have the `role` if one is named, and the job in the path.

    Raises:
        Problem: 401; 403 for another role; 404 for unknown and foreign jobs alike.
        LedgerUnavailable: no answer.
    """
    caller = await application.keys.caller(request, role=role)
    identity = request.path_params["job"]
    known = is_identity(identity)
    job = await find(application.services, caller.tenant, identity) if known else None
    if job is None:
        raise problems.not_found("there is no such job")
    return caller, job
