"""Google's Firestore and Pub/Sub emulators: found running, or started from what the machine has.

1. `FIRESTORE_EMULATOR_HOST` / `PUBSUB_EMULATOR_HOST` name emulators that run already.
2. The others are started from `emulator_sources`: the Google Cloud CLI, else Docker.

`EmulatorsUnavailable` says what was tried. Whether the caller may then fall back to the embedded
stack is decided by `emulators_required()`: CI sets `EMPANEL_REQUIRE_EMULATORS=1`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local.emulator_sources import (
    FIRESTORE,
    PUBSUB,
    Emulator,
    Source,
    cli_source,
    docker_source,
)
from infra.local.errors import EmulatorsUnavailable, ProcessFailed, StackError
from infra.local.network import LOOPBACK, answers_ok, free_port, loopback_client, wait_until_ready
from infra.local.processes import Child, Children, child_environment


@dataclass(frozen=True, kw_only=True)
class EmulatorHosts:
    """Where the emulators listen, as `host:port`."""

    firestore: str
    pubsub: str


@dataclass(frozen=True, kw_only=True)
class RunningEmulators:
    """The emulators' addresses, and the processes among them that this program started."""

    hosts: EmulatorHosts
    started: tuple[Child, ...]


def emulators_required() -> bool:
    """Whether missing emulators are an error (`EMPANEL_REQUIRE_EMULATORS=1`), as in CI."""
    value = os.environ.get("EMPANEL_REQUIRE_EMULATORS", "0")
    if value not in ("0", "1"):
        raise StackError(f"EMPANEL_REQUIRE_EMULATORS={value!r}: must be 0 or 1")
    return value == "1"


@asynccontextmanager
async def emulators(logs: Path) -> AsyncIterator[EmulatorHosts]:
    """Both emulators for the length of the block; those started here end with it.

    Raises:
        EmulatorsUnavailable: no source works here.
        StackError: a host variable is set, but nothing answers there.
    """
    async with Children(logs) as children:
        yield (await start_emulators(children)).hosts


async def start_emulators(children: Children) -> RunningEmulators:
    """Find or start both emulators; those that are started belong to `children`.

    Raises:
        EmulatorsUnavailable: no source works here; the message names each and its reason.
        StackError: a host variable is set, but nothing answers there.
    """
    hosts: dict[str, str] = {}
    missing: list[Emulator] = []
    for emulator in (FIRESTORE, PUBSUB):
        if host := os.environ.get(emulator.host_variable):
            await _require_answer(emulator, host)
            hosts[emulator.name] = host
        else:
            missing.append(emulator)
    started = await _start_missing(missing, children) if missing else {}
    hosts |= {name: host for name, (host, _) in started.items()}
    return RunningEmulators(
        hosts=EmulatorHosts(firestore=hosts[FIRESTORE.name], pubsub=hosts[PUBSUB.name]),
        started=tuple(child for _, child in started.values()),
    )


async def _require_answer(emulator: Emulator, host: str) -> None:
    async with loopback_client() as client:
        if not await answers_ok(client, f"http://{host}/"):
            raise StackError(f"{emulator.host_variable}={host}: no emulator answers there")


async def _start_missing(
    missing: Sequence[Emulator], children: Children
) -> dict[str, tuple[str, Child]]:
    reasons = []
    for find_source in (cli_source, docker_source):
        try:
            source = await asyncio.to_thread(find_source)
            return await _start_from(source, missing, children)
        except (EmulatorsUnavailable, ProcessFailed) as exc:
            reasons.append(f"- {exc}")
    raise EmulatorsUnavailable("\n".join(["no emulators can be had here:", *reasons]))


async def _start_from(
    source: Source, missing: Sequence[Emulator], children: Children
) -> dict[str, tuple[str, Child]]:
    """Start all of them, then wait for each: they take their time side by side."""
    started: dict[str, tuple[str, Child]] = {}
    try:
        for emulator in missing:
            port = free_port()
            child = children.start(
                emulator.name, source.command(emulator, port), child_environment()
            )
            started[emulator.name] = (f"{LOOPBACK}:{port}", child)
        for host, child in started.values():
            await wait_until_ready(child, f"http://{host}/", source.start_seconds)
    except ProcessFailed:
        for _, child in started.values():
            await children.stop(child, grace_seconds=1)
        raise
    return started
