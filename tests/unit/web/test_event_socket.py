"""Events over a real connection to the real server: sent at once, and given up with the caller."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import uvicorn

from functions import bootstrap
from functions.adapters.clock import SystemClock
from functions.serving import create_app
from functions.web.application import Application
from tests.e2e.waiting import until
from tests.faults.world import World, submission
from tests.unit.web.listening import KEY, listened_api

LEFT_SECONDS = 5.0


@asynccontextmanager
async def served(application: Application) -> AsyncIterator[int]:
    """The `api` target over an application, on a free port of this machine; the port."""
    bootstrap.use_application(application)
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(create_app("api"), log_config=None, lifespan="off")
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def connected(port: int, job: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a job's events; return the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


async def test_a_caller_who_leaves_takes_everything_with_him() -> None:
    """The first event comes while the job is open; after the close no place, no look is left."""
    world = World()
    job = await world.submit(submission())
    application = await listened_api(world)
    services = replace(application.services, clock=SystemClock())
    application = replace(application, services=services)
    async with served(application) as port, asyncio.timeout(60):
        tasks = asyncio.all_tasks()
        connections = [await connected(port, job.id) for _ in range(3)]
        for reader, _ in connections:
            assert b" 200 OK" in await reader.readline()
            await reader.readuntil(b"event: job")
        assert application.waits._taken.total() == 3
        assert len(application.watches) == 1
        for _, writer in connections:
            writer.close()

        async def left() -> tuple[int, int, int]:
            tasks_left = len(asyncio.all_tasks() - tasks)
            return application.waits._taken.total(), len(application.watches), tasks_left

        await until(
            left, lambda seen: seen == (0, 0, 0), what="all is free", timeout_seconds=LEFT_SECONDS
        )
