"""The command line against a scripted server on loopback."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from functions import cli
from functions.cli import exits, text
from tests.unit.fake_api import (
    FakeApi,
    attempt_body,
    fake_api,
    job_body,
    listed_body,
    missing_body,
    report_body,
    report_seat,
    seat_body,
)

CHECKOUT = Path(__file__).resolve().parents[2]
AT_ONCE = {"Retry-After": "0"}
CREATED = {"Location": "/v1/jobs/j1", "Retry-After": "0"}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted server."""
    with fake_api() as fake:
        yield fake


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """A file with some body; its meaning is the server's business."""
    path = tmp_path / "job.json"
    path.write_bytes(b'{"facts": {"price": 1.0},   "n": NaN}\n')
    return path


def call(api: FakeApi | None, *args: str, stdin: bytes | None = None, **env: str) -> Result:
    """Run one command in this process, against `api`."""
    base = {"EMPANEL_URL": api.url if api else None, "EMPANEL_API_KEY": "secret" if api else None}
    return CliRunner().invoke(cli.app, list(args), input=stdin, env={**base, **env})


def in_checkout(monkeypatch: pytest.MonkeyPatch, folder: Path, stack: Any = None) -> None:
    """Take `folder` for the checkout, with or without a stack file."""
    monkeypatch.setattr("functions.cli.target.CHECKOUT", folder)
    if stack is not None:
        (folder / ".local").mkdir()
        text = stack if isinstance(stack, str) else json.dumps(stack)
        (folder / ".local" / "stack.json").write_text(text)


# Submitting


def test_submit_sends_the_file_byte_by_byte_with_key_and_bearer(
    api: FakeApi, job_file: Path
) -> None:
    """The API, not the command line, judges the body; key and credential travel as headers."""
    api.answers("POST /v1/jobs", job_body("accepted"), status=202, headers=CREATED)
    result = call(api, "submit", str(job_file), "--key", "k 1")
    assert result.exit_code == 0
    (seen,) = api.seen
    assert seen.body == job_file.read_bytes()
    assert seen.headers["idempotency-key"] == "k 1"
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.headers["content-type"] == "application/json"
    assert "j1" in result.stdout


def test_submit_reads_standard_input(api: FakeApi) -> None:
    """`-` as the file is standard input."""
    api.answers("POST /v1/jobs", job_body("accepted"), status=202)
    assert call(api, "submit", "-", stdin=b'{"a": 1}').exit_code == 0
    assert api.seen[0].body == b'{"a": 1}'
    assert "idempotency-key" not in api.seen[0].headers


def test_submit_says_when_the_job_is_known(api: FakeApi, job_file: Path) -> None:
    """A repeated submission is told from a new one, and ends with the job's own outcome."""
    api.answers("POST /v1/jobs", job_body("failed"), status=200)
    result = call(api, "submit", str(job_file))
    assert "known already" in result.stdout
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("state", "code"), [("succeeded", 0), ("failed", 1), ("expired", 1), ("canceled", 1)]
)
def test_submit_watch_ends_with_the_job(
    api: FakeApi, job_file: Path, state: str, code: int
) -> None:
    """`--watch` waits for the end, and the exit code says which end."""
    api.answers("POST /v1/jobs", job_body("accepted"), status=202, headers=CREATED)
    api.answers("GET /v1/jobs/j1", job_body("running"), headers=AT_ONCE)
    api.answers("GET /v1/jobs/j1", job_body(state))
    result = call(api, "submit", str(job_file), "--watch")
    assert result.exit_code == code
    assert f": {state}" in result.stdout


def test_submit_watch_json_prints_one_document(api: FakeApi, job_file: Path) -> None:
    """With `--json` a watched submission prints the job as it ended, and nothing before it."""
    api.answers("POST /v1/jobs", job_body("accepted"), status=202)
    api.answers("GET /v1/jobs/j1", job_body("succeeded"))
    result = call(api, "submit", str(job_file), "--watch", "--json")
    assert json.loads(result.stdout) == job_body("succeeded")
    assert result.stderr == ""


