"""The commands about the books, against a scripted server on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from functions.core.audits import Findings
from tests.unit.fake_api import AT, FakeApi, fake_api, job_body
from tests.unit.test_cli import call

WINDOW = "2026-11-29T12"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A scripted server."""
    with fake_api() as fake:
        yield fake


def audit_body(**changes: Any) -> dict[str, Any]:
    """The audit of a window of three jobs, in order unless `changes` say otherwise."""
    counts = Findings().counts | {"succeeded": 3}
    body = {**Findings(counts=counts).view(), "window": WINDOW, "audited_at": AT, "sealed": True}
    return body | changes


def pass_body(**changes: Any) -> dict[str, Any]:
    """The answer of an audit that was run now."""
    window = {"tenant": "local", "window": WINDOW, "population": 3, "complete": True}
    window |= {"sealed": False, "gaps": 0, "errors": []}
    body = {"complete": True, "windows": [window], "sealed": [], "sampled": [], "malformed": []}
    return body | {"errors": []} | changes


def run_now(api: FakeApi, monkeypatch: pytest.MonkeyPatch, folder: Path, *args: str) -> Result:
    """Run an audit on a stack whose `reconcile` is the scripted server."""
    (folder / ".local").mkdir()
    stack = {"api": api.url, "functions": {"reconcile": api.url}, "push_token": "token"}
    (folder / ".local" / "stack.json").write_text(json.dumps(stack))
    monkeypatch.setattr("functions.cli.reconciler.CHECKOUT", folder)
    return call(None, "audit", "--run", *args, EMPANEL_RECONCILE_URL="")


def test_an_audit_in_order_ends_with_0(api: FakeApi) -> None:
    """The counts are shown, and that nothing is missing."""
    api.answers(f"GET /v1/audits/{WINDOW}", audit_body())
    result = call(api, "audit", WINDOW)
    assert result.exit_code == 0
    assert "3 accepted" in result.stdout
    assert "Every accepted run is accounted for." in result.stdout


@pytest.mark.parametrize(
    "changes",
    [
        {"missing_terminal": ["job_1"]},
        {"missing_output": [{"job_id": "job_1", "seat": "a", "uri": "gs://b/o"}]},
        {"orphan_outputs": ["gs://b/job_1"]},
        {"complete": False, "errors": ["job_1: 403"]},
    ],
)
def test_gaps_end_with_1_and_are_named(api: FakeApi, changes: dict[str, Any]) -> None:
    """Each kind of gap shows what it is about; an incomplete audit is never taken for clean."""
    api.answers(f"GET /v1/audits/{WINDOW}", audit_body(**changes))
    result = call(api, "audit", WINDOW)
    assert result.exit_code == 1
    assert "accounted for" not in result.stdout
    assert "job_1" in result.stdout or "gs://b/o" in result.stdout


def test_audits_are_listed_between_hours(api: FakeApi) -> None:
    """The hours go to the API as they were given."""
    summary = {"window": WINDOW, "population": 3, "complete": True, "sealed": False}
    api.answers("GET /v1/audits", {"audits": [summary | {"counts": {"succeeded": 3}}]})
    result = call(api, "audit", "--from", "2026-11-29T00", "--to", WINDOW)
    assert result.exit_code == 0
    assert api.seen[0].query == [("from", "2026-11-29T00"), ("to", WINDOW)]
    assert "3 succeeded" in result.stdout


def test_an_audit_can_be_run_now(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The stack's own reconciler is called with the stack's token."""
    api.answers("POST /", pass_body())
    result = run_now(api, monkeypatch, tmp_path)
    assert result.exit_code == 0, result.stderr
    assert api.seen[0].query == [("mode", "audit")]
    assert api.seen[0].headers["authorization"] == "Bearer token"


def test_an_incomplete_audit_is_an_answer(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """503 with a report is shown as it is, and ends with 1."""
    api.answers("POST /", pass_body(complete=False, errors=["no index"]), status=503)
    result = run_now(api, monkeypatch, tmp_path)
    assert result.exit_code == 1
    assert "no index" in result.stdout


def test_open_incidents_are_listed(api: FakeApi) -> None:
    """Kind, owner and what it is about; with the cursor of the next page."""
    incident = {"id": "inc_1", "kind": "output_missing", "job_id": "job_1", "seat": "a"}
    incident |= {"opened_at": AT, "owner": "team", "escalate_at": AT, "status": "open"}
    body = {"incidents": [incident | {"detail": "gone"}], "next_cursor": "more"}
    api.answers("GET /v1/incidents", body)
    result = call(api, "incidents")
    assert result.exit_code == 0
    assert api.seen[0].query == [("status", "open")]
    for part in ("inc_1", "output_missing", "team", "gone", "--cursor more"):
        assert part in result.stdout


def test_all_incidents_are_listed_without_a_status(api: FakeApi) -> None:
    """`--all` asks for both kinds, as the help of `--status` says."""
    api.answers("GET /v1/incidents", {"incidents": [], "next_cursor": None})
    assert call(api, "incidents", "--all").exit_code == 0
    assert api.seen[0].query == []
    shown = " ".join(call(api, "incidents", "--help", COLUMNS="200").stdout.split())
    assert "open or resolved; --all shows both." in shown


def test_an_incident_is_resolved_with_a_note(api: FakeApi) -> None:
    """The note goes along; without one nothing is sent."""
    api.answers(
        "POST /v1/incidents/inc_1/resolve", {"id": "inc_1", "kind": "k", "status": "resolved"}
    )
    result = call(api, "resolve", "inc_1", "--note", "restored")
    assert result.exit_code == 0
    assert json.loads(api.seen[0].body) == {"note": "restored"}
    assert "resolved" in result.stdout
    assert call(api, "resolve", "inc_1", "--note", " ").exit_code == 2


def test_cancel_shows_the_true_end(api: FakeApi) -> None:
    """A job that had succeeded stays so, and the command shows it."""
    api.answers("POST /v1/jobs/j1/cancel", job_body("succeeded"))
    result = call(api, "cancel", "j1")
    assert result.exit_code == 0
    assert "succeeded" in result.stdout
