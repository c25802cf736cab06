"""The `api` target: submit, read and list jobs. Everything stays inside the caller's tenant."""

from collections.abc import Mapping
from datetime import datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions import telemetry
from functions.acceptance import IdempotencyConflict, accept, find
from functions.cancellation import cancel
from functions.core.identities import is_identity, window_of
from functions.core.jobs import Job, JobState
from functions.listing import BadCursor, JobFilter, list_jobs
from functions.reports import build_report
from functions.services import Services
from functions.statuses import (
    JobStatus,
    attempts_view,
    job_summary,
    job_view,
    read_status,
)
from functions.web import problems, strict_json
from functions.web.application import Application
from functions.web.bodies import read_body, require_json
from functions.web.requests import read_submission
from functions.web.routing import health, respond, route

POLL_SECONDS = 1
DEFAULT_LIMIT, MAX_LIMIT = 50, 200
LIST_PARAMETERS = frozenset({"state", "window", "owner", "label", "limit", "cursor"})


async def submit(application: Application, request: Request) -> Response:
    """Accept a job, or return the one that has its identity: 202 when new, else 200."""
    services, caller = application.services, await application.keys.caller(request)
    _only(request.query_params, frozenset())
    require_json(request)
    value = strict_json.parse(await read_body(request))
    submission = read_submission(
        value,
        tenant=caller.tenant,
        default_owner=caller.tenant,
        endpoints={name: provider.endpoint for name, provider in services.providers.items()},
        idempotency_key=request.headers.get("idempotency-key"),
        traceparent=request.headers.get("traceparent"),
    )
    telemetry.follow(submission.traceparent)
    try:
        acceptance = await accept(services, submission)
    except IdempotencyConflict as exc:
        raise problems.key_conflict(
            "this Idempotency-Key was used with another body: the digest of the request differs "
            f"from that of {exc.job.id}"
        ) from exc
    if acceptance.created:
        status = _fresh(services, acceptance.job)
    else:
        status = await read_status(services, acceptance.job)
    return JSONResponse(
        job_view(status),
        status_code=202 if acceptance.created else 200,
        headers={"Location": f"/v1/jobs/{acceptance.job.id}", "Retry-After": str(POLL_SECONDS)},
    )


def _fresh(services: Services, job: Job) -> JobStatus:
    """Return the status of a job that was recorded a moment ago: nothing has happened to it."""
    now = services.clock.now()
    return JobStatus(job=job, terminal=None, records=(), evaluations={}, now=now)


async def read_job(application: Application, request: Request) -> Response:
    """Show a job as it is now."""
    status = await _status(application, request)
    headers = {} if status.job.state.is_terminal else {"Retry-After": str(POLL_SECONDS)}
    return JSONResponse(job_view(status), headers=headers)


async def read_report(application: Application, request: Request) -> Response:
    """Show the complete report, or with `partial=true` what there is; else 409 with the missing."""
    job = await _job(application, request)
    _only(request.query_params, {"partial"})
    partial = _flag(request.query_params, "partial")
    status = await read_status(application.services, job)
    report = await build_report(application.services, status)
    if report["complete"] or partial:
        return JSONResponse(report)
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
    job = await _job(application, request)
    _only(request.query_params, frozenset())
    canceled = await cancel(application.services, job)
    return JSONResponse(job_view(await read_status(application.services, canceled)))


async def read_jobs(application: Application, request: Request) -> Response:
    """Show a page of the tenant's jobs, newest first."""
    caller = await application.keys.caller(request)
    query = request.query_params
    _only(query, LIST_PARAMETERS)
    wanted = JobFilter(
        state=_state(query.get("state")),
        window=_window(query.get("window")),
        owner=query.get("owner"),
        label=_label(query.get("label")),
    )
    try:
        page = await list_jobs(
            application.services,
            caller.tenant,
            wanted,
            limit=_limit(query.get("limit")),
            cursor=query.get("cursor"),
        )
    except BadCursor as exc:
        raise problems.bad_request(f"the query parameter 'cursor' is wrong: {exc}") from exc
    jobs = [job_summary(job) for job in page.jobs]
    return JSONResponse({"jobs": jobs, "next_cursor": page.next_cursor})


async def _job(application: Application, request: Request) -> Job:
    """Return the job in the path.

    Raises:
        Problem: 401; 404 for unknown and foreign jobs alike.
    """
    caller = await application.keys.caller(request)
    identity = request.path_params["job"]
    known = is_identity(identity)
    job = await find(application.services, caller.tenant, identity) if known else None
    if job is None:
        raise problems.not_found("there is no such job")
    return job


async def _status(application: Application, request: Request) -> JobStatus:
    job = await _job(application, request)
    _only(request.query_params, frozenset())
    return await read_status(application.services, job)


def _only(query: Mapping[str, str], known: frozenset[str] | set[str]) -> None:
    for name in query:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise problems.bad_request(f"the query parameter {name!r} is unknown; known: {names}")


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise problems.bad_request(f"the query parameter {name!r} must be 'true' or 'false'")
    return text == "true"


def _state(text: str | None) -> str | None:
    if text is not None and text not in set(JobState):
        states = ", ".join(JobState)
        raise problems.bad_request(f"the query parameter 'state' must be one of {states}")
    return text


def _window(text: str | None) -> str | None:
    try:
        known = text is None or window_of(datetime.fromisoformat(f"{text}:00+00:00")) == text
    except ValueError:
        known = False
    if not known:
        raise problems.bad_request("the query parameter 'window' must be an hour: 2026-11-29T12")
    return text


def _label(text: str | None) -> str | None:
    if text is not None and not text.partition(":")[1]:
        raise problems.bad_request("the query parameter 'label' must be 'key:value'")
    return text


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_LIMIT):
        raise problems.bad_request(
            f"the query parameter 'limit' must be a whole number from 1 to {MAX_LIMIT}"
        )
    return int(text)


ROUTES = (
    route("/v1/jobs", submit, "POST"),
    route("/v1/jobs", read_jobs, "GET"),
    route("/v1/jobs/{job}", read_job, "GET"),
    route("/v1/jobs/{job}/report", read_report, "GET"),
    route("/v1/jobs/{job}/attempts", read_attempts, "GET"),
    route("/v1/jobs/{job}/cancel", cancel_job, "POST"),
    route("/health", health, "GET"),
)


async def answer_api(application: Application, request: Request) -> Response:
    """Answer any request to the `api` target."""
    return await respond(application, ROUTES, request)
