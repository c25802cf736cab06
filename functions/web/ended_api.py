"""Routes of the `api` target for jobs that have ended: run them again, or purge them."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.core.jobs import Job
from functions.open_seats import TooManyOpen
from functions.purging import NotPurgeable, purge
from functions.replays import NotReplayable, ReplayGone, replay
from functions.statuses import job_view, read_status
from functions.tenant_days import DaySpent
from functions.web import catalog, problems, queries
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.finding import find_job, too_many_open
from functions.web.routing import route

RETRY_AFTER_SECONDS = 1


async def replay_job(application: Application, request: Request) -> Response:
    """Begin the next run of a job, for its seats without a success."""
    caller, job = await find_job(application, request)
    queries.only(request.query_params, frozenset())
    begun = await replayed(application, job, caller)
    status = await read_status(application.services, begun)
    headers = {"Location": f"/v1/jobs/{job.id}", "Retry-After": str(RETRY_AFTER_SECONDS)}
    return JSONResponse(job_view(status), status_code=202, headers=headers)


async def replayed(application: Application, job: Job, caller: Caller) -> Job:
    """Replay a job.

    Raises:
        Problem: 409 while it is open or complete, 410 when something that is needed is gone, 429
            when the tenant has no room.
    """
    services = application.services
    try:
        return await replay(services, job, by=caller.name)
    except NotReplayable as exc:
        raise problems.conflict(str(exc)) from exc
    except ReplayGone as exc:
        raise problems.gone(str(exc)) from exc
    except DaySpent as exc:
        services.metrics.budget_refused("tenant_day")
        left = (exc.until - services.clock.now()).total_seconds()
        raise problems.rate_limited(exc.reason, left) from exc
    except TooManyOpen as exc:
        services.metrics.budget_refused("open_seats")
        raise too_many_open(exc) from exc


async def purge_job(application: Application, request: Request) -> Response:
    """Delete inputs and outputs of a job that has ended; its digests and records stay."""
    caller, job = await find_job(application, request)
    queries.only(request.query_params, frozenset())
    try:
        purged = await purge(application.services, job, by=caller.name)
    except NotPurgeable as exc:
        raise problems.conflict(str(exc)) from exc
    status = await read_status(application.services, purged)
    return JSONResponse(job_view(status), status_code=202)


ROUTES = (
    route("/v1/jobs/{job}/replay", replay_job, "POST", catalog.REPLAY),
    route("/v1/jobs/{job}", purge_job, "DELETE", catalog.PURGE),
)
