"""The page to submit a job on: its JSON in a field, checked as the API checks it.

A refused job is shown again as it was typed, with each broken rule at its pointer; nothing of it is
stored.
"""

import json
from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from functions import telemetry
from functions.estimating import estimate
from functions.services import Services
from functions.web import problems, queries
from functions.web.bodies import MAX_BODY_BYTES
from functions.web.console.pages import rendered
from functions.web.console.visits import Visit, form, page, redirect
from functions.web.submitting import accepted, submission_of

# Refusals that a person mends in the form, or asks again for.
SHOWN_IN_PLACE = (400, 413, 422, 429)


async def show_form(visit: Visit) -> Response:
    """Show the form, with an example."""
    queries.only(visit.query, frozenset())
    return _form(visit, job=_example(visit.services), key="")


async def take_form(visit: Visit) -> Response:
    """Submit the job, or only estimate it; show the job, the estimate or the broken rules."""
    job, key = visit.form.get("job", ""), visit.form.get("key", "").strip()
    try:
        if visit.form.get("action") == "estimate":
            found = await _estimate(visit, job, key)
            return _form(visit, job=job, key=key, estimate=found)
        return await _submit(visit, job, key)
    except problems.Problem as problem:
        if problem.status not in SHOWN_IN_PLACE:
            raise
        return _form(visit, job=job, key=key, problem=problem)


async def _submit(visit: Visit, job: str, key: str) -> Response:
    submission = submission_of(
        visit.services,
        visit.caller,
        _bytes(job),
        idempotency_key=key or None,
        traceparent=visit.request.headers.get("traceparent"),
    )
    telemetry.follow(submission.traceparent)
    acceptance = await accepted(visit.services, submission)
    notice = "" if acceptance.created else "?notice=known"
    return redirect(f"/jobs/{acceptance.job.id}{notice}")


async def _estimate(visit: Visit, job: str, key: str) -> dict[str, Any]:
    submission = submission_of(
        visit.services, visit.caller, _bytes(job), idempotency_key=key or None, traceparent=None
    )
    return asdict(await estimate(visit.services, submission))


def _bytes(job: str) -> bytes:
    """Return what was typed as a body.

    Raises:
        Problem: 413.
    """
    body = job.encode()
    if len(body) > MAX_BODY_BYTES:
        raise problems.too_large(MAX_BODY_BYTES)
    return body


def _form(
    visit: Visit,
    *,
    job: str,
    key: str,
    problem: problems.Problem | None = None,
    estimate: dict[str, Any] | None = None,
) -> Response:
    return rendered(
        "submit.html",
        status=problem.status if problem else 200,
        headers=problem.headers if problem else None,
        visit=visit,
        job=job,
        key=key,
        problem=problem.to_document() if problem else None,
        estimate=estimate,
        providers=sorted(visit.services.providers),
    )


def _example(services: Services) -> str:
    """Return a job to begin with; its model is for the person to choose."""
    provider = next(iter(sorted(services.providers)), "openai")
    job = {
        "facts": {"name": "Aurora 14", "weight_kg": 1.2, "price_eur": 1290},
        "rubric": {
            "instructions": "Score the laptop for frequent travellers.",
            "criteria": [{"name": "portability", "weight": 2}, {"name": "value"}],
        },
        "seats": [
            {"seat": "first", "provider": provider, "model": "MODEL"},
            {"seat": "second", "provider": provider, "model": "MODEL", "sample": 1},
        ],
    }
    return json.dumps(job, indent=2)


ROUTES = (
    page("/submit", show_form),
    form("/submit", take_form),
)
