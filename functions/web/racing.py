"""Work side by side of which only the first to end counts."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run until one has ended; then cancel the others and wait for their end.

    What the ended one raised is raised.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
