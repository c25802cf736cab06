"""`batch` of the command line against a scripted server on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions.cli import batches
from functions.cli.batches import Line, body_of, read_lines, requests
from functions.web.problems import not_json as not_json_problem
from tests.unit.fake_api import FakeApi, fake_api, job_body
from tests.unit.test_cli import call, on_a_terminal

PATH = "POST /v1/jobs:batch"
PROBLEM = {"type": "urn:x", "title": "The request breaks a rule", "status": 422, "detail": "no"}
BUSY = {"type": "urn:x", "title": "Too many requests", "status": 429, "retry_after_seconds": 0}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted server."""
    with fake_api() as fake:
        yield fake


def accepted(line: int, status: int = 202, **changes: Any) -> dict[str, Any]:
    return {
        "line": line,
        "status": status,
        "job": job_body("accepted", id=f"job_{line}", **changes),
    }


def refused(line: int, problem: dict[str, Any] = PROBLEM) -> dict[str, Any]:
    return {"line": line, "status": problem["status"], "problem": problem}


def ndjson(*documents: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def file_of(folder: Path, *lines: bytes, end: bytes = b"\n") -> str:
    path = folder / "jobs.ndjson"
    path.write_bytes(end.join(lines) + end)
    return str(path)


def test_lines_keep_their_numbers_and_blank_ones_are_left_out() -> None:
    """LF or CRLF; a line's number is the one an editor shows."""
    lines = read_lines(b'\r\n{"a":1}\r\n\n  {"b":2}  \n\n')
    assert lines == [Line(number=2, text=b'{"a":1}'), Line(number=4, text=b'{"b":2}')]
    assert body_of(lines) == b'{"a":1}\n{"b":2}'


def test_requests_hold_what_the_api_takes() -> None:
    """Neither too many lines nor too many bytes; nothing is lost, added or out of order."""
    small = [Line(number=n, text=b"{}") for n in range(450)]
    assert [len(request) for request in requests(small)] == [200, 200, 50]
    large = [Line(number=n, text=b"x" * 400_000) for n in range(5)]
    assert [len(request) for request in requests(large)] == [2, 2, 1]
    huge = [Line(number=0, text=b"{}"), Line(number=1, text=b"x" * 2_000_000), *small[2:]]
    cut = list(requests(huge))
    assert [len(request) for request in cut] == [1, 1, 200, 200, 48]
    assert [line for request in cut for line in request] == huge
    fitting = [request for request in cut + list(requests(large)) if len(request) > 1]
    assert all(len(body_of(request)) <= batches.BYTES_A_REQUEST for request in fitting)


def test_every_line_is_told_in_a_table(api: FakeApi, tmp_path: Path) -> None:
    """Jobs by ID, refusals by reason; 3 because one was refused, and how many of each."""
    answers = (accepted(1), refused(2), accepted(3, 200))
    api.answers(PATH, ndjson(*answers), media_type="application/x-ndjson")
    result = call(api, "batch", file_of(tmp_path, b'{"a": 1}', b"no", b'{"a":  1}'))
    assert result.exit_code == 3
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "202", "job_1", "accepted"] in rows
    assert ["2", "422", "-", "The", "request", "breaks", "a", "rule;", "no"] in rows
    assert ["3", "200", "job_3", "accepted"] in rows
    assert "3 lines: 1 accepted, 1 refused, 1 known already" in result.stdout
    [seen] = api.seen
    assert seen.body == b'{"a": 1}\nno\n{"a":  1}'
    assert seen.headers["content-type"] == "application/x-ndjson"
    assert seen.headers["authorization"] == "Bearer secret"


def test_a_file_whose_lines_are_all_accepted_ends_with_0(api: FakeApi) -> None:
    """Also from standard input, and when all of them are known already."""
    api.answers(PATH, ndjson(accepted(1, 200), accepted(2)))
    result = call(api, "batch", "-", stdin=b"{}\r\n{ }\r\n")
    assert result.exit_code == 0
    assert api.seen[0].body == b"{}\n{ }"


def test_json_is_a_line_for_each_line_of_the_file(api: FakeApi, tmp_path: Path) -> None:
    """Over several requests `line` counts in the file, and every field of the API is kept."""
    lines = [b"{}"] * 250
    lines[0:0] = [b""]
    api.answers(PATH, ndjson(*(accepted(n, later={"x": 1}) for n in range(1, 201))))
    api.answers(PATH, ndjson(*(refused(n) for n in range(1, 51))))
    result = call(api, "batch", file_of(tmp_path, *lines), "--json")
    assert result.exit_code == 3
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["line"] for each in told] == list(range(2, 252))
    assert {**told[0], "line": 1} == accepted(1, later={"x": 1})
    assert told[-1]["problem"] == PROBLEM
    assert result.stderr == ""


