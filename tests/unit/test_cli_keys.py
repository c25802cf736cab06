"""The `keys` commands: which ledger they mean, and what they refuse before they open it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from functions.cli.exits import Misused, Unreachable
from functions.cli.key_store import find_settings
from tests.unit.test_cli import call

API = "http://127.0.0.1:8080"
STACK = {"api": API, "project": "local", "firestore": "127.0.0.1:9", "api_key": "ek_secret"}
CLOUD = {"GOOGLE_CLOUD_PROJECT": "cloud"}


def checkout(folder: Path, stack: object = None) -> Path:
    if stack is not None:
        (folder / ".local").mkdir()
        (folder / ".local" / "stack.json").write_text(json.dumps(stack))
    return folder


@pytest.mark.parametrize("environ", [{}, CLOUD, {"EMPANEL_URL": f"{API}/"}, {"EMPANEL_URL": ""}])
def test_a_running_stack_is_meant(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """Also with a project in the environment: a key for it is not made by mistake."""
    settings, place = find_settings(environ, checkout(tmp_path, STACK))
    assert (settings.project, settings.firestore_emulator) == ("local", "127.0.0.1:9")
    assert place == "the local stack"


def test_another_address_means_the_project(tmp_path: Path) -> None:
    """EMPANEL_URL names another deployment: its project is opened, with its retention."""
    environ = {**CLOUD, "EMPANEL_URL": "https://api.example", "EMPANEL_RETENTION_DAYS": "30"}
    settings, place = find_settings(environ, checkout(tmp_path, STACK))
    assert (settings.project, settings.firestore_emulator) == ("cloud", None)
    assert (settings.retention_days, place) == (30, "the project cloud")


def test_without_a_stack_the_project_is_meant(tmp_path: Path) -> None:
    """With an emulator if one is named; other settings do not matter here."""
    environ = {**CLOUD, "FIRESTORE_EMULATOR_HOST": "h:1", "EMPANEL_LEASE_SECONDS": "nonsense"}
    settings, _ = find_settings(environ, tmp_path)
    assert (settings.project, settings.firestore_emulator) == ("cloud", "h:1")


@pytest.mark.parametrize(
    ("environ", "stack"),
    [
        ({}, None),
        ({"EMPANEL_URL": "https://api.example"}, STACK),
        ({}, {**STACK, "firestore": None}),
        ({**CLOUD, "EMPANEL_RETENTION_DAYS": "many"}, None),
    ],
)
def test_where_no_ledger_is_meant_the_command_is_misused(
    tmp_path: Path, environ: Mapping[str, str], stack: object
) -> None:
    """Nothing is guessed: no stack and no project, an embedded one, a bad setting."""
    with pytest.raises(Misused):
        find_settings(environ, checkout(tmp_path, stack))


def test_a_stack_file_that_is_none_is_told(tmp_path: Path) -> None:
    """A half-written or foreign file does not lead to the cloud."""
    with pytest.raises(Unreachable, match="stack file"):
        find_settings(CLOUD, checkout(tmp_path, {"other": 1}))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--tenant", "A/b"),
        ("--tenant", "-a"),
        ("--role", "admin"),
        ("--name", "two\nlines"),
        ("--name", ""),
        ("--expires-days", "0"),
    ],
)
def test_a_bad_option_is_refused(option: str, value: str) -> None:
    """2, with the option named, before any ledger is opened."""
    options = {"--tenant": "a", "--role": "submitter", "--name": "n", option: value}
    result = call(None, "keys", "create", *(part for pair in options.items() for part in pair))
    assert result.exit_code == 2
    assert option in result.stderr
