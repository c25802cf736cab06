"""The drill command before any drill: where it goes, whom it asks, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from functions.cli.drill_command import choose_asked, find_deployment
from functions.cli.exits import Misused, Unreachable
from functions.drill.catalog import DRILLS
from functions.drill.deployment import DrillRefused
from functions.drill.running import chosen
from tests.unit.test_cli import call

NAMES = {
    "lost-dispatch",
    "lost-notification",
    "lost-upload",
    "lost-notification-and-upload",
    "duplicate-deliveries",
    "two-routes",
    "two-holders",
    "killed-after-answer",
    "killed-evaluate",
    "late-result",
}
REAL = {
    "EMPANEL_URL": "https://api.example.com",
    "EMPANEL_API_KEY": "key",
    "EMPANEL_RECONCILE_URL": "https://reconcile.example.com",
    "EMPANEL_PUSH_AUDIENCE": "https://push.example.com",
    "GOOGLE_CLOUD_PROJECT": "real",
}


def stack_file(folder: Path, **changes: Any) -> Path:
    """The folder of a checkout whose local stack says this of itself."""
    stack = {
        "api": "http://127.0.0.1:1",
        "project": "p",
        "firestore": "127.0.0.1:2",
        "pubsub": "127.0.0.1:3",
        "storage": "http://127.0.0.1:4",
        "bucket": "b",
        "api_key": "key",
        "push_token": "token",
        "embedded": False,
        "functions": {"evaluate": "http://127.0.0.1:5", "reconcile": "http://127.0.0.1:6"},
        "topics": {"evaluate": "e", "notify": "n", "events": "v"},
        "pids": {"evaluate": [1]},
        **changes,
    }
    (folder / ".local").mkdir()
    (folder / ".local" / "stack.json").write_text(json.dumps(stack))
    return folder


def test_every_drill_that_was_asked_for_is_in_the_table() -> None:
    """The names are an interface: scripts call them."""
    assert {drill.name for drill in DRILLS} == NAMES
    listed = call(None, "drill", "--list", "--json")
    assert {row["drill"] for row in json.loads(listed.stdout)["drills"]} == NAMES
    assert "lost-notification-and-upload" in call(None, "drill", "--list").stdout


def test_the_local_stack_is_taken_from_its_file(tmp_path: Path) -> None:
    """Everything a drill needs stands in `stack.json`; no secret shows in its text."""
    deployment = find_deployment({}, stack_file(tmp_path))
    assert deployment.settings.on_emulators
    assert deployment.settings.evaluate_topic == "e"
    assert deployment.environment["EMPANEL_LEASE_SECONDS"] == "5"
    assert deployment.stack == tmp_path / ".local" / "stack.json"
    assert "token" not in repr(deployment).replace("reconcile_token", "")
    deployment.require_permission(allow_real=False)


def test_no_stack_an_embedded_one_or_a_broken_file_is_told(tmp_path: Path) -> None:
    """Nothing is injected where the ledger cannot be reached."""
    with pytest.raises(Unreachable, match="No local stack"):
        find_deployment({}, tmp_path)
    with pytest.raises(Misused, match="embedded"):
        find_deployment({}, stack_file(tmp_path, embedded=True))
    (tmp_path / ".local" / "stack.json").write_text("{}")
    with pytest.raises(Misused, match="cannot be read as a stack file"):
        find_deployment({}, tmp_path)


def test_a_real_deployment_needs_its_variables_and_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--allow-real` nothing runs there, and with it nothing that kills."""
    monkeypatch.setattr("functions.cli.reconciler._google_token", lambda audience: "token")
    for name in ("EMPANEL_API_KEY", "EMPANEL_RECONCILE_URL"):
        with pytest.raises(Misused, match=name):
            find_deployment({**REAL, name: ""}, tmp_path)
    deployment = find_deployment(REAL, tmp_path)
    with pytest.raises(DrillRefused, match="not on emulators"):
        deployment.require_permission(allow_real=False)
    deployment.require_permission(allow_real=True)
    assert deployment.stack is None
    assert {drill.name for drill in chosen((), local=False)} < NAMES
    with pytest.raises(DrillRefused, match="local stacks only"):
        chosen(["killed-evaluate"], local=False)
    with pytest.raises(DrillRefused, match="no drill 'lost'"):
        chosen(["lost"], local=True)


def test_whom_to_ask() -> None:
    """As named; else the first configured provider with the model named; else the stack's own."""
    plain = choose_asked({}, None, None)
    assert (plain.provider, plain.model) == ("openai", "smollm2")
    named = choose_asked({}, "other", "m")
    assert (named.provider, named.model) == ("other", "m")
    configured = {"ANTHROPIC_API_KEY": "key"}
    asked = choose_asked(configured | {"EMPANEL_DEMO_MODEL": "m"}, None, None)
    assert (asked.provider, asked.model) == ("anthropic", "m")
    with pytest.raises(Misused, match="--model"):
        choose_asked(configured, None, None)
    with pytest.raises(Misused, match="--model"):
        choose_asked({}, "other", None)
