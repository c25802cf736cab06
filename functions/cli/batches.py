"""A file of jobs, a line each: cut into requests that the API takes, and what it answered."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from functions.cli.answers import LineAnswer
from functions.cli.exits import Refused

# A batch may have 1,000 lines; shorter requests are answered sooner, and show how it goes.
LINES_A_REQUEST = 200
BYTES_A_REQUEST = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Line:
    """One job's text and the number of its line in the file, from 1."""

    number: int
    text: bytes


def read_lines(content: bytes) -> list[Line]:
    """The lines of a file, without the blank ones; a line may end in LF or CRLF."""
    texts = (text.strip(b" \t\r") for text in content.split(b"\n"))
    return [Line(number=number, text=text) for number, text in enumerate(texts, start=1) if text]


def requests(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """The lines in order, as many to a request as it takes; one that is too large goes alone."""
    request: list[Line] = []
    size_bytes = 0
    for line in lines:
        needed_bytes = len(line.text) + 1
        full = len(request) == LINES_A_REQUEST or size_bytes + needed_bytes > BYTES_A_REQUEST
        if request and full:
            yield request
            request, size_bytes = [], 0
        request.append(line)
        size_bytes += needed_bytes
    if request:
        yield request


def body_of(request: Sequence[Line]) -> bytes:
    """The request's body."""
    return b"\n".join(line.text for line in request)


@dataclass(frozen=True, kw_only=True)
class AnsweredLine:
    """The answer to one line: what it means, and the document as it came (for `--json`)."""

    value: LineAnswer
    document: Mapping[str, Any]

    @property
    def raw(self) -> bytes:
        """The document as a line."""
        return json.dumps(self.document, separators=(",", ":")).encode()

    def numbered(self, number: int) -> "AnsweredLine":
        """The same answer as one to the line of that number."""
        document = {**self.document, "line": number}
        return AnsweredLine(value=self.value.model_copy(update={"line": number}), document=document)


def read_answer(line: bytes) -> AnsweredLine:
    """Read one line of an answer.

    Raises `ValueError` when it is none.
    """
    value = LineAnswer.model_validate_json(line)
    return AnsweredLine(value=value, document=json.loads(line))


def refused_line(refused: Refused) -> AnsweredLine:
    """The answer to the only line of a request that was refused as a whole."""
    problem = refused.problem.model_dump(mode="json", exclude_unset=True)
    document = {"line": 1, "status": refused.status, "problem": problem}
    return AnsweredLine(value=LineAnswer.model_validate(document), document=document)
