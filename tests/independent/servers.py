"""Where the independent servers are installed, and how each is started.

`make independent` installs both in this folder: llmock (PyPI) into an environment of its own,
aimock (npm) into `node_modules`. Nothing of theirs is imported here.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from infra.local.errors import StackError

FOLDER = Path(__file__).parent
LLMOCK = FOLDER / ".venv" / "bin" / "llmock"
AIMOCK = FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
OLDEST_NODE = (20, 15)


class NotInstalled(StackError):
    """An independent server, or what runs it, is not on this machine."""


def llmock_command(port: int) -> list[str]:
    """Return the command that serves llmock. Raises `NotInstalled`."""
    if not LLMOCK.exists():
        raise NotInstalled("llmock is not installed: run `make independent`")
    return [str(LLMOCK), "serve", "--port", str(port)]


def aimock_command(port: int, fixtures: Path) -> list[str]:
    """Return the command that serves aimock with these fixtures and no others.

    Raises `NotInstalled`.
    """
    node = _node()
    if not AIMOCK.exists():
        raise NotInstalled("aimock is not installed: run `make independent`")
    options = ["--port", str(port), "--fixtures", str(fixtures), "--strict", "--validate-on-load"]
    return [node, str(AIMOCK), *options, "--log-level", "warn"]


def write_fixtures(path: Path, fixtures: list[dict[str, Any]]) -> Path:
    """Write what aimock answers, and return the file."""
    path.write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    return path


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("there is no Node.js on this machine")
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in shown.strip().lstrip("v").split(".")[:2])
    if version < OLDEST_NODE:
        raise NotInstalled(
            f"Node.js {shown.strip()} is older than {OLDEST_NODE[0]}.{OLDEST_NODE[1]}"
        )
    return node
