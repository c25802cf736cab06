"""The image without Docker: its files in a folder, and its start command as a process."""

import compileall
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.local.network import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
AUDIENCE = "https://a.internal"
ACCOUNT = "push@p.iam.gserviceaccount.com"
NOWHERE = "127.0.0.1:9"
WEBHOOK_SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY="


def dockerfile() -> str:
    """Return the text of the Dockerfile."""
    return (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")


def lay_out(app: Path) -> Path:
    """Put the files that the image holds into a folder, compiled as there, and return it.

    Raises:
        AssertionError: a file would not reach the build.
    """
    app.mkdir(parents=True)
    copied = re.findall(r"^COPY (?!--from)(\S+) (\S+)$", dockerfile(), re.MULTILINE)
    kept = (REPOSITORY / ".dockerignore").read_text().split()
    for source, _ in copied:
        assert f"!{source}" in kept, f"{source} is not in the build's context"
        if source == "requirements.txt":
            continue
        path = REPOSITORY / source
        if path.is_dir():
            shutil.copytree(path, app / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, app / source)
    compileall.compile_dir(app, quiet=1)
    return app


def environment(target: str, port: int, **changes: str) -> dict[str, str]:
    """Return the whole environment of a process of the image."""
    return {
        "PATH": os.environ["PATH"],
        "FUNCTION_TARGET": target,
        "PORT": str(port),
        "GOOGLE_CLOUD_PROJECT": "p",
        "FIRESTORE_EMULATOR_HOST": NOWHERE,
        "PUBSUB_EMULATOR_HOST": NOWHERE,
        "STORAGE_EMULATOR_HOST": f"http://{NOWHERE}",
        "EMPANEL_HOST": "127.0.0.1",
        "EMPANEL_PUSH_AUDIENCE": AUDIENCE,
        "EMPANEL_PUSH_ACCOUNTS": ACCOUNT,
        "EMPANEL_WEBHOOK_SECRETS": WEBHOOK_SECRET,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    } | changes


def start_command() -> list[str]:
    """Return the image's command, run by this Python."""
    command = shlex.split(dockerfile().rpartition("CMD ")[2].strip("[]\n").replace(",", " "))
    assert command[0] == "python"
    return [sys.executable, *command[1:]]


@contextmanager
def serving(
    app: Path, target: str, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Start the image's command for one target: its address and the process, which ends here."""
    port = free_port()
    with subprocess.Popen(
        start_command(),
        cwd=app,
        env=environment(target, port, **(settings or {})),
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()
