"""The embedded stack's process, seen from the supervisor: all functions in it, data in its memory.

For machines without any emulator. It is not started again when it ends: its data ended with it.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from infra.local.files import write_atomically
from infra.local.fleet import Launch
from infra.local.network import LOOPBACK, free_port, wait_until_ready
from infra.local.processes import Child, child_environment
from infra.local.targets import API, TARGETS
from infra.local.tokens import SigningKey

START_SECONDS = 60.0
NOT_SET = ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "STORAGE_EMULATOR_HOST")


@dataclass(frozen=True, kw_only=True)
class EmbeddedPlan:
    """What the process needs beyond the functions' environment; the port of each target."""

    ports: Mapping[str, int]
    api_key: str
    audience: str
    account: str
    key: SigningKey

    def save(self, path: Path) -> None:
        """Write the plan for the process that will read it."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        fields = json.loads(path.read_text())
        return cls(key=SigningKey(**fields.pop("key")), **fields)


@dataclass(frozen=True, kw_only=True)
class EmbeddedFunctions:
    """All functions in one process, each at a port of its own."""

    ports: Mapping[str, int]
    pid: int

    def urls(self, target: str) -> list[str]:
        """The address of a function."""
        return [f"http://{LOOPBACK}:{self.ports[target]}"]

    def pids(self) -> dict[str, list[int]]:
        """The one process, for every function."""
        return {target: [self.pid] for target in self.ports}


def choose_ports(api_port: int | None) -> dict[str, int]:
    """A port for each target; the API's may be chosen by the caller."""
    return {target.name: (api_port if target == API else None) or free_port() for target in TARGETS}


async def start_embedded(
    launch: Launch, plan: EmbeddedPlan, path: Path
) -> tuple[Child, EmbeddedFunctions]:
    """Start the process and wait until it serves.

    Raises:
        ProcessFailed: it ended or was not ready in time; quotes its log.
    """
    plan.save(path)
    environment = child_environment(**{**launch.environment, **launch.options.environment})
    for variable in NOT_SET:
        environment.pop(variable, None)
    command = [sys.executable, "-m", "infra.local.embedded_process", str(path)]
    child = launch.children.start("embedded", command, environment)
    functions = EmbeddedFunctions(ports=plan.ports, pid=child.pid)
    await wait_until_ready(child, f"{functions.urls(API.name)[0]}/health", START_SECONDS)
    return child, functions
