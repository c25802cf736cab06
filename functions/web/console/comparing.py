"""The page that sets answers side by side: a column for each seat of the jobs, a row for each
score, criterion and rationale. A seat without an answer keeps its column and says why.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from functions.statuses import JobStatus, read_status
from functions.web import problems, queries
from functions.web.console.jobs import report_of
from functions.web.console.pages import rendered
from functions.web.console.visits import Visit, page
from functions.web.finding import job_of

MAX_JOBS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One seat of one job; of `answer` and `missing`, the report's words, one is None."""

    job: str
    seat: str
    answer: Mapping[str, Any] | None
    missing: Mapping[str, Any] | None


async def show_comparison(visit: Visit) -> Response:
    """Compare the jobs in `job`, all seats or those named in `seat`."""
    query = visit.request.query_params
    queries.only(dict(query), {"job", "seat"})  # each may be there more than once
    names = _given(query.getlist("job"))
    if len(names) > MAX_JOBS:
        raise problems.bad_request(f"at most {MAX_JOBS} jobs can be compared at once")
    jobs = [await job_of(visit.application, visit.caller, name) for name in names]
    statuses = [await read_status(visit.services, job) for job in jobs]
    reports = await asyncio.gather(*(report_of(visit.services, status) for status in statuses))
    wanted = _given(query.getlist("seat"))
    columns = [
        column
        for status, report in zip(statuses, reports, strict=True)
        for column in _columns(status, report)
        if not wanted or column.seat in wanted
    ]
    return rendered(
        "compare.html",
        visit=visit,
        jobs=[_job(status, report) for status, report in zip(statuses, reports, strict=True)],
        columns=columns,
        criteria=_criteria(columns),
        seats=list(dict.fromkeys(seat.seat for job in jobs for seat in job.seats)),
        wanted=wanted,
        most=MAX_JOBS,
    )


def _given(texts: list[str]) -> list[str]:
    """Return what was given, once each; fields that were left empty are none."""
    return list(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _job(status: JobStatus, report: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "id": status.job.id,
        "state": status.state.value,
        "seats": len(status.job.seats),
        "report": report,
    }


def _columns(status: JobStatus, report: Mapping[str, Any] | None) -> list[Column]:
    """Return a job's columns in the order of its seats."""
    unread = {"code": None, "reason": "the answer cannot be read at present"}
    answers = {seat["seat"]: seat for seat in report["seats"]} if report else {}
    missing = {seat["seat"]: seat for seat in report["missing"]} if report else {}
    return [
        Column(
            job=status.job.id,
            seat=seat.seat,
            answer=answers.get(seat.seat),
            missing=None if seat.seat in answers else missing.get(seat.seat, unread),
        )
        for seat in status.job.seats
    ]


def _criteria(columns: list[Column]) -> list[str]:
    """Return the criteria of all answers, in the order they come."""
    named = (column.answer["criteria"] or {} for column in columns if column.answer)
    return list(dict.fromkeys(name for criteria in named for name in criteria))


ROUTES = (page("/compare", show_comparison),)
