"""Where the emulators can be started from: the jars of the Google Cloud CLI, or a Docker image."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.local.errors import EmulatorsUnavailable
from infra.local.java import JVM_FLAGS, find_java
from infra.local.network import LOOPBACK

COMMAND_SECONDS = 30
JAR_START_SECONDS = 60.0
IMAGE_START_SECONDS = 600.0  # the first start downloads the image
IMAGE = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
IMAGE_PORT = 8080


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """One of the two emulators: how it is named, and what each source calls it."""

    name: str
    host_variable: str
    jar: str
    """Glob of the jar, below the installation of the Google Cloud CLI."""
    java_arguments: tuple[str, ...]
    """What starts it, where `{jar}` stands for the jar's path."""
    gcloud_command: tuple[str, ...]


FIRESTORE = Emulator(
    name="firestore",
    host_variable="FIRESTORE_EMULATOR_HOST",
    jar="platform/cloud-firestore-emulator/cloud-firestore-emulator.jar",
    java_arguments=(
        "-cp",
        "{jar}",
        "com.google.cloud.datastore.emulator.firestore.CloudFirestore",
        "start",
    ),
    gcloud_command=("gcloud", "emulators", "firestore", "start"),
)
PUBSUB = Emulator(
    name="pubsub",
    host_variable="PUBSUB_EMULATOR_HOST",
    jar="platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar",
    java_arguments=("-jar", "{jar}"),
    gcloud_command=("gcloud", "beta", "emulators", "pubsub", "start"),
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A way to start an emulator that was found to exist on this machine."""

    command: Callable[[Emulator, int], list[str]]
    """The command line that serves an emulator on a loopback port."""
    start_seconds: float


def cli_source() -> Source:
    """The jars of the installed Google Cloud CLI, run directly: one process, quick to end.

    Raises:
        EmulatorsUnavailable: no CLI, no emulator components in it, or no Java.
    """
    root = _cli_root()
    jars = {emulator.name: _find_jar(root, emulator) for emulator in (FIRESTORE, PUBSUB)}
    java = find_java()
    if java is None:
        raise EmulatorsUnavailable("Google Cloud CLI: found, but there is no Java to run it")

    def command(emulator: Emulator, port: int) -> list[str]:
        arguments = [part.format(jar=jars[emulator.name]) for part in emulator.java_arguments]
        return [java, *JVM_FLAGS, *arguments, f"--host={LOOPBACK}", f"--port={port}"]

    return Source(command=command, start_seconds=JAR_START_SECONDS)


def _cli_root() -> Path:
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        raise EmulatorsUnavailable("Google Cloud CLI: not installed (no gcloud on PATH)")
    nearby = Path(gcloud).resolve().parents[1]
    if (nearby / "platform").is_dir():
        return nearby  # spares the second that gcloud takes to answer
    root = _output([gcloud, "info", "--format=value(installation.sdk_root)"])
    if not root:
        raise EmulatorsUnavailable("Google Cloud CLI: gcloud does not tell where it is installed")
    return Path(root)


def _find_jar(root: Path, emulator: Emulator) -> Path:
    jars = sorted(root.glob(emulator.jar))
    if not jars:
        raise EmulatorsUnavailable(
            f"Google Cloud CLI: the {emulator.name} emulator is not installed "
            f"(gcloud components install cloud-firestore-emulator pubsub-emulator)"
        )
    return jars[-1]


def docker_source() -> Source:
    """The emulator image, one container each, removed when its `docker run` ends.

    Raises:
        EmulatorsUnavailable: no Docker, or no engine that answers.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise EmulatorsUnavailable("Docker: not installed")
    if not _output([docker, "version", "--format", "{{.Server.Version}}"]):
        raise EmulatorsUnavailable("Docker: no engine answers")

    def command(emulator: Emulator, port: int) -> list[str]:
        published = f"{LOOPBACK}:{port}:{IMAGE_PORT}"
        serve = [*emulator.gcloud_command, f"--host-port=0.0.0.0:{IMAGE_PORT}"]
        return [docker, "run", "--rm", "--init", "--publish", published, IMAGE, *serve]

    return Source(command=command, start_seconds=IMAGE_START_SECONDS)


def _output(command: list[str]) -> str:
    """What a command prints, or nothing when it fails or hangs."""
    try:
        result = subprocess.run(  # noqa: S603 - fixed commands, no shell
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
