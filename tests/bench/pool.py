"""What a provider call costs in CPU time, with 64 calls under way at once.

    python -m tests.bench.pool

Ratios to a floor that is measured in the same run, so that they hold on any machine: aiohttp alone.
`httpx` is its default pool, which looks through all its connections at every request; `httpx on
aiohttp` has aiohttp's pool instead; `empanel` is the whole `HttpProvider` over that: request built,
sent, read, redacted and understood. The rounds of all clients are interleaved and the least of each
counts, since other work only adds. On a busy machine there are fewer rounds.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from functions.core.prompts import Rubric, answer_schema
from functions.core.verdicts import CallRequest, ProviderAnswer
from functions.providers import chat
from functions.providers.base import Endpoint, WireRequest
from functions.providers.http import HttpProvider

AT_ONCE = 64
CALLS = 128  # of each client in each round
MOST_ROUNDS = 8
ENOUGH_SECONDS = 10.0  # no further round begins after that
POOL = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
FLOOR = "aiohttp alone"

Ask = Callable[[], Awaitable[None]]

_QUESTION = CallRequest(
    model="m",
    system="You judge. " * 40,
    user="These are the facts. " * 100,
    schema=answer_schema(Rubric(instructions="Score it.")),
)


@contextmanager
def served() -> Iterator[str]:
    """Yield the base URL of a server that ends with the block."""
    command = [sys.executable, "-m", "tests.bench.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.stdin.close()


@asynccontextmanager
async def aiohttp_alone(endpoint: Endpoint, wire: WireRequest) -> AsyncIterator[Ask]:
    """Post the same bytes with aiohttp and read the answer's."""
    url = endpoint.base_url + wire.path
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def ask() -> None:
            async with session.post(url, data=wire.body, headers=wire.headers) as response:
                assert await response.read()

        yield ask


@asynccontextmanager
async def httpx_over(
    transport: httpx.AsyncBaseTransport, endpoint: Endpoint, wire: WireRequest
) -> AsyncIterator[Ask]:
    """Post the same bytes with httpx over a pool and read the answer's."""
    url = endpoint.base_url + wire.path
    async with httpx.AsyncClient(transport=transport, timeout=60) as client:

        async def ask() -> None:
            assert (await client.post(url, content=wire.body, headers=wire.headers)).content

        yield ask


@asynccontextmanager
async def empanel(endpoint: Endpoint) -> AsyncIterator[Ask]:
    """Ask the question as the product does."""
    provider = HttpProvider(endpoint, chat)

    async def ask() -> None:
        assert isinstance(await provider.call(_QUESTION), ProviderAnswer)

    yield ask
    await provider.aclose()


def clients(endpoint: Endpoint, wire: WireRequest) -> dict[str, AbstractAsyncContextManager[Ask]]:
    """Return the clients that are compared, by name."""
    return {
        FLOOR: aiohttp_alone(endpoint, wire),
        "httpx on aiohttp": httpx_over(AiohttpTransport(limits=POOL), endpoint, wire),
        "empanel": empanel(endpoint),
        "httpx": httpx_over(httpx.AsyncHTTPTransport(limits=POOL), endpoint, wire),
    }


async def cpu_seconds(ask: Ask) -> float:
    """Return this process's CPU time per call, with all calls made by so many at once."""

    async def work() -> None:
        for _ in range(CALLS // AT_ONCE):
            await ask()

    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return (time.process_time() - began) / CALLS


async def measure(base_url: str) -> list[dict[str, float]]:
    """Return each round's CPU seconds per call, by client."""
    endpoint = Endpoint(
        name="bench", base_url=base_url, api_key="sk-bench-0123456789abcdef", concurrency=AT_ONCE
    )
    wire = chat.build(endpoint, _QUESTION)
    assert isinstance(wire, WireRequest)
    rounds: list[dict[str, float]] = []
    async with AsyncExitStack() as stack:
        asking = {
            name: await stack.enter_async_context(client)
            for name, client in clients(endpoint, wire).items()
        }
        began = time.monotonic()
        while len(rounds) < 2 or (
            len(rounds) <= MOST_ROUNDS and time.monotonic() - began < ENOUGH_SECONDS
        ):
            rounds.append({name: await cpu_seconds(ask) for name, ask in asking.items()})
    return rounds[1:]  # the first one opens the connections


def main() -> None:
    """Measure, and print the table."""
    with served() as base_url:
        rounds = asyncio.run(measure(base_url))
    costs = {name: min(costs[name] for costs in rounds) for name in rounds[0]}
    print(f"{AT_ONCE} calls at once; CPU of the client's process; best of {len(rounds)} rounds\n")
    print(f"{'client':<18}{'µs per call':>12}{'ratio':>8}")
    for name, seconds in costs.items():
        print(f"{name:<18}{seconds * 1e6:>12.0f}{seconds / costs[FLOOR]:>8.2f}")


if __name__ == "__main__":
    main()
