"""Waiting for conditions: the only way in which these tests let time pass."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.1


async def until(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool],
    *,
    what: str,
    timeout_seconds: float = 30.0,
    look_seconds: float = POLL_SECONDS,
) -> T:
    """Look again and again until what is seen holds, and return it.

    Raises:
        TimeoutError: it does not hold in time; quotes what was seen last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while not holds(seen := await look()):
        if loop.time() > deadline:
            raise TimeoutError(f"{what}: not so after {timeout_seconds:g} s, last seen: {seen!r}")
        await asyncio.sleep(look_seconds)
    return seen
