"""`python -m infra.local up|demo`: what the Makefile runs.

Exit codes: 0 ended as asked, 1 the stack could not start or broke, 2 bad usage; `demo` gives its
own code otherwise.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

from infra.local.demo import demo
from infra.local.errors import StackError
from infra.local.options import StackOptions
from infra.local.stack import Stack

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        return asyncio.run(_until_signalled(parsed))
    except StackError as exc:
        _say(f"error: {exc}", sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run the stack until Ctrl-C or SIGTERM")
    up.add_argument("--port", type=int, default=8080, help="the API's port (default 8080)")
    show = commands.add_parser("demo", help="run the demo on a stack of its own")
    show.add_argument("--keep", action="store_true", help="leave the stack up afterwards")
    return parser


async def _until_signalled(parsed: argparse.Namespace) -> int:
    """Run the command; the first end signal cancels it, and later ones change nothing.

    Ending by a signal is the normal end of `up`, not of a demo that was cut short.
    """
    work = asyncio.create_task(_up(parsed.port) if parsed.command == "up" else _demo(parsed.keep))
    received: list[int] = []

    def end(signal_number: int) -> None:
        received.append(signal_number)
        if len(received) == 1:
            work.cancel()

    loop = asyncio.get_running_loop()
    for signal_number in END_SIGNALS:
        loop.add_signal_handler(signal_number, end, signal_number)
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        return 0 if parsed.command == "up" else 128 + received[0]


async def _up(port: int) -> int:
    _say("Starting the local stack ...")
    async with Stack(StackOptions(api_port=port)) as stack:
        _print_addresses(stack)
        await stack.run(_for_ever())
    return 0


async def _demo(keep: bool) -> int:
    _say("Starting the local stack ...")
    async with Stack(StackOptions()) as stack:
        code = await stack.run(demo(stack.info))
        if keep:
            _print_addresses(stack)
            await stack.run(_for_ever())
    return code


def _print_addresses(stack: Stack) -> None:
    info = stack.info
    _say(
        f"Console:         {info.api}/ (sign in with the API key)\n"
        f"API:             {info.api}\n"
        f"API key:         {info.api_key}\n"
        f"Details:         {stack.folder.info}\n"
        f"Logs:            {stack.folder.logs}\n"
        "Ctrl-C ends the stack."
    )


def _say(text: str, stream: TextIO = sys.stdout) -> None:
    print(text, file=stream, flush=True)


async def _for_ever() -> None:
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