@pytest.mark.parametrize("key", ["", " k", "k" * 256, "schlüssel", "a\nb"])
def test_submit_refuses_a_key_no_header_can_carry(api: FakeApi, job_file: Path, key: str) -> None:
    """A bad idempotency key is a usage error, and nothing is sent."""
    assert call(api, "submit", str(job_file), "--key", key).exit_code == 2
    assert api.seen == []


def test_submit_refuses_a_file_that_is_not_there(api: FakeApi, tmp_path: Path) -> None:
    """A missing file is a usage error, and nothing is sent."""
    assert call(api, "submit", str(tmp_path / "none.json")).exit_code == 2
    assert api.seen == []


# Reading


def test_status_shows_what_is_really_happening(api: FakeApi) -> None:
    """Seats are shown by state, with due times, reasons and attempts; nothing is invented."""
    error = {"code": "rate_limited", "message": "slow down", "retryable": True}
    waiting = seat_body("brief", "waiting", due_at="2026-11-29T12:00:30Z", error=error, attempts=2)
    api.answers("GET /v1/jobs/j1", job_body("running", seat_body(reused=True), waiting))
    result = call(api, "status", "j1")
    assert result.exit_code == 0
    assert "waiting until 2026-11-29 12:00:30Z" in result.stdout
    assert "rate_limited: slow down" in result.stdout
    assert "2 of 4" in result.stdout
    assert "reused" in result.stdout
    assert "cost unknown" in result.stdout
    assert "%" not in result.stdout


@pytest.mark.parametrize(
    ("state", "code"),
    [("accepted", 0), ("running", 0), ("succeeded", 0), ("failed", 1), ("expired", 1)],
)
def test_status_ends_with_1_only_for_a_job_that_ended_otherwise(
    api: FakeApi, state: str, code: int
) -> None:
    """An open job is no failure."""
    api.answers("GET /v1/jobs/j1", job_body(state))
    assert call(api, "status", "j1").exit_code == code


def test_report_is_a_table_of_seats_and_criteria(api: FakeApi) -> None:
    """A complete report shows each score, each criterion and the summary, and ends with 0."""
    api.answers("GET /v1/jobs/j1/report", report_body())
    result = call(api, "report", "j1")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["seat", "model", "score", "portability", "cost"] in rows
    assert ["careful", "smollm2-135m", "71.5", "80", "unknown"] in rows
    assert ["brief", "smollm2-135m", "60", "55", "unknown"] in rows
    assert "2 of 2 scored: mean 65.75" in result.stdout
    assert "careful: careful says so" in result.stdout


def test_report_shows_its_warnings(api: FakeApi) -> None:
    """What the API warns of is shown with its code, its seats and its text."""
    detail = "seats that asked for a, b were all answered by c"
    warning = {"code": "same_model", "seats": ["careful", "brief"], "detail": detail}
    api.answers("GET /v1/jobs/j1/report", report_body(warnings=[warning]))
    result = call(api, "report", "j1")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert f"warning same_model: {detail} (careful, brief)" in shown


def test_a_cost_that_is_not_nothing_never_reads_as_zero() -> None:
    """Less than a millionth of a dollar says so; only nothing is zero."""
    assert text.cost(2.8e-9) == "under $0.000001"
    assert text.cost(0.0) == "$0.000000"
    assert text.cost(None) == "unknown"


def test_report_not_complete_names_what_is_missing(api: FakeApi) -> None:
    """The API's 409 with `missing` is an answer about the job: exit 1, the seats by name."""
    problem = {"title": "Report not complete", "missing": [missing_body()]}
    api.refuses("GET /v1/jobs/j1/report", problem, status=409)
    result = call(api, "report", "j1")
    assert result.exit_code == 1
    assert "attempts_exhausted" in result.stdout
    raw = call(api, "report", "j1", "--json")
    assert raw.exit_code == 1
    assert json.loads(raw.stdout)["missing"] == [missing_body()]


def test_report_partial_shows_both_and_still_ends_with_1(api: FakeApi) -> None:
    """A partial report shows the answers there are; its exit code says that some are missing."""
    api.answers("GET /v1/jobs/j1/report", report_body(complete=False))
    result = call(api, "report", "j1", "--partial")
    assert result.exit_code == 1
    assert api.seen[0].query == [("partial", "true")]
    assert "71.5" in result.stdout
    assert "1 of 2 scored" in result.stdout
    assert "brief" in result.stdout


