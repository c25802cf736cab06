"""The lines of a batch: cut out of its body, answered a few at a time, each by itself.

A batch is answered within a set time, whatever its lines meet. Those without an answer by then, or
when the process ends, are to be sent again; that is safe, as the same line is the same job.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from functions.services import Services
from functions.web import problems
from functions.web.faults import Fault
from functions.web.problems import Problem
from functions.web.racing import first_of

MAX_LINES = 1000
# Of one line: a short line can break a hundred rules at places with long names, a thousand times.
MAX_ERRORS_BYTES = 16 * 1024
AT_ONCE = 16  # lines of one batch in work; a tenant's day takes fifty writers at once
BATCH_SECONDS = 50.0  # clients, and what stands before us, commonly give up after 60

_BLANKS = b" \t\r\n"

Work = Callable[[], Coroutine[Any, Any, None]]
AnswerLine = Callable[[int, bytes], Awaitable[bytes]]
"""Takes a line's number, from 1, and the line; returns its answer as `shown` or `refused` do."""


def read_lines(body: bytes) -> list[bytes]:
    """Return the lines of a body; a line's end may be LF or CRLF, and blanks at the end are none.

    A blank line before the last one is a line, so that the answer's n-th line is about the n-th.

    Raises:
        Problem: 400 for a body without any line, 422 for more than `MAX_LINES`.
    """
    body = body.rstrip(_BLANKS)
    if not body:
        raise problems.not_json("the body has no line; send one job a line")
    count = body.count(b"\n") + 1
    if count > MAX_LINES:
        detail = f"must have at most {MAX_LINES:,} lines, not {count:,}"
        raise problems.unprocessable([Fault(path=(), detail=detail)])
    return body.split(b"\n")


def shown(number: int, status: int, job: Mapping[str, Any]) -> bytes:
    """Return the answer to a line that is a job."""
    return _rendered({"line": number, "status": status, "job": job})


def refused(number: int, problem: Problem) -> bytes:
    """Return the answer to a line that was refused, with as many of its faults as have room."""
    document = problem.to_document()
    if "errors" in document:
        document["errors"] = list(_fitting(document["errors"]))
    return _rendered({"line": number, "status": problem.status, "problem": document})


def _fitting(errors: Iterable[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """Yield the first errors, and further ones up to `MAX_ERRORS_BYTES`."""
    size = 0
    for error in errors:
        known, size = size, size + len(json.dumps(error))
        if known and size > MAX_ERRORS_BYTES:
            return
        yield error


def _rendered(answer: Mapping[str, Any]) -> bytes:
    # ASCII: some readers of lines also break them at U+0085 and U+2028.
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


async def answer_all(
    services: Services, lines: Sequence[bytes], answer_line: AnswerLine
) -> list[bytes]:
    """Return the answer to each line, in order, within `BATCH_SECONDS`.

    `answer_line` raises nothing; at most `AT_ONCE` of its calls run at a time, begun in order. When
    time is over, or the grace time of a shutdown, those that run are cancelled.
    """
    waiting = deque(enumerate(lines, start=1))
    answers: dict[int, bytes] = {}

    async def work() -> None:
        while waiting and not services.inflight.closing:
            number, line = waiting.popleft()
            answers[number] = await answer_line(number, line)
            await asyncio.sleep(0)  # a line that is refused at once has not let anybody else run

    await first_of(_all(work, min(AT_ONCE, len(lines))), _time_over(services))
    left_out = _left_out(services)
    numbers = range(1, len(lines) + 1)
    return [answers.get(number) or refused(number, left_out) for number in numbers]


async def _all(work: Work, count: int) -> None:
    """Do the work `count` times at once."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(work(), name="lines of a batch")


async def _time_over(services: Services) -> None:
    """Return when the answer is due; a shutdown leaves what has begun the grace time."""
    settings = services.settings
    longest_seconds = min(BATCH_SECONDS, settings.handler_deadline_seconds)
    await services.slots.wait(services.clock, longest_seconds)
    if services.inflight.closing:
        await services.clock.sleep(min(settings.grace_seconds, longest_seconds))


def _left_out(services: Services) -> Problem:
    """Return what is told of a line that nobody knows the end of."""
    if services.inflight.closing:
        reason = "this process is being shut down"
    else:
        reason = "the time for a batch is over"
    return problems.unavailable(f"{reason}; send the line again: the same line is the same job", 1)
