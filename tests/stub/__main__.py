"""Runs the stub: ``python -m tests.stub --port 0`` prints ``{"url": ...}`` when it listens.

It listens on 127.0.0.1 only and ends on SIGTERM, on SIGINT, and with ``--end-with-stdin`` when its
standard input is closed, so that it never outlives the test that started it.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from aiohttp import web

from tests.stub.script import Script
from tests.stub.server import Settings, StubServer

_SHUTDOWN_SECONDS = 0.2


def _arguments() -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m tests.stub", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--latency-seconds", type=float, default=defaults.latency_seconds)
    parser.add_argument("--jitter", type=float, default=defaults.jitter, help="0 to 1")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--api-key", default=defaults.api_key, help="the key that counts as right")
    parser.add_argument("--require-key", action="store_true", help="answer 401 to a wrong key")
    parser.add_argument("--script", type=Path, help="JSON file, see tests/stub/script.py")
    parser.add_argument("--end-with-stdin", action="store_true")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    settings = Settings(
        latency_seconds=arguments.latency_seconds,
        jitter=arguments.jitter,
        seed=arguments.seed,
        api_key=arguments.api_key,
        require_key=arguments.require_key,
    )
    script = Script()
    if arguments.script is not None:
        script = Script.model_validate_json(arguments.script.read_bytes())
    runner = web.AppRunner(
        StubServer(settings, script).application(),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", arguments.port, backlog=1024).start()
    port = runner.addresses[0][1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": os.getpid()}), flush=True)
    await _until_told(end_with_stdin=arguments.end_with_stdin)
    await runner.cleanup()


async def _until_told(*, end_with_stdin: bool) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), lambda: _end_of_input(told))
    await told.wait()


def _end_of_input(told: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        told.set()


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