def test_report_of_a_rubric_with_its_own_schema_has_no_scores(api: FakeApi) -> None:
    """A rubric's own output schema may have neither score nor criteria nor rationale."""
    seat = report_seat("careful", 1, 1, score=None, criteria=None, rationale=None)
    summary = dict.fromkeys(("mean", "median", "min", "max", "stdev")) | {"n": 0, "of": 1}
    api.answers("GET /v1/jobs/j1/report", report_body(seats=[seat], summary=summary))
    result = call(api, "report", "j1")
    assert result.exit_code == 0
    assert "0 of 1 scored: mean -" in result.stdout


def test_attempts_are_a_table(api: FakeApi) -> None:
    """Each provider request is a row with outcome, duration, tokens and cost."""
    running = attempt_body(
        number=2, outcome="running", ended_at=None, http_status=None, usage=None, cost_usd=0.0012
    )
    api.answers("GET /v1/jobs/j1/attempts", {"attempts": [attempt_body(), running]})
    result = call(api, "attempts", "j1")
    assert result.exit_code == 0
    assert "2.5 s" in result.stdout
    assert "unknown" in result.stdout
    assert "$0.001200" in result.stdout
    assert "req-7" in result.stdout


def test_jobs_passes_the_filters_on_and_names_the_next_page(api: FakeApi) -> None:
    """Filters become the API's query; the cursor of the next page is printed."""
    api.answers("GET /v1/jobs", {"jobs": [listed_body("running")], "next_cursor": "c2"})
    arguments = ["--state", "running", "--limit", "1", "--label", "a:1", "--label", "b:2"]
    result = call(api, "jobs", *arguments, "--cursor", "c1", "--owner", "x", "--window", "w")
    assert result.exit_code == 0
    assert sorted(api.seen[0].query) == sorted(
        [
            ("state", "running"), ("window", "w"), ("owner", "x"), ("limit", "1"),
            ("cursor", "c1"), ("label", "a:1"), ("label", "b:2"),
        ]
    )  # fmt: skip
    assert "More: --cursor c2" in result.stdout
    assert ["j1", "running", "1", "1"] in [row.split()[:4] for row in result.stdout.splitlines()]


def test_jobs_without_any_says_so(api: FakeApi) -> None:
    """An empty list is said in words."""
    api.answers("GET /v1/jobs", {"jobs": [], "next_cursor": None})
    assert call(api, "jobs").stdout == "No jobs.\n"


@pytest.mark.parametrize(
    ("path", "body", "command"),
    [
        ("/v1/jobs/j1", job_body(later_field={"x": 1}), ["status", "j1"]),
        ("/v1/jobs/j1", job_body(), ["watch", "j1"]),
        ("/v1/jobs/j1/report", report_body(), ["report", "j1"]),
        ("/v1/jobs/j1/attempts", {"attempts": [attempt_body()]}, ["attempts", "j1"]),
        ("/v1/jobs", {"jobs": [listed_body()], "next_cursor": None}, ["jobs"]),
    ],
)
def test_json_is_the_apis_own_bytes(
    api: FakeApi, path: str, body: dict[str, Any], command: list[str]
) -> None:
    """`--json` prints what the API sent, byte by byte, and nothing else."""
    raw = json.dumps(body, indent=3).encode()
    api.answers(f"GET {path}", raw)
    result = call(api, *command, "--json")
    assert result.exit_code == 0
    assert result.stdout_bytes == raw + b"\n"
    assert result.stderr == ""


def test_a_job_id_cannot_leave_its_place_in_the_path(api: FakeApi) -> None:
    """Whatever is given as an ID stays one segment of the path."""
    call(api, "status", "a/../b?x=1")
    assert api.seen[0].path == "/v1/jobs/a%2F..%2Fb%3Fx%3D1"


# Refusals and trouble


