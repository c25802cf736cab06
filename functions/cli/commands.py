"""The commands: what each takes, what it prints, how it ends."""

from functools import partial
from typing import Annotated

import typer

from functions.cli.answers import Job
from functions.cli.client import Api, Received
from functions.cli.exits import EPILOG, Exit, Misused, Refused, exit_for
from functions.cli.progress import showing
from functions.cli.screen import Screen, print_raw, run
from functions.cli.tables import (
    attempt_table,
    job_table,
    job_view,
    missing_view,
    report_view,
)
from functions.cli.target import sendable
from functions.cli.watching import watch as follow

SHORT_ID_CHARACTERS = 12
KEY_LIMIT_CHARACTERS = 255

# Tracebacks with local variables would print the API key.
app = typer.Typer(
    name="empanel",
    help=(
        "Ask several language models the same question, and account for every accepted job.\n\n"
        "The API's address and key come from EMPANEL_URL and EMPANEL_API_KEY, else from the "
        "local stack's .local/stack.json."
    ),
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
command = partial(app.command, epilog=EPILOG)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's ID, as `submit` prints it.")]
JsonOnly = Annotated[
    bool, typer.Option("--json", help="Print the API's own JSON and nothing else.")
]
File = Annotated[
    typer.FileBinaryRead,
    typer.Argument(metavar="FILE", help="The job as JSON; - reads standard input."),
]
Key = Annotated[
    str | None,
    typer.Option(help="Idempotency key: the same key and body is the same job, whenever sent."),
]
Watch = Annotated[bool, typer.Option("--watch", help="Wait until the job ends.")]
Partial = Annotated[
    bool, typer.Option("--partial", help="Show what there is, and name what is missing.")
]


@command()
def submit(file: File, key: Key = None, watch: Watch = False, json: JsonOnly = False) -> None:
    """Submit a job. Without --key its own content is its identity, for ever."""
    body = file.read()

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.submit(body, key=_checked_key(key))
        job = received.value
        known = "" if received.status == 202 else " (known already; nothing new was started)"
        screen.say(f"job {job.id}{known}")
        if watch and not job.ended:
            received = await _follow(api, screen, job.id)
        screen.show(received, job_view)
        return exit_for(received.value)

    run(work, json_only=json)


@command()
def watch(job: JobId, json: JsonOnly = False) -> None:
    """Show a job's seats as they change, until the job ends."""

    async def work(api: Api, screen: Screen) -> Exit:
        received = await _follow(api, screen, job)
        screen.show(received, job_view)
        return exit_for(received.value)

    run(work, json_only=json)


@command()
def status(job: JobId, json: JsonOnly = False) -> None:
    """Show a job and its seats as they stand now."""

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.job(job)
        screen.show(received, job_view)
        return exit_for(received.value)

    run(work, json_only=json)


@command()
def report(job: JobId, partial: Partial = False, json: JsonOnly = False) -> None:
    """Show the panel's scores. Ends with 1 when a seat's answer is missing."""

    async def work(api: Api, screen: Screen) -> Exit:
        try:
            received = await api.report(job, partial=partial)
        except Refused as refused:
            return _not_complete(refused, screen)
        screen.show(received, report_view)
        return Exit.DONE if received.value.complete else Exit.ENDED_OTHERWISE

    run(work, json_only=json)


@command()
def attempts(job: JobId, json: JsonOnly = False) -> None:
    """Show every provider request of a job, with its outcome and cost."""

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.attempts(job)
        screen.show(received, lambda listed: attempt_table(listed.attempts))
        return Exit.DONE

    run(work, json_only=json)


@command()
def jobs(
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    window: Annotated[
        str | None, typer.Option(help="Only jobs asked for in this hour, as 2026-11-29T12.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY:VALUE", help="Only jobs with this label.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=200, help="Jobs a page; the API's default is 50.")
    ] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on after the page before.")] = None,
    json: JsonOnly = False,
) -> None:
    """List jobs, newest first."""
    single = {"state": state, "window": window, "owner": owner, "limit": limit, "cursor": cursor}
    query = [(name, str(value)) for name, value in single.items() if value is not None]
    query += [("label", value) for value in label or ()]

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.jobs(query)
        screen.show(received, job_table)
        return Exit.DONE

    run(work, json_only=json)


@command()
def cancel(job: JobId, json: JsonOnly = False) -> None:
    """Stop a job: what it has stays, calls in flight are cut. One that has ended stays as it is."""

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.cancel(job)
        screen.show(received, job_view)
        return Exit.DONE

    run(work, json_only=json)


@command()
def replay(job: JobId, watch: Watch = False, json: JsonOnly = False) -> None:
    """Run a job that has ended again, for its seats without a success."""

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.replay(job)
        screen.say(f"job {received.value.id}: run {received.value.run}")
        if watch:
            received = await _follow(api, screen, received.value.id)
        screen.show(received, job_view)
        return exit_for(received.value)

    run(work, json_only=json)


async def _follow(api: Api, screen: Screen, job_id: str) -> Received[Job]:
    if screen.json_only:
        return await follow(api, job_id, lambda job: None)
    name = f"job {job_id[:SHORT_ID_CHARACTERS]}"
    with showing(screen.out, live=screen.watched) as show:
        return await follow(api, job_id, partial(show, name))


def _not_complete(refused: Refused, screen: Screen) -> Exit:
    """An incomplete report is an answer about the job; any other refusal goes on upwards."""
    missing = refused.problem.missing
    if refused.status != 409 or missing is None:
        raise refused
    if screen.json_only:
        print_raw(refused.raw)
    else:
        screen.out.print(missing_view(missing))
        screen.say("Show what there is: report --partial")
    return Exit.ENDED_OTHERWISE


def _checked_key(key: str | None) -> str | None:
    if key is not None and not (len(key) <= KEY_LIMIT_CHARACTERS and sendable(key)):
        raise Misused("--key takes 1 to 255 printable ASCII characters without spaces around them.")
    return key
