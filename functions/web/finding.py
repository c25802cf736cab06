"""What a request names within the caller's tenant: a job, or a page of them. For several routes."""

import asyncio
from collections.abc import Mapping

from starlette.requests import Request

from functions.acceptance import find
from functions.core.cursors import BadCursor
from functions.core.identities import is_identity
from functions.core.jobs import Job
from functions.listing import JobFilter, Page, list_jobs
from functions.open_seats import RETRY_AFTER_SECONDS, TooManyOpen
from functions.web import problems, queries
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.faults import Fault
from functions.web.routing import record_unreadable

LIST_PARAMETERS = frozenset({"state", "window", "owner", "label", "limit", "cursor"})


async def find_job(application: Application, request: Request) -> tuple[Caller, Job]:
    """Return the caller and the job in the path.

    Raises:
        Problem: 401; 403 for a lesser role; 404 for unknown and foreign jobs alike.
        LedgerUnavailable: no answer.
    """
    caller = await application.keys.caller(request)
    return caller, await job_of(application, caller, request.path_params["job"])


async def job_of(application: Application, caller: Caller, identity: str) -> Job:
    """Return the caller's job of this name.

    Raises:
        Problem: 404 for unknown and foreign jobs alike.
        LedgerUnavailable: no answer.
    """
    known = is_identity(identity)
    job = await find(application.services, caller.tenant, identity) if known else None
    if job is None:
        raise problems.not_found("there is no such job")
    return job


async def find_jobs(application: Application, caller: Caller, query: Mapping[str, str]) -> Page:
    """Return the page of the caller's jobs that a query asks for, newest first.

    An operator is told of those that cannot be read.

    Raises:
        Problem: 400 for an unknown parameter or a bad value.
        LedgerUnavailable: no answer.
    """
    queries.only(query, LIST_PARAMETERS)
    wanted = JobFilter(
        state=queries.state(query.get("state")),
        window=queries.window(query.get("window")),
        owner=queries.owner(query.get("owner")),
        label=queries.label(query.get("label")),
    )
    limit, cursor = queries.limit(query.get("limit")), query.get("cursor")
    try:
        page = await list_jobs(
            application.services, caller.tenant, wanted, limit=limit, cursor=cursor
        )
    except BadCursor as exc:
        raise problems.bad_request(f"the query parameter 'cursor' is wrong: {exc}") from exc
    told = (record_unreadable(application.services, error) for error in page.unreadable.values())
    await asyncio.gather(*told)
    return page


def too_many_open(error: TooManyOpen) -> problems.Problem:
    """Return the answer to a request for more open seats than fit: now, or ever."""
    if error.never:
        return problems.unprocessable([Fault(path=("seats",), detail=error.reason)])
    return problems.rate_limited(error.reason, RETRY_AFTER_SECONDS)