PROBLEM = {
    "title": "Validation failed",
    "detail": "2 rules are broken",
    "errors": [
        {"pointer": "/seats/0/model", "detail": "is required"},
        {"pointer": "", "detail": "unknown field [red]x[/red]"},
    ],
}


def test_a_problem_is_printed_with_its_pointers(api: FakeApi, job_file: Path) -> None:
    """A refusal shows title, detail and each pointer on standard error, and ends with 3."""
    api.refuses("POST /v1/jobs", PROBLEM, status=422)
    result = call(api, "submit", str(job_file))
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Refused (422): Validation failed",
        "2 rules are broken",
        "  /seats/0/model: is required",
        "  /: unknown field [red]x[/red]",
    ]


def test_a_problem_with_json_is_the_document_itself(api: FakeApi, job_file: Path) -> None:
    """With `--json` a refusal is the API's problem document on standard output."""
    api.refuses("POST /v1/jobs", PROBLEM, status=422)
    result = call(api, "submit", str(job_file), "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["errors"] == PROBLEM["errors"]


@pytest.mark.parametrize(
    "command", [["status", "x"], ["watch", "x"], ["report", "x"], ["attempts", "x"]]
)
def test_an_unknown_job_is_a_refusal(api: FakeApi, command: list[str]) -> None:
    """Every command about a job that is not there ends with 3."""
    result = call(api, *command)
    assert result.exit_code == 3
    assert "Refused (404): Not Found" in result.stderr


def test_a_refusal_in_front_of_the_api_is_a_refusal(api: FakeApi) -> None:
    """A gateway's 403 without a problem document still ends with 3."""
    api.answers("GET /v1/jobs", b"<html>no</html>", status=403, media_type="text/html")
    result = call(api, "jobs")
    assert result.exit_code == 3
    assert "Refused (403): Forbidden" in result.stderr


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>hi</html>"), (200, b"{}"), (302, b""), (502, b"bad gateway")]
)
def test_another_server_is_not_taken_for_the_api(api: FakeApi, status: int, body: bytes) -> None:
    """What answers in another way is not the API: exit 4, nothing on standard output."""
    api.answers("GET /v1/jobs", body, status=status)
    result = call(api, "jobs", "--json")
    assert result.exit_code == 4
    assert result.stdout == ""
    assert api.url in result.stderr


def test_nobody_listening_is_unreachable() -> None:
    """A refused connection ends with 4 and names the address."""
    with fake_api() as gone:
        pass
    result = call(gone, "jobs")
    assert result.exit_code == 4
    assert gone.url in result.stderr


def test_a_missing_stack_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an address and without a stack: exit 4 and the two ways out."""
    in_checkout(monkeypatch, tmp_path)
    result = call(None, "jobs")
    assert result.exit_code == 4
    assert "make up" in result.stderr
    assert "EMPANEL_URL" in result.stderr


@pytest.mark.parametrize(
    "stack", ["geheim", '{"api_key": "geheim"}', '{"api": 5, "api_key": "geheim"}', '["geheim"]']
)
def test_an_unreadable_stack_file_does_not_print_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """A damaged stack file ends with 4 and is named; its content stays out of the message."""
    in_checkout(monkeypatch, tmp_path, stack)
    result = call(None, "jobs")
    assert result.exit_code == 4
    assert "stack.json" in result.stderr
    assert "geheim" not in result.output


def test_the_stack_file_gives_address_and_key(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without EMPANEL_URL the running stack is used, with its key."""
    in_checkout(monkeypatch, tmp_path, {"api": api.url, "api_key": "stack-key", "pids": {}})
    api.answers("GET /v1/jobs", {"jobs": [], "next_cursor": None})
    assert call(None, "jobs").exit_code == 0
    assert api.seen[0].headers["authorization"] == "Bearer stack-key"


