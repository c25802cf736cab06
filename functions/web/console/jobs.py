"""Pages of jobs: the list, one job with its seats, attempts and report, and what can be done."""

import asyncio
from typing import Any

from starlette.responses import Response

from functions import telemetry
from functions.cancellation import cancel
from functions.core.errors import ObjectsUnavailable, UnreadableRecord
from functions.core.jobs import Job, JobState, SeatState
from functions.reports import build_report
from functions.services import Services
from functions.statuses import JobStatus, attempts_view, job_view, read_status
from functions.web import queries
from functions.web.console.pages import rendered
from functions.web.console.visits import Visit, form, page, redirect
from functions.web.ended_api import replayed
from functions.web.finding import LIST_PARAMETERS, find_jobs, job_of
from functions.web.polling import poll_seconds
from functions.web.routing import record_unreadable

JOBS_ON_A_PAGE = "25"
READS_AT_ONCE = 8
NOTICES = {"known": "This job was accepted before; nothing new was asked."}


async def show_jobs(visit: Visit) -> Response:
    """Show a page of jobs, each as it is now: its head alone would be behind."""
    query = visit.query
    found = await find_jobs(visit.application, visit.caller, {"limit": JOBS_ON_A_PAGE} | query)
    statuses, damaged = await _read_all(visit.services, found.jobs)
    return rendered(
        "jobs.html",
        visit=visit,
        jobs=[job_view(status) | {"ended": _ended(status)} for status in statuses],
        states=[state.value for state in JobState],
        filters={name: query.get(name, "") for name in sorted(LIST_PARAMETERS - {"cursor"})},
        filtered=bool(query.keys() - {"limit", "cursor"}),
        later="cursor" in query,
        next_cursor=found.next_cursor,
        unreadable=[*found.unreadable, *damaged],
    )


async def show_job(visit: Visit) -> Response:
    """Show everything about a job."""
    job = await job_of(visit.application, visit.caller, visit.request.path_params["job"])
    queries.only(visit.query, {"notice"})
    status = await read_status(visit.services, job)
    report = await report_of(visit.services, status)
    return rendered(
        "job.html",
        visit=visit,
        job=job_view(status),
        attempts=attempts_view(status)["attempts"],
        report=report,
        answers={seat["seat"]: seat for seat in report["seats"]} if report else {},
        ended=_ended(status),
        can_replay=_can_replay(status),
        poll_seconds=poll_seconds(status),
        notice=NOTICES.get(visit.query.get("notice", "")),
    )


async def report_of(services: Services, status: JobStatus) -> dict[str, Any] | None:
    """Return a job's report, complete or not; None when the bucket gives no answer.

    Raises:
        LedgerUnavailable: no answer.
    """
    try:
        return await build_report(services, status)
    except ObjectsUnavailable as exc:
        telemetry.warning("a page without its report", job=status.job.id, error=str(exc)[:300])
        return None


async def cancel_job(visit: Visit) -> Response:
    """Stop the job and show it."""
    job = await job_of(visit.application, visit.caller, visit.request.path_params["job"])
    await cancel(visit.services, job, by=visit.caller.name)
    return redirect(f"/jobs/{job.id}")


async def replay_job(visit: Visit) -> Response:
    """Begin the job's next run and show it."""
    job = await job_of(visit.application, visit.caller, visit.request.path_params["job"])
    await replayed(visit.application, job, visit.caller)
    return redirect(f"/jobs/{job.id}")


async def _read_all(services: Services, jobs: tuple[Job, ...]) -> tuple[list[JobStatus], list[str]]:
    """Return how the jobs stand, and the IDs of those that have a record which cannot be read."""
    limit = asyncio.Semaphore(READS_AT_ONCE)

    async def read(job: Job) -> JobStatus | str:
        async with limit:
            try:
                return await read_status(services, job)
            except UnreadableRecord as exc:
                await record_unreadable(services, exc)
                return job.id

    found = await asyncio.gather(*map(read, jobs))
    statuses = [each for each in found if isinstance(each, JobStatus)]
    return statuses, [each for each in found if isinstance(each, str)]


def _ended(status: JobStatus) -> int:
    """Return how many seats of the run have ended."""
    open_states = (SeatState.QUEUED, SeatState.RUNNING, SeatState.WAITING)
    return sum(status.seat_state(i) not in open_states for i in range(len(status.job.seats)))


def _can_replay(status: JobStatus) -> bool:
    """Whether a replay has something to do; what else may stand against it is said when asked."""
    states = [status.seat_state(index) for index in range(len(status.job.seats))]
    answered = all(state is SeatState.SUCCEEDED for state in states)
    return status.job.state.is_terminal and not answered and status.job.purged_at is None


ROUTES = (
    page("/", show_jobs),
    page("/jobs/{job}", show_job),
    form("/jobs/{job}/cancel", cancel_job),
    form("/jobs/{job}/replay", replay_job),
)
