"""Where emulators come from, and what is said when there are none."""

import asyncio
import stat
import sys
from pathlib import Path

import pytest

from infra.local.emulator_sources import FIRESTORE, PUBSUB, cli_source, docker_source
from infra.local.emulators import emulators, emulators_required
from infra.local.errors import EmulatorsUnavailable, StackError
from infra.local.network import answers_ok, loopback_client

DOCKER = f"""#!{sys.executable}
import http.server, sys
if sys.argv[1] == "version":
    print("27.0")
    raise SystemExit
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
host, port, _ = sys.argv[sys.argv.index("--publish") + 1].split(":")
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


def _install(folder: Path, name: str, program: str) -> None:
    path = folder / name
    path.write_text(program)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, the Google Cloud CLI and Docker; returns its only PATH folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    return programs


async def test_a_bare_machine_is_told_what_was_tried(bare_machine: Path, tmp_path: Path) -> None:
    """The error names every source and why it does not work, so that the user can repair one."""
    with pytest.raises(EmulatorsUnavailable) as raised:
        async with emulators(tmp_path / "logs"):
            pass
    assert "Google Cloud CLI: not installed" in str(raised.value)
    assert "Docker: not installed" in str(raised.value)


async def test_docker_serves_where_there_is_no_cloud_cli(
    bare_machine: Path, tmp_path: Path
) -> None:
    """With a Docker engine only, each emulator is a container that ends with the block."""
    _install(bare_machine, "docker", DOCKER)
    async with loopback_client() as client:
        async with emulators(tmp_path / "logs") as hosts:
            assert await answers_ok(client, f"http://{hosts.firestore}/")
            assert await answers_ok(client, f"http://{hosts.pubsub}/")
        assert not await answers_ok(client, f"http://{hosts.firestore}/")


def test_a_docker_command_without_an_engine_does_not_count(bare_machine: Path) -> None:
    """An installed client is no engine."""
    _install(bare_machine, "docker", f"#!{sys.executable}\nraise SystemExit(1)\n")
    with pytest.raises(EmulatorsUnavailable, match="no engine answers"):
        docker_source()


def test_missing_components_are_named(bare_machine: Path, tmp_path: Path) -> None:
    """A Google Cloud CLI without the emulators gets the command that installs them."""
    (tmp_path / "platform").mkdir()
    _install(bare_machine, "gcloud", "#!/bin/sh\n")
    with pytest.raises(EmulatorsUnavailable, match="gcloud components install"):
        cli_source()


def test_each_source_serves_both_emulators_on_loopback_only(bare_machine: Path) -> None:
    """Nothing of the stack listens on an address that others can reach."""
    _install(bare_machine, "docker", DOCKER)
    source = docker_source()
    for emulator in (FIRESTORE, PUBSUB):
        command = source.command(emulator, 4711)
        assert command[command.index("--publish") + 1].startswith("127.0.0.1:4711:")


async def test_a_configured_emulator_that_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong host variable is reported, not worked around."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    with pytest.raises(StackError, match=r"FIRESTORE_EMULATOR_HOST=127\.0\.0\.1:1"):
        async with asyncio.timeout(20), emulators(tmp_path):
            pass


@pytest.mark.parametrize(("value", "required"), [("1", True), ("0", False)])
def test_emulators_are_demanded_by_one_variable(
    value: str, required: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI sets EMPANEL_REQUIRE_EMULATORS=1."""
    monkeypatch.setenv("EMPANEL_REQUIRE_EMULATORS", value)
    assert emulators_required() is required