def test_the_stacks_key_is_not_sent_elsewhere(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address from the environment never gets the stack's operator key."""
    in_checkout(monkeypatch, tmp_path, {"api": "http://127.0.0.1:1", "api_key": "stack-key"})
    api.answers("GET /v1/jobs", {"jobs": [], "next_cursor": None})
    assert call(None, "jobs", EMPANEL_URL=api.url).exit_code == 0
    assert "authorization" not in api.seen[0].headers


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    """A bad EMPANEL_URL ends with 2 and is named."""
    result = call(None, "jobs", EMPANEL_URL=url)
    assert result.exit_code == 2
    assert "EMPANEL_URL" in result.stderr


def test_a_key_no_header_can_carry_is_a_usage_error_and_not_printed(api: FakeApi) -> None:
    """A bad EMPANEL_API_KEY ends with 2 without showing the key."""
    result = call(api, "jobs", EMPANEL_API_KEY="geheim\nnis")
    assert result.exit_code == 2
    assert "geheim" not in result.output


def test_text_from_a_model_cannot_steer_the_terminal(api: FakeApi) -> None:
    """Control characters and bidirectional overrides are shown as U+FFFD."""
    evil = "a\x1b[2Jb\x9bc\u202ed [bold]e"
    api.answers("GET /v1/jobs/j1/report", report_body(seats=[report_seat(evil, 1, 1)]))
    result = call(api, "report", "j1")
    assert result.exit_code == 0
    assert "a\ufffd[2Jb\ufffdc\ufffdd [bold]e" in result.stdout
    assert "\x1b" not in result.stdout


# Watching, on a terminal and off


def script_a_run(api: FakeApi) -> None:
    """Three reads of a job: queued, one seat ended, both ended."""
    queued = [seat_body("careful", "queued", attempts=0), seat_body("brief", "queued", attempts=0)]
    waiting = seat_body("brief", "waiting", due_at="2026-11-29T12:00:30Z")
    api.answers("GET /v1/jobs/j1", job_body("accepted", *queued), headers=AT_ONCE)
    api.answers("GET /v1/jobs/j1", job_body("running", seat_body(), waiting), headers=AT_ONCE)
    api.answers("GET /v1/jobs/j1", job_body("succeeded", seat_body(), seat_body("brief")))


def test_watch_off_a_terminal_prints_a_line_per_change(api: FakeApi) -> None:
    """In a pipe each change is one plain line, each state once, without control sequences."""
    script_a_run(api)
    result = call(api, "watch", "j1")
    assert result.exit_code == 0
    changes = [line.split(" ", 1)[1] for line in result.stdout.splitlines() if "Z job j1: " in line]
    assert changes == [
        "job j1: seat careful queued, attempts 0 of 4",
        "job j1: seat brief queued, attempts 0 of 4",
        "job j1: accepted, 0 of 2 seats ended",
        "job j1: seat careful succeeded, attempts 1 of 4",
        "job j1: seat brief waiting until 2026-11-29 12:00:30Z, attempts 1 of 4",
        "job j1: running, 1 of 2 seats ended",
        "job j1: seat brief succeeded, attempts 1 of 4",
        "job j1: succeeded, 2 of 2 seats ended",
    ]
    assert "\x1b" not in result.stdout


def on_a_terminal(api: FakeApi, *args: str, term: str = "xterm-256color") -> tuple[int, str]:
    """Run the command as its own process on a pseudo-terminal; its exit code and output."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "EMPANEL_URL": api.url,
        "TERM": term, "COLUMNS": "140", "LINES": "50",
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "functions", *args]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    output = b""
    try:
        while chunk := os.read(master, 65536):
            output += chunk
    except OSError:
        pass  # Linux reports the end of a pseudo-terminal as an input/output error.
    finally:
        os.close(master)
    return process.wait(timeout=30), output.decode()


def test_watch_on_a_terminal_draws_in_place(api: FakeApi) -> None:
    """A person sees one picture that is redrawn, and the job's table at the end."""
    script_a_run(api)
    code, output = on_a_terminal(api, "watch", "j1")
    assert code == 0
    assert "\x1b[1A" in output
    assert "1 of 2 seats ended" in output
    assert "1 succeeded, 1 waiting" in output
    assert "Z job j1: " not in output
    assert "%" not in output


def test_watch_json_on_a_terminal_is_still_only_json(api: FakeApi) -> None:
    """`--json` wins over the terminal: no picture."""
    script_a_run(api)
    code, output = on_a_terminal(api, "watch", "j1", "--json")
    assert code == 0
    assert json.loads(output)["state"] == "succeeded"


def test_watch_on_a_terminal_without_cursor_prints_lines(api: FakeApi) -> None:
    """A terminal that cannot move its cursor gets plain lines."""
    script_a_run(api)
    code, output = on_a_terminal(api, "watch", "j1", term="dumb")
    assert code == 0
    assert "Z job j1: running, 1 of 2 seats ended" in output


def test_an_interrupted_watch_ends_with_130(api: FakeApi) -> None:
    """Ctrl-C ends the watch, not the job, with the shell's usual code."""
    api.answers("GET /v1/jobs/j1", job_body("running"), headers=AT_ONCE)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "functions", "watch", "j1"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), "EMPANEL_URL": api.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"running" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")


