"""`batch`: submit a file of jobs, a line each, and tell what became of every line."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from functions.cli.answers import LineAnswer
from functions.cli.batches import (
    AnsweredLine,
    Line,
    body_of,
    read_lines,
    refused_line,
    requests,
)
from functions.cli.client import Api
from functions.cli.commands import JsonOnly, command
from functions.cli.exits import Exit, Misused, Refused
from functions.cli.screen import Screen, print_raw, run
from functions.cli.tables import line_table
from functions.cli.watching import BUSY_STATUSES

# A key that has used up its requests gets room again within minutes; a spent day does not.
MOST_PATIENCE_SECONDS = 300.0
TRIES = 5
TOO_LARGE = 413
NOT_JSON = "urn:empanel:problem:not-json"

Lines = Annotated[
    typer.FileBinaryRead,
    typer.Argument(
        metavar="FILE",
        help="Jobs as NDJSON, each with its own `idempotency_key` if need be; - reads standard"
        " input.",
    ),
]


@command()
def batch(file: Lines, json: JsonOnly = False) -> None:
    """Submit many jobs, one a line. Ends with 3 when a line was refused.

    A refused line changes nothing for the others. To send the same file again is safe.

    With --json the answers are NDJSON, and `line` is the number of the line in the file.
    """
    lines = read_lines(file.read())

    async def work(api: Api, screen: Screen) -> Exit:
        if not lines:
            raise Misused("The file has no line with a job.")
        answers: list[LineAnswer] = []
        try:
            with _progress(screen, len(lines)) as advance:
                for request in requests(lines):
                    received = await _sent(api, screen, request)
                    answers += _told(screen, request, received)
                    advance(len(request))
        finally:
            _sum_up(screen, answers, len(lines))
        return Exit.REFUSED if any(answer.problem for answer in answers) else Exit.DONE

    run(work, json_only=json)


async def _sent(api: Api, screen: Screen, request: Sequence[Line]) -> list[AnsweredLine]:
    """The answers to a request, sent again when the API is busy and says until when."""
    body = body_of(request)
    for left in reversed(range(TRIES)):
        try:
            return await api.batch(body, lines=len(request))
        except Refused as refused:
            if refused.status == TOO_LARGE and len(request) == 1:
                return [refused_line(refused)]
            seconds = refused.retry_after_seconds
            if refused.status not in BUSY_STATUSES or seconds is None:
                raise
            if not left or seconds > MOST_PATIENCE_SECONDS:
                raise
            screen.say(f"{refused.problem.title}: going on in {seconds:.0f} s")
            await asyncio.sleep(seconds)
    raise AssertionError("the last try has returned or raised")


def _told(
    screen: Screen, request: Sequence[Line], received: Sequence[AnsweredLine]
) -> list[LineAnswer]:
    """The answers under their lines' numbers in the file; with `--json` they are printed."""
    numbered = [each.numbered(line.number) for line, each in zip(request, received, strict=True)]
    if screen.json_only:
        for each in numbered:
            print_raw(each.raw)
    return [each.value for each in numbered]


def _sum_up(screen: Screen, answers: Sequence[LineAnswer], of: int) -> None:
    if screen.json_only or not answers:
        return
    screen.out.print(line_table(answers))
    counts = Counter(_outcome(answer) for answer in answers)
    counts["not sent"] = of - len(answers)
    screen.say(f"{of} lines: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n))
    first = answers[0].problem
    if first is not None and first.type == NOT_JSON:
        screen.say("Is the file one job a line? `jq -c . FILE` makes it so.")
    if counts["refused for now"] or counts["not sent"]:
        screen.say("To go on, send the same file again: what was accepted is known.")


def _outcome(answer: LineAnswer) -> str:
    if answer.problem is None:
        return "accepted" if answer.status == 202 else "known already"
    return "refused for now" if answer.status in BUSY_STATUSES else "refused"


@contextmanager
def _progress(screen: Screen, total: int) -> Iterator[Callable[[int], None]]:
    """A bar of lines answered, while a person is looking."""
    if not screen.watched or screen.json_only:
        yield lambda lines: None
        return
    columns = (TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # No refresh thread: it is drawn from our own task only, as in `functions.cli.progress`.
    with Progress(*columns, console=screen.out, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("lines", total=total)
        progress.refresh()
        yield lambda lines: progress.update(task, advance=lines, refresh=True)
