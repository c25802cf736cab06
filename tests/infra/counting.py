"""What one job does, counted: the tables of `infra/cost/counts.toml`.

    python -m tests.infra.counting      # prints them

A job is asked in a world where its window exists and its models have been met, as all but the first
of an hour are; it is accepted, answered, told to a webhook and to the event topic, looked at once,
reported once and audited with its window.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from functions import telemetry
from functions.audit import audit
from functions.core.jobs import Job as JobRecord
from functions.core.ports import Message, ObjectPage, Objects, StoredObject
from functions.core.prompts import Rubric, answer_schema
from functions.core.submissions import Submission
from functions.core.verdicts import CallRequest
from functions.providers import chat
from functions.providers.base import Endpoint, WireRequest
from functions.reports import build_report
from functions.statuses import job_view, read_status
from infra.cost.model import COUNTED_SECONDS, Job, Retry
from tests.faults.fakes import Reply, failure
from tests.faults.notifying import EVENTS_TOPIC, NOTIFY_TOPIC, URL, NotifyingWorld
from tests.faults.processes import DyingLedger, DyingObjects
from tests.faults.test_operation_counts import CountingLedger, total
from tests.faults.world import RUBRIC, TOPIC, submission
from tests.infra.indexes import read_declared
from tests.infra.ledger_bytes import stored_bytes

SIZES = (1, 4, 16)  # seats of a job
FACTS_BYTES = 12_000  # about 3,000 tokens
LEAST_BILLED_BYTES = 1_000  # of a request to or by Pub/Sub
MESSAGE_FRAME_BYTES = 20 + 20  # publish time and message ID, as billed
AUDITED = 4  # jobs more in a window: what they add to its audit, divided by them
PER_PROCESS = ("read: query providers", "read: query stops", "written: create sightings")


@dataclass(frozen=True, kw_only=True)
class CountingObjects:
    """Counts requests by what they are billed as; a look costs what a read does."""

    inner: Objects
    requests: Counter[str] = field(default_factory=Counter)

    def uri(self, name: str) -> str:
        return self.inner.uri(name)

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        self.requests["create"] += 1
        return await self.inner.create(name, data, content_type=content_type, metadata=metadata)

    async def stat(self, name: str) -> StoredObject | None:
        self.requests["read"] += 1
        return await self.inner.stat(name)

    async def read(self, name: str, generation: int | None = None) -> bytes:
        self.requests["read"] += 1
        return await self.inner.read(name, generation)

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        self.requests["list"] += 1
        return await self.inner.list_page(prefix, page=page)

    async def delete(self, name: str, generation: int) -> bool:
        self.requests["delete"] += 1
        return await self.inner.delete(name, generation)


class _Lines(logging.Handler):
    """Keeps the lines that our own events are logged as."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(telemetry.JsonFormatter("project"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the lines that are logged within the block."""
    logger, handler = logging.getLogger("empanel"), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class CountedWorld(NotifyingWorld):
    """A world in which every process counts what it asks of ledger and bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        ledger = CountingLedger(inner=self.ledger, documents=self.documents)
        objects = CountingObjects(inner=self.objects, requests=self.requests)
        for process in (self.api, self.evaluator, self.notifier, self.reconciler):
            assert isinstance(process.services.ledger, DyingLedger)
            assert isinstance(process.services.objects, DyingObjects)
            object.__setattr__(process.services.ledger, "inner", ledger)
            object.__setattr__(process.services.objects, "inner", objects)
        self.provider.seconds = COUNTED_SECONDS

    def took(self) -> tuple[int, int]:
        """Return the documents read and written since the last time, looks left out."""
        for name in PER_PROCESS:
            self.documents.pop(name, None)
        read, written = total(self.documents, "read"), total(self.documents, "written")
        self.documents.clear()
        return read, written

    async def complete(self, asked: Submission) -> JobRecord:
        """Take a job from its acceptance to its last notification."""
        job = await self.submit(asked)
        await self.deliver_all()
        await self.deliver_notifications()
        return self.jobs()[job.id]


def question(seats: int, number: int) -> Submission:
    """Return a job like all others, with a question of its own."""
    models = [f"m{index}" for index in range(seats)]
    asked = submission(models, question=f"q{number}", key=f"k{number}", filler=FACTS_BYTES)
    return replace(asked, notify_url=URL)


def count_job(seats: int) -> Job:
    """Count what a job of so many seats does.

    Each world has a loop of its own: two virtual clocks in one would each wait for the other.
    """
    job = asyncio.run(_count_job(seats))
    few, many = (asyncio.run(_audit(seats, jobs)) for jobs in (AUDITED, 2 * AUDITED))
    reads, writes = ((b - a) // AUDITED for a, b in zip(few, many, strict=True))
    return replace(job, reads={**job.reads, "audit": reads}, writes={**job.writes, "audit": writes})


async def _count_job(seats: int) -> Job:
    world = CountedWorld()
    await world.complete(question(seats, 0))
    known = set(world.ledger.stored())
    world.took()
    world.requests.clear()
    published = {topic: len(world.topics.messages(topic)) for topic in _TOPICS}
    reads, writes = dict[str, int](), dict[str, int]()

    def note(step: str) -> None:
        reads[step], writes[step] = world.took()

    with logged() as lines:
        job = await world.submit(question(seats, 1))
        note("accept")
        await world.deliver_all()
        renewed = world.documents.pop("written: update evaluations", 0)
        note("evaluate")
        writes["renew"] = renewed
        await world.deliver_notifications()
        note("notify")
    job = world.jobs()[job.id]
    status = await read_status(world.api.services, job)
    note("status")
    reads["status"] += 1  # the job itself, which the routes read first
    report = await build_report(world.api.services, status)
    note("report")
    reads["report"] += reads["status"]
    created, read = world.requests["create"], world.requests["read"]
    new = {path: data for path, data in world.ledger.stored().items() if path not in known}
    messages = [world.topics.messages(topic)[published[topic] :] for topic in _TOPICS]
    shown = len(json.dumps(job_view(status))) + len(json.dumps(report))
    return Job(
        reads={step: number for step, number in reads.items() if number},
        writes={step: number for step, number in writes.items() if number},
        objects_created=created,
        objects_read=read,
        message_bytes=_billed(*messages),
        pushes=len(messages[0]) + len(messages[1]),
        log_lines=len(lines),
        log_bytes=sum(len(line) + 1 for line in lines),
        call_bytes=sum(_call_bytes(world, job, index) for index in range(seats)),
        answer_bytes=shown + len(world.calls[-1].body),
        expiring=sum("expire_at" in data for data in new.values()),
        ledger_bytes=sum(stored_bytes(*item, read_declared()) for item in new.items()),
        bucket_bytes=_new_objects(world, job),
    )


def count_retry() -> Retry:
    """Count what one more attempt in the same handler adds."""
    once, twice = (asyncio.run(_attempts(number)) for number in (1, 2))
    reads, writes = (b - a for a, b in zip(once, twice, strict=True))
    return Retry(reads=reads, writes=writes)


async def _attempts(needed: int) -> tuple[int, int]:
    """Return what a seat reads and writes that succeeds at this attempt."""
    world = CountedWorld()
    await world.complete(question(1, 0))
    answer = world.provider.answer

    def refused_before(request: CallRequest, number: int) -> Reply:
        if number < needed:
            return failure("overloaded", http_status=503)
        return answer(request, number)

    world.provider.script = refused_before
    world.took()
    await world.complete(question(1, 1))
    return world.took()


_TOPICS = (TOPIC, NOTIFY_TOPIC, EVENTS_TOPIC)


async def _audit(seats: int, jobs: int) -> tuple[int, int]:
    """Count the audit that finds the window of so many jobs closed, and seals it."""
    world = CountedWorld()
    for number in range(jobs):
        await world.complete(question(seats, number))
    world.clock.advance(2 * 3600)
    world.took()
    result = await audit(world.reconciler.services)
    assert result.complete
    assert len(result.sealed) == 1
    return world.took()


def _billed(seats: list[Message], told: list[Message], events: list[Message]) -> int:
    """Return what is billed of the messages: published once, together or alone, and pushed."""
    published = [sum(map(_size, some)) for some in (seats, told, events)]
    pushed = [_size(message) for message in (*seats, *told)]
    return sum(max(LEAST_BILLED_BYTES, size) for size in (*published, *pushed))


def _size(message: Message) -> int:
    attributes = sum(len(k.encode()) + len(v.encode()) for k, v in message.attributes.items())
    return len(message.data) + attributes + MESSAGE_FRAME_BYTES


def _call_bytes(world: CountedWorld, job: JobRecord, index: int) -> int:
    """Return the size of the request that a provider of the chat dialect is sent."""
    endpoint = Endpoint(name="e", base_url="https://e.example/v1", api_key="k" * 50)
    request = replace(
        world._request(job, index), schema=answer_schema(Rubric.from_json(dict(RUBRIC)))
    )
    wire = chat.build(endpoint, request)
    assert isinstance(wire, WireRequest)
    return len(wire.body) + sum(len(k) + len(v) + 4 for k, v in wire.headers.items())


def _new_objects(world: CountedWorld, job: JobRecord) -> int:
    keys = {seat.work_key for seat in job.seats}
    return sum(
        len(world.objects._objects[name].data)
        for name in world.objects.names()
        if keys & set(name.split("/"))
    )


def _toml(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"[{name}]"]
    for key, value in table.items():
        if isinstance(value, Mapping):
            value = "{ " + ", ".join(f"{step} = {n}" for step, n in value.items()) + " }"
        lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Count, and print the tables."""
    for seats in SIZES:
        print(_toml(f"job.{seats}", asdict(count_job(seats))), flush=True)
    print(_toml("retry", asdict(count_retry())))


if __name__ == "__main__":
    main()
