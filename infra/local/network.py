"""Ports and readiness on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from infra.local.errors import PortTaken
from infra.local.processes import Child

LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 0.05


def free_port() -> int:
    """A port that was free a moment ago; the kernel does not hand it out again at once."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def require_free(port: int) -> None:
    """Raise `PortTaken` when something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as exc:
            raise PortTaken(
                f"port {port} on {LOOPBACK} cannot be used ({exc.strerror}): "
                "end what uses it, or choose another one, for example `make up PORT=8090`"
            ) from exc


@asynccontextmanager
async def loopback_client(timeout_seconds: float = 30.0) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client for the stack's own parts, which no proxy setting can divert."""
    async with httpx.AsyncClient(trust_env=False, timeout=timeout_seconds) as client:
        yield client


async def answers_ok(client: httpx.AsyncClient, url: str) -> bool:
    """Whether a GET answers 200 right now."""
    try:
        return (await client.get(url)).status_code == 200
    except httpx.TransportError:
        return False


async def wait_until_ready(child: Child, url: str, timeout_seconds: float) -> None:
    """Wait until the child's URL answers 200.

    Raises:
        ProcessFailed: the child ended first, or the time is over; quotes the child's log.
    """
    async with loopback_client() as client:
        try:
            async with asyncio.timeout(timeout_seconds):
                while not await answers_ok(client, url):
                    if child.exit_code is not None:
                        raise child.failure(f"ended with exit code {child.exit_code}")
                    await asyncio.sleep(PROBE_SECONDS)
        except TimeoutError as exc:
            raise child.failure(f"was not ready within {timeout_seconds:g} s") from exc
