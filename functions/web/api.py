"""The `api` target: submit, read and list jobs. Everything stays inside the caller's tenant."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions import telemetry
from functions.cancellation import cancel
from functions.core.jobs import Job
from functions.core.submissions import Submission
from functions.core.times import timestamp
from functions.estimating import estimate
from functions.reports import build_report
from functions.services import Services
from functions.statuses import (
    JobStatus,
    attempts_view,
    job_summary,
    job_view,
    read_status,
)
from functions.web import (
    acting_api,
    batch_api,
    catalog,
    cors,
    ended_api,
    events_api,
    ledger_api,
    problems,
    queries,
)
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.bodies import read_body, require_json
from functions.web.conditional import unless_known
from functions.web.console.routes import PAGE_ROUTES
from functions.web.finding import find_job, find_jobs
from functions.web.headers import harden
from functions.web.polling import POLL_SECONDS, retry_after
from functions.web.public_api import with_document
from functions.web.routing import respond, route
from functions.web.submitting import accepted, status_after, submission_of
from functions.web.traced import in_request_span
from functions.web.waiting import preferred_wait_seconds, wait_for_end


async def submit(application: Application, request: Request) -> Response:
    """Accept a job, or return the one that has its identity: 202 when new and open, else 200.

    With `Prefer: wait` the answer waits for the job's end, up to that many seconds.
    """
    services, caller = application.services, await application.keys.caller(request)
    submission = await _submission(services, caller, request)
    telemetry.follow(submission.traceparent)
    acceptance = await accepted(services, submission)
    wait_seconds = preferred_wait_seconds(request)
    job = await wait_for_end(application, acceptance.job, wait_seconds)
    if wait_seconds:
        status = await read_status(services, job)
    else:
        status = await status_after(services, acceptance)
    ended = status.job.state.is_terminal
    applied = {"Preference-Applied": f"wait={wait_seconds}"} if wait_seconds else {}
    return JSONResponse(
        job_view(status),
        status_code=202 if acceptance.created and not ended else 200,
        headers={
            "Location": f"/v1/jobs/{job.id}",
            "Retry-After": str(POLL_SECONDS),
            **applied,
        },
    )


async def show_estimate(application: Application, request: Request) -> Response:
    """Tell what a job would need now, without accepting anything."""
    services, caller = application.services, await application.keys.caller(request)
    found = await estimate(services, await _submission(services, caller, request))
    return JSONResponse(asdict(found))


async def _submission(services: Services, caller: Caller, request: Request) -> Submission:
    """Return the job that a request's body and headers ask for.

    Raises:
        Problem: the request is no JSON, or breaks a rule.
    """
    queries.only(request.query_params, frozenset())
    require_json(request)
    return submission_of(
        services,
        caller,
        await read_body(request),
        idempotency_key=request.headers.get("idempotency-key"),
        traceparent=request.headers.get("traceparent"),
    )


async def read_job(application: Application, request: Request) -> Response:
    """Show a job as it is now."""
    status = await _status(application, request)
    shown = JSONResponse(job_view(status), headers=retry_after(status))
    return unless_known(request, shown)


async def read_report(application: Application, request: Request) -> Response:
    """Show the complete report, or with `partial=true` what there is; else 409 with the missing."""
    job = await _job(application, request)
    queries.only(request.query_params, {"partial"})
    partial = queries.flag(request.query_params, "partial")
    if job.purged_at is not None:
        raise problems.gone(f"the job's answers were purged at {timestamp(job.purged_at)}")
    status = await read_status(application.services, job)
    report = await build_report(application.services, status)
    if report["complete"] or partial:
        return unless_known(request, JSONResponse(report))
    raise problems.conflict(
        f"{len(report['missing'])} of {len(job.seats)} seats have no answer; "
        "ask with ?partial=true for those that have",
        {"missing": report["missing"]},
    )


async def read_attempts(application: Application, request: Request) -> Response:
    """Show every provider request of a job."""
    return JSONResponse(attempts_view(await _status(application, request)))


async def cancel_job(application: Application, request: Request) -> Response:
    """Stop a job; its earlier end, if it has one, stays and is shown."""
    caller, job = await find_job(application, request)
    queries.only(request.query_params, frozenset())
    canceled = await cancel(application.services, job, by=caller.name)
    return JSONResponse(job_view(await read_status(application.services, canceled)))


async def read_jobs(application: Application, request: Request) -> Response:
    """Show a page of the tenant's jobs, newest first."""
    caller = await application.keys.caller(request)
    page = await find_jobs(application, caller, request.query_params)
    jobs = [job_summary(job) for job in page.jobs]
    return JSONResponse(
        {"jobs": jobs, "unreadable": list(page.unreadable), "next_cursor": page.next_cursor}
    )


async def _job(application: Application, request: Request) -> Job:
    """Return the job in the path.

    Raises:
        Problem: 401; 404 for unknown and foreign jobs alike.
    """
    _, job = await find_job(application, request)
    return job


async def _status(application: Application, request: Request) -> JobStatus:
    job = await _job(application, request)
    queries.only(request.query_params, frozenset())
    return await read_status(application.services, job)


ROUTES = (
    route("/v1/jobs", submit, "POST", catalog.SUBMIT),
    route("/v1/jobs", read_jobs, "GET", catalog.LIST_JOBS),
    route("/v1/jobs/{job}", read_job, "GET", catalog.READ_JOB),
    route("/v1/jobs/{job}/report", read_report, "GET", catalog.READ_REPORT),
    route("/v1/jobs/{job}/attempts", read_attempts, "GET", catalog.READ_ATTEMPTS),
    route("/v1/jobs/{job}/cancel", cancel_job, "POST", catalog.CANCEL),
    route("/v1/estimate", show_estimate, "POST", catalog.ESTIMATE),
)


API_ROUTES = with_document(
    (
        *ROUTES,
        *batch_api.ROUTES,
        *acting_api.ROUTES,
        *ended_api.ROUTES,
        *events_api.ROUTES,
        *ledger_api.ROUTES,
    )
)
SERVED_ROUTES = (*API_ROUTES, *PAGE_ROUTES)


async def answer_api(application: Application, request: Request) -> Response:
    """Answer any request to the `api` target."""
    origins = application.services.settings.cors_origins
    response = cors.preflight(request, origins)
    if response is None:
        answering = respond(application, SERVED_ROUTES, request)
        response = await in_request_span(application.services.tracing, request, answering)
    return harden(request, cors.opened(request, response, origins))