def test_a_line_larger_than_a_body_costs_no_other_line(api: FakeApi, tmp_path: Path) -> None:
    """It goes alone, and the API's 413 is its answer."""
    api.answers(PATH, ndjson(accepted(1)))
    api.refuses(PATH, {"title": "The body is too large"}, status=413)
    api.answers(PATH, ndjson(accepted(1)))
    file = file_of(tmp_path, b"{}", b"x" * 1_100_000, b"{}")
    result = call(api, "batch", file, "--json")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["line"], each["status"]) for each in told] == [(1, 202), (2, 413), (3, 202)]
    assert result.exit_code == 3


def test_a_busy_api_is_asked_again(api: FakeApi) -> None:
    """A request that is refused for now is sent again when its time has come."""
    api.refuses(PATH, BUSY, status=429, headers={"Retry-After": "0"})
    api.refuses(PATH, BUSY, status=503, headers={"Retry-After": "0"})
    api.answers(PATH, ndjson(accepted(1)))
    result = call(api, "batch", "-", stdin=b"{}")
    assert result.exit_code == 0
    assert [seen.body for seen in api.seen] == [b"{}"] * 3


@pytest.mark.parametrize("hint", [{"Retry-After": "0"}, {"Retry-After": "86400"}, {}])
def test_what_was_answered_before_the_trouble_is_told(
    api: FakeApi, tmp_path: Path, hint: dict[str, str]
) -> None:
    """Patience ends, at once where the wait is too long; the file can be sent again."""
    api.answers(PATH, ndjson(*map(accepted, range(1, 201))))
    api.refuses(PATH, BUSY, status=429, headers=hint)
    result = call(api, "batch", file_of(tmp_path, *[b"{}"] * 300))
    assert result.exit_code == 3
    assert "job_200" in result.stdout
    assert "300 lines: 200 accepted, 100 not sent" in result.stdout
    assert "send the same file again" in result.stdout
    assert "Refused (429): Too many requests" in result.stderr


def test_lines_refused_for_now_say_what_to_do(api: FakeApi) -> None:
    """They are counted apart: the same file sent again may get them accepted."""
    api.answers(PATH, ndjson(accepted(1), refused(2, BUSY)))
    result = call(api, "batch", "-", stdin=b"{}\n{ }")
    assert result.exit_code == 3
    assert "1 accepted, 1 refused for now" in result.stdout
    assert "send the same file again" in result.stdout


def test_a_file_that_is_not_one_job_a_line_gets_a_hint(api: FakeApi, tmp_path: Path) -> None:
    """Once, when the first line is no JSON, as of a pretty-printed file; `--json` has none."""
    not_json = not_json_problem("line 1, column 2: it ends too early").to_document()
    api.answers(PATH, ndjson(refused(1, not_json), refused(2, not_json)))
    file = file_of(tmp_path, b"{", b"}")
    result = call(api, "batch", file)
    assert result.exit_code == 3
    assert result.stdout.count("Is the file one job a line? `jq -c . FILE` makes it so.") == 1
    assert "jq" not in call(api, "batch", file, "--json").stdout


def test_a_later_line_that_is_no_json_gets_no_hint(api: FakeApi, tmp_path: Path) -> None:
    """Nor does a first line that breaks another rule: the file is one job a line."""
    not_json = not_json_problem("it ends too early").to_document()
    api.answers(PATH, ndjson(refused(1), refused(2, not_json)))
    result = call(api, "batch", file_of(tmp_path, b"{}", b"{"))
    assert result.exit_code == 3
    assert "jq" not in result.stdout


@pytest.mark.parametrize("content", [b"", b"\n \r\n"])
def test_a_file_without_jobs_is_a_misuse(api: FakeApi, content: bytes) -> None:
    """2, and nothing is sent."""
    assert call(api, "batch", "-", stdin=content).exit_code == 2
    assert api.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        ndjson(accepted(1)),
        ndjson(accepted(1), accepted(3)),
        ndjson(accepted(1), {"line": 2, "status": 202}),
        ndjson(accepted(1), {**accepted(2), "problem": PROBLEM}),
    ],
)
def test_an_answer_that_is_not_one_for_each_line_is_none(api: FakeApi, body: bytes) -> None:
    """4: what answers like this is no Empanel API."""
    api.answers(PATH, body)
    result = call(api, "batch", "-", stdin=b"{}\n{}")
    assert result.exit_code == 4
    assert api.url in result.stderr


def test_a_person_sees_how_many_lines_are_answered(api: FakeApi, tmp_path: Path) -> None:
    """A count that is drawn in place, gone at the end; `--json` has none of it."""
    file = file_of(tmp_path, *[b"{}"] * 300)
    for _ in range(2):
        api.answers(PATH, ndjson(*map(accepted, range(1, 201))))
        api.answers(PATH, ndjson(*map(accepted, range(1, 101))))
    code, output = on_a_terminal(api, "batch", file)
    assert code == 0
    assert "200/300" in output
    assert "300 lines: 300 accepted" in output
    code, output = on_a_terminal(api, "batch", file, "--json")
    assert code == 0
    assert "\x1b" not in output
    assert [json.loads(line)["line"] for line in output.splitlines()] == list(range(1, 301))
