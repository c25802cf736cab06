"""One message per open seat, on the topic that feeds `evaluate`.

Published only after the commit that makes the seat real: a message for a job that was never
recorded would be worked on by nobody, while a job without its message is found by repair.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from functions import telemetry
from functions.core.documents import job_path
from functions.core.errors import (
    LedgerUnavailable,
    PublishFailed,
    UnreadableRecord,
    WriteConflict,
)
from functions.core.identities import is_identity
from functions.core.jobs import Job
from functions.core.ports import Message, Update
from functions.core.versions import SEAT_MESSAGE, THIS_MESSAGE
from functions.services import Services

START_SECONDS = 5.0  # what a caller waits for the topic; repair publishes what it did not take


@dataclass(frozen=True, kw_only=True, slots=True)
class SeatMessage:
    """What a delivery is about: one seat of one run. `work_key` lets a single read fetch all.

    `published_at` is known of a message that was delivered.
    """

    job: str
    run: int
    seat: int
    work_key: str
    traceparent: str | None = None
    published_at: datetime | None = None


async def dispatch(services: Services, job: Job, seats: Iterable[int]) -> None:
    """Publish one message for each seat index given.

    Safe to repeat: deliveries of a seat that has ended, or that somebody works on, buy nothing.

    Raises:
        PublishFailed: not every message was confirmed; repair will publish again.
    """
    messages = [encode(seat_message(job, index)) for index in seats]
    if messages:
        topic = services.settings.evaluate_topic
        with services.tracing.sending(topic, job.traceparent, len(messages)):
            await services.publisher.publish(topic, messages)


async def start(services: Services, job: Job, seats: Iterable[int], update_time: datetime) -> None:
    """Publish the seats of a run that was just recorded; what fails is left to repair.

    `update_time` is that of the job's document as it was recorded.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            await dispatch(services, job, seats)
    except (PublishFailed, TimeoutError) as exc:
        telemetry.warning("dispatch failed, left to repair", job=job.id, error=str(exc)[:300])
        await _check_soon(services, job, update_time)


async def _check_soon(services: Services, job: Job, update_time: datetime) -> None:
    """Let repair look at once; when that fails too, the first check stands."""
    fields = {"check_at": services.clock.now()}
    update = Update(path=job_path(job.id), fields=fields, if_updated_at=update_time)
    try:
        await services.ledger.commit(update)
    except (WriteConflict, LedgerUnavailable) as exc:
        telemetry.warning("check not moved", job=job.id, error=type(exc).__name__)


def seat_message(job: Job, index: int) -> SeatMessage:
    """Return the message of one seat of the job's current run."""
    return SeatMessage(
        job=job.id,
        run=job.run,
        seat=index,
        work_key=job.seats[index].work_key,
        traceparent=job.traceparent,
    )


def encode(message: SeatMessage) -> Message:
    """Return the message as published; identities also stand in the attributes, for people."""
    body = {
        "v": SEAT_MESSAGE.written,
        "job": message.job,
        "run": message.run,
        "seat": message.seat,
        "work_key": message.work_key,
    }
    attributes = {"job": message.job, "run": str(message.run), "seat": str(message.seat)}
    if message.traceparent:
        attributes["traceparent"] = message.traceparent
    return Message(data=json.dumps(body).encode(), attributes=attributes)


def decode(message: Message) -> SeatMessage:
    """Read a published message.

    Raises:
        UnreadableRecord: it is not a seat message of a version that is read; says what is wrong.
    """
    try:
        body = json.loads(message.data)
    except (ValueError, RecursionError) as exc:
        raise UnreadableRecord("the message's data is not JSON") from exc
    if not isinstance(body, dict):
        raise UnreadableRecord("the message's data is no object")
    body = SEAT_MESSAGE.read(body, THIS_MESSAGE)
    return SeatMessage(
        job=_text(body, "job"),
        run=_index(body, "run", 1),
        seat=_index(body, "seat", 0),
        work_key=_text(body, "work_key"),
        traceparent=message.attributes.get("traceparent"),
    )


def _text(body: dict[str, object], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not is_identity(value):
        raise UnreadableRecord(f"the message's {name} is not an identity")
    return value


def _index(body: dict[str, object], name: str, least: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UnreadableRecord(f"the message's {name} is not a whole number from {least}")
    return value
