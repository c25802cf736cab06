"""Small scenes that several cases play."""

import asyncio
import base64
import json
from typing import Any

from functions.core.jobs import Job
from functions.core.ports import Message
from functions.core.verdicts import CallRequest
from functions.web.push import answer_evaluate
from tests.faults.fakes import Reply
from tests.faults.processes import Process, Strike
from tests.faults.world import World, _application, request

CLOCK = "VirtualClock._drive"


def replies(world: World, *script: Reply | None) -> None:
    """Let the provider give these replies to each question in order; None and after: an answer."""
    answer = world.provider.answer

    def play(asked: CallRequest, number: int) -> Reply:
        reply = script[number - 1] if number <= len(script) else None
        return reply if reply is not None else answer(asked, number)

    world.provider.script = play


def strike_next(world: World, call: str, strike: Strike, *, times: int = 1) -> None:
    """Strike the next calls of a name, such as `evaluate: create object`."""
    left = iter(range(times))

    class Next(dict[str, Strike]):
        def get(self, name: str, default: object = None) -> Strike | None:  # type: ignore[override]
            return strike if name == call and next(left, None) is not None else None

    world.plan.always = Next()


def messages(world: World) -> list[Message]:
    """Take everything that is pending off the subscription."""
    world.collect()
    taken = [pushed.message for pushed in world.pending]
    world.pending.clear()
    return taken


async def deliver_at(world: World, seconds: float, message: Message) -> bool:
    """Push a message after so many seconds."""
    await world.clock.sleep(seconds)
    return await world.deliver(message)


async def push(world: World, body: bytes, process: Process | None = None) -> int:
    """Push raw bytes; return the status."""
    process = process or world.evaluator
    return (await answer_evaluate(_application(process), request(body))).status_code


def envelope(message: Message, **facts: Any) -> bytes:
    """Return the push envelope of a message, with more facts such as `deliveryAttempt`."""
    inner = {
        "data": base64.b64encode(message.data).decode(),
        "attributes": dict(message.attributes),
        "messageId": "m1",
        "publishTime": "2026-11-29T12:00:00Z",
    }
    return json.dumps({"message": inner, "subscription": "s", **facts}).encode()


def total_sent(world: World) -> int:
    """Return how many requests the provider got."""
    return sum(world.provider.sent.values())


def error_code(world: World, job: Job, index: int = 0) -> str | None:
    """Return the code with which a seat ended, None when it succeeded."""
    error = world.seats(job.id)[(1, index)].error
    return error.code if error is not None else None


async def tasks_left() -> set[str]:
    """Return what still runs now, besides this task and the clock."""
    await asyncio.sleep(0)  # what has ended just now is still to be taken off
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return {repr(task) for task in others if CLOCK not in repr(task)}
