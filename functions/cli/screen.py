"""Where a command's output goes, and how a command is run from start to exit code."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.text import Text

from functions.cli.client import Api, Received, open_api
from functions.cli.exits import CliError, Exit, Refused
from functions.cli.tables import line, problem_view
from functions.cli.target import find_target

T = TypeVar("T", bound=BaseModel)

# Wide enough that a table in a pipe or a file is never folded.
UNWATCHED_WIDTH = 400


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Standard output and error of one command."""

    out: Console
    err: Console
    json_only: bool
    watched: bool

    def show(self, received: Received[T], view: Callable[[T], RenderableType]) -> None:
        """Print the answer: its own bytes with `--json`, else the view for people."""
        if self.json_only:
            print_raw(received.raw)
        else:
            self.out.print(view(received.value))

    def show_raw(self, received: Received[T]) -> None:
        """Print the answer's own bytes with `--json`; for people nothing."""
        if self.json_only:
            print_raw(received.raw)

    def say(self, content: str) -> None:
        """Print a line for people; with `--json` nothing."""
        self.show_in_full(line(content))

    def show_in_full(self, content: Text) -> None:
        """Print lines for people, none folded or cut; with `--json` nothing."""
        if not self.json_only:
            self.out.print(content, soft_wrap=True)

    def fail(self, error: CliError) -> None:
        """Print why the command failed."""
        if not isinstance(error, Refused):
            self.err.print(line(str(error)), soft_wrap=True)
            return
        if self.json_only:
            print_raw(error.raw)
        self.err.print(problem_view(error.problem, error.status), soft_wrap=True)


def open_screen(*, json_only: bool) -> Screen:
    """The screen of this process, as its streams are now."""
    watched = sys.stdout.isatty()
    out = Console(width=None if watched else UNWATCHED_WIDTH, highlight=False)
    return Screen(
        out=out,
        err=Console(stderr=True, highlight=False),
        json_only=json_only,
        watched=watched and not out.is_dumb_terminal,
    )


def run(work: Callable[[Api, Screen], Awaitable[Exit]], *, json_only: bool) -> None:
    """Run one command against the API and end the process with its exit code."""

    async def with_api(screen: Screen) -> Exit:
        async with open_api(find_target()) as api:
            return await work(api, screen)

    run_alone(with_api, json_only=json_only)


def run_alone(work: Callable[[Screen], Coroutine[Any, Any, Exit]], *, json_only: bool) -> NoReturn:
    """Run one command that opens what it needs, and end the process with its exit code."""
    screen = open_screen(json_only=json_only)
    try:
        code = asyncio.run(work(screen))
    except CliError as error:
        screen.fail(error)
        code = error.code
    raise typer.Exit(code)


def print_raw(raw: bytes) -> None:
    """The API's bytes on standard output, ended by a line break."""
    typer.echo(raw.rstrip(b"\r\n"))
