"""The command line's answer models against the API itself, so that the two cannot drift apart."""

import json
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel
from rich.console import Console

from functions.audit import audit
from functions.cli import answers, book_answers
from functions.cli.book_tables import audit_list, audit_view, incident_table
from functions.cli.client import Api
from functions.cli.exits import Refused
from functions.cli.tables import attempt_table, job_table, job_view, report_view
from functions.incidents import open_incident
from functions.statuses import job_summary
from functions.web import book_models, response_models
from tests.faults.fakes import failure
from tests.faults.world import TENANT, World, submission
from tests.unit.web.door import Door

PAIRS: list[tuple[type[BaseModel], type[BaseModel]]] = [
    (answers.Job, response_models.JobShown),
    (answers.JobPage, response_models.JobPage),
    (answers.Report, response_models.ReportShown),
    (answers.AttemptList, response_models.AttemptList),
    (answers.Problem, response_models.ReportProblem),
    (book_answers.AuditList, book_models.AuditList),
    (book_answers.Audit, book_models.AuditShown),
    (book_answers.IncidentPage, book_models.IncidentPage),
]


class Through(httpx.AsyncBaseTransport):
    """Carries the command line's requests to an API in this process."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request; the door holds the answer to the published document."""
        answer = await self._door.call(
            request.method,
            request.url.raw_path.decode(),
            content=await request.aread(),
            headers=dict(request.headers),
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def client(world: World) -> Api:
    """The command line's client of a world's API."""
    return Api(httpx.AsyncClient(base_url="http://api", transport=Through(Door(world))))


async def ended(world: World, *, fails: bool = False) -> str:
    """The ID of a job of two seats that has ended; with `fails` neither has an answer."""
    if fails:
        world.provider.script = lambda request, number: failure("invalid_request", http_status=400)
    job = await world.submit(submission(["m0", "m1"]))
    await world.finish()
    return job.id


def shown(view: Any) -> list[list[str]]:
    """What a person sees, as the words of each line."""
    console = Console(width=400, highlight=False)
    with console.capture() as captured:
        console.print(view)
    return [line.split() for line in captured.get().splitlines()]


async def test_the_list_of_jobs_is_read_and_shown() -> None:
    """A job that is on record is a row: the list of a used API is no failure."""
    world = World()
    job = await ended(world)
    page = (await client(world).jobs()).value
    assert [(each.id, each.state, len(each.seats)) for each in page.jobs] == [(job, "succeeded", 2)]
    assert [job, "succeeded", "1", "2"] in [row[:4] for row in shown(job_table(page))]


async def test_a_job_as_lists_show_it_is_read() -> None:
    """Every seat says whom it asks, as `job_summary` has it."""
    world = World()
    name = await ended(world)
    job = world.jobs()[name]
    read = answers.ListedJob.model_validate_json(json.dumps(job_summary(job)))
    assert [(s.provider, s.model) for s in read.seats] == [("fake", "m0"), ("fake", "m1")]
    assert (read.owner, read.submitted_at) == (job.owner, job.submitted_at)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_job_its_attempts_and_its_report_are_read(fails: bool) -> None:
    """Also of a job without answers, whose seats have errors and whose report has `missing`."""
    world = World()
    api, job = client(world), await ended(world, fails=fails)
    read = (await api.job(job)).value
    assert [seat.error.code if seat.error else None for seat in read.seats] == (
        ["invalid_request"] * 2 if fails else [None] * 2
    )
    listed = (await api.attempts(job)).value
    assert [attempt.http_status for attempt in listed.attempts] == [400 if fails else 200] * 2
    report = (await api.report(job, partial=True)).value
    assert (len(report.seats), len(report.missing)) == ((0, 2) if fails else (2, 0))
    views = (job_view(read), attempt_table(listed.attempts), report_view(report))
    assert all(shown(view) for view in views)


async def test_the_refusal_of_an_incomplete_report_is_read() -> None:
    """It names the seats that are missing."""
    world = World()
    job = await ended(world, fails=True)
    with pytest.raises(Refused) as caught:
        await client(world).report(job)
    missing = caught.value.problem.missing or ()
    assert [seat.code for seat in missing] == ["invalid_request"] * 2


async def test_actions_and_a_batch_are_read() -> None:
    """Submitting, cancelling, replaying, and both kinds of lines of a batch."""
    world = World()
    api, body = client(world), submission(["m0"]).body
    text = json.dumps({**body, "policy": {}}).encode()
    job = (await api.submit(text)).value.id
    assert (await api.cancel(job)).value.state == "canceled"
    assert (await api.replay(job)).value.run == 2
    lines = [each.value for each in await api.batch(text + b"\n{", lines=2)]
    assert lines[0].job is not None
    assert lines[0].job.id == job
    assert lines[1].problem is not None
    assert lines[1].problem.type == "urn:empanel:problem:not-json"


async def test_audits_are_read_in_a_list_in_full_and_as_a_pass() -> None:
    """The counts are there in each of the three."""
    world = World()
    await ended(world)
    result = await audit(world.reconciler.services)
    run_now = book_answers.AuditPass.model_validate_json(json.dumps(result.view()))
    assert [window.population for window in run_now.windows] == [1]
    api = client(world)
    listed = (await api.audits()).value
    [window] = listed.audits
    read = (await api.audit(window.window)).value
    assert (read.population, read.counts["succeeded"], read.complete) == (1, 1, True)
    # Nothing delivers notifications in this world.
    assert [name for name, items in read.gaps() if items] == ["undelivered_notifications"]
    assert shown(audit_list(listed))
    assert shown(audit_view(read))


async def test_incidents_are_read_open_and_resolved() -> None:
    """Kind and status, in the list and in the answer of `resolve`."""
    world = World()
    services, api = world.reconciler.services, client(world)
    await open_incident(services, "aged_gap", "cause", tenant=TENANT, detail="late")
    page = (await api.incidents([("status", "open")])).value
    [incident] = page.incidents
    assert (incident.kind, incident.detail) == ("aged_gap", "late")
    resolved = (await api.resolve(incident.id, "looked at")).value
    assert (resolved.status, resolved.note) == ("resolved", "looked at")
    assert shown(incident_table(page))


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_every_field_that_is_read_is_one_that_is_answered(
    ours: type[BaseModel], theirs: type[BaseModel]
) -> None:
    """A field that the API does not have would read as its default for ever."""
    assert unanswered(ours, theirs) == []


def unanswered(ours: type[BaseModel], theirs: type[BaseModel]) -> list[str]:
    """The fields of a model, and of those within, that the API's model does not have."""
    found = []
    for name, field in ours.model_fields.items():
        if name not in theirs.model_fields:
            found.append(f"{ours.__name__}.{name}")
            continue
        inner, other = models(field.annotation), models(theirs.model_fields[name].annotation)
        found += [each for a, b in zip(inner, other, strict=False) for each in unanswered(a, b)]
    return found


def models(annotation: Any) -> list[type[BaseModel]]:
    """The models within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models(part)]
