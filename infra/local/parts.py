"""The parts under the functions: emulators, bucket, model. Their data ends with the stack."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.local.emulators import EmulatorHosts, emulators_required, start_emulators
from infra.local.errors import EmulatorsUnavailable, StackError
from infra.local.files import write_atomically
from infra.local.model import KEY_VARIABLE, PROVIDER_TABLE, ModelServer, require_packages
from infra.local.network import free_port, wait_until_ready
from infra.local.options import StackOptions
from infra.local.processes import Child, Children, child_environment
from infra.local.storage import start_storage

MODEL_START_SECONDS = 60.0

log = logging.getLogger("stack")


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The emulated services; on the embedded stack there are none."""

    hosts: EmulatorHosts
    storage: str
    started: tuple[Child, ...]
    """The processes whose end is the end of the stack."""

    def environment(self) -> dict[str, str]:
        """The variables by which Google's clients find the emulators."""
        return {
            "FIRESTORE_EMULATOR_HOST": self.hosts.firestore,
            "PUBSUB_EMULATOR_HOST": self.hosts.pubsub,
            "STORAGE_EMULATOR_HOST": self.storage,
        }


async def start_backend(options: StackOptions, children: Children, data: Path) -> Backend | None:
    """Start or find the emulated services; None means: run embedded.

    Raises:
        EmulatorsUnavailable: there are none, and `EMPANEL_REQUIRE_EMULATORS=1` forbids to go on.
    """
    if options.wants_embedded:
        return None
    hosts = options.emulators
    started: tuple[Child, ...] = ()
    if hosts is None:
        try:
            running = await start_emulators(children)
        except EmulatorsUnavailable as exc:
            if emulators_required() or options.embedded is False:
                raise
            log.warning("%s\nThe stack runs embedded: in memory, in one process.", exc)
            return None
        hosts, started = running.hosts, running.started
    child, storage = await start_storage(children, data)
    return Backend(hosts=hosts, storage=storage, started=(*started, child))


async def start_model(children: Children, providers: Path) -> tuple[Child, Mapping[str, str]]:
    """Start the local model; its process, and the variables that make it the provider.

    `providers` is the file to write for `EMPANEL_PROVIDERS`.

    Raises:
        StackError: its packages are not installed, or it does not start.
    """
    require_packages()
    server = ModelServer(port=free_port(), key=secrets.token_urlsafe(24))
    child = children.start(
        "model", server.command(), child_environment(**{KEY_VARIABLE: server.key})
    )
    await wait_until_ready(child, server.health_url, MODEL_START_SECONDS)
    write_atomically(providers, PROVIDER_TABLE)
    return child, {
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": server.key,
        "EMPANEL_PROVIDERS": str(providers),
    }


def check(options: StackOptions) -> None:
    """Refuse bad values and contradictions before anything is started.

    Raises:
        StackError: names the variable, its value and the rule.
    """
    if emulators_required() and options.wants_embedded:
        raise StackError("EMPANEL_EMBEDDED=1 and EMPANEL_REQUIRE_EMULATORS=1 exclude each other")
    _ = options.repair_seconds
