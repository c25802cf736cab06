"""The stack's folder: one stack at a time, two generations of logs, one file of facts."""

import json
from pathlib import Path

import pytest

from functions.providers.presets import provider_variables
from infra.local.errors import AlreadyRunning, PortTaken, StackError
from infra.local.folder import StackFolder
from infra.local.info import StackInfo
from infra.local.network import require_free
from infra.local.options import StackOptions

INFO = StackInfo(
    api="http://127.0.0.1:8080",
    project="p",
    firestore="127.0.0.1:1",
    pubsub="127.0.0.1:2",
    storage="http://127.0.0.1:3",
    bucket="b",
    api_key="ek_x",
    push_token="t",
    webhook_secret="whsec_s",
    embedded=False,
    functions={"evaluate": "http://127.0.0.1:4"},
    topics={"evaluate": "empanel-evaluate"},
    pids={"api": [1], "evaluate": [2]},
    supervisor=3,
    parts={"storage": 4},
)


def test_a_second_stack_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Two stacks never share a folder; the second one is told where the first one is."""
    second = StackFolder(tmp_path)
    with (
        StackFolder(tmp_path).in_use(),
        pytest.raises(AlreadyRunning, match=r"stack\.json"),
        second.in_use(),
    ):
        pass
    with StackFolder(tmp_path).in_use():
        assert StackFolder(tmp_path).logs.is_dir()


def test_the_logs_of_the_last_stack_are_kept_aside(tmp_path: Path) -> None:
    """A start begins with empty logs, and the ones before can still be read."""
    folder = StackFolder(tmp_path)
    for text in ("first", "second"):
        with folder.in_use():
            (folder.logs / "api.log").write_text(text)
    with folder.in_use():
        assert list(folder.logs.iterdir()) == []
        assert (folder.earlier_logs / "api.log").read_text() == "second"


def test_nothing_but_logs_is_left_behind(tmp_path: Path) -> None:
    """Facts, keys and objects of a stack are gone when it has ended."""
    folder = StackFolder(tmp_path)
    with folder.in_use():
        INFO.save(folder.info)
        folder.bridge_plan.write_text("{}")
        (folder.objects / "bucket").mkdir()
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "logs"}


def test_the_facts_survive_the_file(tmp_path: Path) -> None:
    """What is read from stack.json is what was written, under the documented names."""
    INFO.save(tmp_path / "stack.json")
    assert StackInfo.load(tmp_path / "stack.json") == INFO
    assert {"api", "firestore", "pubsub", "storage", "bucket", "api_key", "push_token", "embedded",
            "functions", "topics", "pids", "project"} <= set(
        json.loads((tmp_path / "stack.json").read_text())
    )  # fmt: skip


def test_a_port_in_use_is_named() -> None:
    """The user learns which port is taken and how to choose another."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} .*PORT="):
            require_free(port)


@pytest.mark.parametrize("value", ["0", "61", "-1", "soon", "nan"])
def test_a_bad_repair_period_is_named(value: str) -> None:
    """A bad value stops the start with the name, the value and the rule."""
    options = StackOptions(environment={"EMPANEL_REPAIR_SECONDS": value})
    with pytest.raises(StackError, match=f"EMPANEL_REPAIR_SECONDS='{value}': must be"):
        _ = options.repair_seconds


@pytest.mark.parametrize(
    "name", ["OPENAI_BASE_URL", "EMPANEL_PROVIDERS", "GOOGLE_GEMINI_BASE_URL", "MISTRAL_API_KEY"]
)
def test_a_configured_provider_replaces_the_local_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small model is served only when there is nothing else to ask."""
    assert name in provider_variables()
    for variable in provider_variables():
        monkeypatch.delenv(variable, raising=False)
    assert StackOptions().serves_model
    assert not StackOptions(environment={name: "x"}).serves_model
