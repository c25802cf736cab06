"""A second worker on the same ledger, in a process that can be killed: `python -m ...drill.worker`.

Reads its orders as one JSON line, then obeys lines and tells what happens in lines:

    in:  go | answer | failure          out: ready | called | upload | ended DELIVERY
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NoReturn

from functions import config
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.pubsub import PubsubPublisher
from functions.bootstrap import wire
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.dispatch import SeatMessage
from functions.drill.faults import ANSWER, HeldUploads, StandIn
from functions.evaluation import evaluate
from functions.services import Services

LATE_FAILURE = CallFailure(
    code="provider_error", message="a late failure, made by a drill", http_status=500
)


class Plan(StrEnum):
    """What the worker does with its call."""

    ANSWER = "answer"  # answer after `call_seconds`
    HOLD_UPLOAD = "hold-upload"  # answer, and never begin to store the answer
    WAIT = "wait"  # answer or fail when told to


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker is to do: one seat of one job, with a stand-in for the provider."""

    environ: dict[str, str]
    message: SeatMessage
    provider: str
    endpoint: str
    plan: Plan
    call_seconds: float = 0.0

    def line(self) -> bytes:
        """Return the orders as the worker reads them."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> "Orders":
        """Return the orders in a line."""
        values: dict[str, Any] = json.loads(line)
        values["message"] = SeatMessage(**values["message"])
        return cls(**(values | {"plan": Plan(values["plan"])}))


def say(*words: str) -> None:
    """Tell the drill what has happened, at once."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def work(orders: Orders, told: asyncio.StreamReader) -> None:
    """Evaluate the seat as a function process would."""
    services = _services(orders, told)
    say("ready")
    await _line(told)
    until = services.clock.monotonic() + services.settings.handler_deadline_seconds
    delivery = await evaluate(services, orders.message, until=until)
    say("ended", delivery.value)


async def _line(told: asyncio.StreamReader) -> bytes:
    """Return what the drill says next; a worker whose drill is gone dies as if killed."""
    if not (line := await told.readline()):
        os._exit(1)
    return line.strip()


def _services(orders: Orders, told: asyncio.StreamReader) -> Services:
    settings = config.load(orders.environ)
    clock = SystemClock()

    async def answer() -> ProviderAnswer | CallFailure:
        say("called")
        await asyncio.sleep(orders.call_seconds)
        if orders.plan is not Plan.WAIT:
            return ANSWER
        return LATE_FAILURE if await _line(told) == b"failure" else ANSWER

    async def hold() -> NoReturn:
        say("upload")
        while True:
            await _line(told)

    objects = GcsObjects(settings.bucket, emulator_host=settings.storage_emulator)
    if orders.plan is Plan.HOLD_UPLOAD:
        objects = HeldUploads(
            settings.bucket,
            emulator_host=settings.storage_emulator,
            hold=hold,
        )
    stand_in = StandIn(name=orders.provider, endpoint=orders.endpoint, answer=answer)
    return wire(
        settings,
        clock=clock,
        ledger=FirestoreLedger(
            settings.project, emulator_host=settings.firestore_emulator, clock=clock
        ),
        objects=objects,
        publisher=PubsubPublisher(settings.project, emulator_host=settings.pubsub_emulator),
        providers={stand_in.name: stand_in},
    )


async def _main() -> None:
    told = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    await work(Orders.read(await told.readline()), told)


if __name__ == "__main__":
    asyncio.run(_main())