# Help and launcher


@pytest.mark.parametrize(
    "command", [[], ["submit"], ["watch"], ["status"], ["report"], ["attempts"], ["jobs"]]
)
def test_help_documents_every_exit_code(command: list[str]) -> None:
    """Each help text lists all exit codes, as the module docstring does."""
    result = call(None, *command, "--help", COLUMNS="200", TERMINAL_WIDTH="200")
    assert result.exit_code == 0
    for code, meaning in exits.MEANINGS.items():
        assert f"{int(code)}  {meaning}" in result.stdout
        assert f"| {int(code)} | {meaning} |" in (cli.__doc__ or "")


@pytest.mark.parametrize("arguments", [["nonsense"], ["status"], ["jobs", "--limit", "0"], ["-x"]])
def test_wrong_usage_ends_with_2(api: FakeApi, arguments: list[str]) -> None:
    """A command used wrongly ends with 2, and nothing is sent."""
    assert call(api, *arguments).exit_code == 2
    assert api.seen == []


def test_the_launcher_works_from_any_directory(api: FakeApi, tmp_path: Path) -> None:
    """`empanel` runs through a link, from a folder that has a `functions` of its own."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (tmp_path / "job.json").write_bytes(b"{}")
    link = tmp_path / "link"
    link.symlink_to(CHECKOUT / "empanel")
    api.answers("POST /v1/jobs", job_body("accepted"), status=202)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(link), "submit", "job.json", "--json"],
        cwd=tmp_path,
        env={"PATH": path, "EMPANEL_URL": api.url},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "j1"
    assert api.seen[0].body == b"{}"


@pytest.mark.parametrize("installed", [True, False])
def test_the_launcher_says_what_to_do_before_setup(tmp_path: Path, installed: bool) -> None:
    """A Python without our packages, or no Python at all, is one line and 2, no traceback."""
    shutil.copy(CHECKOUT / "empanel", tmp_path / "empanel")
    (tmp_path / "functions").symlink_to(CHECKOUT / "functions")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (folder / name).symlink_to(shutil.which(name) or name)
    if installed:
        # Isolated and without site packages: what a machine's own Python is before `make setup`.
        bare = f'#!/bin/sh\nexec {sys.executable} -S "$@"\n'
        (folder / "python3").write_text(bare)
        (folder / "python3").chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "empanel"), "jobs"],
        env={"PATH": str(folder)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == b"Run `make setup` first (`make demo` does it too).\n"
    assert done.stdout == b""


# Replaying


def test_replay_asks_for_a_new_run_and_follows_it(api: FakeApi) -> None:
    """`replay --watch` begins the next run and ends with what it came to."""
    api.answers("POST /v1/jobs/j1/replay", job_body("accepted", run=2), status=202)
    api.answers("GET /v1/jobs/j1", job_body("succeeded", run=2))
    result = call(api, "replay", "j1", "--watch")
    assert result.exit_code == 0
    assert "run 2" in result.stdout
    assert ": succeeded" in result.stdout


def test_replay_of_a_purged_job_is_refused(api: FakeApi) -> None:
    """The API's reason is printed, and the exit code says that it refused."""
    problem = {"title": "The data has been purged", "detail": "the inputs have been purged"}
    api.refuses("POST /v1/jobs/j1/replay", problem, status=410)
    result = call(api, "replay", "j1")
    assert result.exit_code == exits.Exit.REFUSED
    assert "the inputs have been purged" in result.stderr
