"""How a command ends: the exit codes, and the errors that lead to them.

CliError
|-- Misused        2   the command was used wrongly
|-- Refused        3   the API answered with a problem
+-- Unreachable    4   no answer, or not an answer of the API
"""

from enum import IntEnum
from typing import ClassVar

from functions.cli.answers import Job, Problem


class Exit(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    ENDED_OTHERWISE = 1
    MISUSED = 2
    REFUSED = 3
    UNREACHABLE = 4
    INTERRUPTED = 130


MEANINGS = {
    Exit.DONE: "done; a job that was asked about is open or has succeeded",
    Exit.ENDED_OTHERWISE: (
        "the job ended otherwise (failed, expired, canceled), or its report is not complete"
    ),
    Exit.MISUSED: "the command was used wrongly; nothing was sent",
    Exit.REFUSED: (
        "the API refused, or refused a line of a batch; its title, detail and pointers are printed"
    ),
    Exit.UNREACHABLE: "the API could not be reached, or what answered is not the API",
    Exit.INTERRUPTED: "interrupted from the keyboard; the job goes on",
}

# Blank lines keep one code per line in typer's help.
EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{int(code)}  {text}" for code, text in MEANINGS.items())


class CliError(Exception):
    """A command cannot go on; the message is for the person, `code` for the shell."""

    code: ClassVar[Exit]


class Misused(CliError):
    """The command was used wrongly; nothing was sent."""

    code = Exit.MISUSED


class Refused(CliError):
    """The API answered with a problem (RFC 9457); `raw` is its body as received."""

    code = Exit.REFUSED

    def __init__(
        self, problem: Problem, *, status: int, raw: bytes, retry_after_seconds: float | None
    ) -> None:
        super().__init__(f"{status} {problem.title}")
        self.problem = problem
        self.status = status
        self.raw = raw
        self.retry_after_seconds = retry_after_seconds


class Unreachable(CliError):
    """The API could not be reached, or what answered is not the API."""

    code = Exit.UNREACHABLE


def exit_for(job: Job) -> Exit:
    """The code of a command about one job: an open job is no failure."""
    return Exit.ENDED_OTHERWISE if job.ended and job.state != "succeeded" else Exit.DONE
