"""The arithmetic: a job's operations, spread over its seats, times prices.

Everything is per million seats, so that a price per million needs no further factor.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MILLION = 1_000_000
GIB = 2**30
TIB = 2**40
MONTH_SECONDS = 365.25 / 12 * 86_400
MONTH_DAYS = 365.25 / 12
COUNTED_SECONDS = 20.0  # of a seat, when its renewals were counted

Row = tuple[str, str, float, str]  # group, what, quantity, name of its price


BASES = ("copy", "second hand", "analogy", "memory")  # how far a price can be trusted


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What so many units cost, by whose word and of which day; `prices.toml` explains `basis`."""

    usd: float
    per: int
    unit: str
    source: str
    read: str
    basis: str

    @property
    def each(self) -> float:
        """Dollars for one unit."""
        return self.usd / self.per


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What one job of so many seats does from its acceptance to the end of its retention.

    Documents by step; looks for stops and pauses apart, because they are per process and second.
    Bytes of messages are as billed, at least 1 kB a request. `log_bytes` is what our own lines
    hold, `call_bytes` what providers are sent, `answer_bytes` what callers and the webhook get.
    `expiring` are the documents that time to live deletes, `ledger_bytes` documents with their
    index entries.
    """

    reads: Mapping[str, int]
    writes: Mapping[str, int]
    objects_created: int
    objects_read: int
    message_bytes: int
    pushes: int
    log_lines: int
    log_bytes: int
    call_bytes: int
    answer_bytes: int
    expiring: int
    ledger_bytes: int
    bucket_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """What one more attempt of a seat adds, when it is made in the same handler."""

    reads: int
    writes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumed:
    """What is not counted but stated; `counts.toml` says why for each."""

    seat_seconds: float
    concurrency: int
    utilisation: float
    vcpus: float
    memory_gib: float
    looks_per_second: float
    api_requests: float
    api_seconds: float
    notify_seconds: float
    cpu_ms: Mapping[str, float]
    entry_bytes: int
    request_log_bytes: int
    retries: float
    retention_days: int
    backups: int
    idle_reads_per_minute: float
    repair_share: float
    scheduler_jobs: int
    secret_versions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Everything that was counted, by seats a job, and everything that was assumed."""

    jobs: Mapping[int, Job]
    retry: Retry
    assumed: Assumed


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the bill: how much of what, at which price. `group` sums lines up."""

    group: str
    what: str
    quantity: float
    price: Price

    @property
    def usd(self) -> float:
        """The line's sum in dollars."""
        return self.quantity * self.price.each


def read_prices(path: Path = HERE / "prices.toml") -> dict[str, Price]:
    """Return the prices by name."""
    return {name: Price(**table) for name, table in _read(path).items()}


def read_counts(path: Path = HERE / "counts.toml") -> Counts:
    """Return what was counted and what is assumed."""
    data = _read(path)
    return Counts(
        jobs={int(seats): Job(**table) for seats, table in data["job"].items()},
        retry=Retry(**data["retry"]),
        assumed=Assumed(**data["assumed"]),
    )


def with_assumed(counts: Counts, **changes: Any) -> Counts:
    """Return the counts under other assumptions."""
    return replace(counts, assumed=replace(counts.assumed, **changes))


def running(counts: Counts, prices: Mapping[str, Price], seats: int) -> list[Line]:
    """Return the bill of a million seats, in jobs of so many, until all is told and audited."""
    job, assumed = counts.jobs[seats], counts.assumed
    sent_bytes = job.call_bytes * (1 + assumed.retries) + job.answer_bytes
    rows = [
        *_ledger(counts, job),
        ("bucket", "outputs created", job.objects_created, "storage_class_a"),
        ("bucket", "outputs read", job.objects_read, "storage_class_b"),
        ("messages", "published and pushed", job.message_bytes / TIB, "pubsub_tib"),
        *_run(assumed, job, seats),
        ("logs", "entries", _logged(assumed, job) / GIB, "logging_gib"),
        ("network", "to providers and callers", sent_bytes / GIB, "egress_gib"),
    ]
    return _lines(rows, prices, MILLION / seats)


def keeping(counts: Counts, prices: Mapping[str, Price], seats: int) -> list[Line]:
    """Return what it costs to keep a million seats for their whole retention."""
    job, assumed = counts.jobs[seats], counts.assumed
    months = assumed.retention_days / MONTH_DAYS
    ledger = job.ledger_bytes / GIB * months
    rows = [
        ("keep", "documents and their indexes", ledger, "firestore_gib_month"),
        ("keep", f"{assumed.backups} backups", ledger * assumed.backups, "firestore_backup"),
        ("keep", "objects", job.bucket_bytes / GIB * months, "storage_gib_month"),
    ]
    return _lines(rows, prices, MILLION / seats)


def idle(counts: Counts, prices: Mapping[str, Price]) -> list[Line]:
    """Return what a month costs in which nothing is asked; not per million seats."""
    assumed = counts.assumed
    seconds = MONTH_SECONDS * assumed.repair_share
    reads = assumed.idle_reads_per_minute * MONTH_SECONDS / 60
    rows = [
        ("idle", "repair, present", seconds * assumed.vcpus, "run_vcpu_second"),
        ("idle", "repair, its memory", seconds * assumed.memory_gib, "run_gib_second"),
        ("idle", "repair, its reads", reads, "firestore_read"),
        ("idle", "schedules", assumed.scheduler_jobs, "scheduler_job_month"),
        ("idle", "secrets", assumed.secret_versions, "secret_version_month"),
    ]
    return _lines(rows, prices, 1)


def total(lines: list[Line]) -> float:
    """Return the sum in dollars."""
    return sum(line.usd for line in lines)


def in_flight(assumed: Assumed) -> float:
    """Return how many requests an instance has at once: Cloud Run scales for its target."""
    return max(1.0, assumed.concurrency * assumed.utilisation)


def instance_seconds(assumed: Assumed, seats: int) -> dict[str, float]:
    """Return for which time an instance is billed per seat, by target.

    A handler that waits shares its instance with others; one that computes does not. So it is the
    longer of its share of the wait and its CPU at the target utilisation.
    """
    waits = {
        "evaluate": assumed.seat_seconds * (1 + assumed.retries),
        "api": assumed.api_requests * assumed.api_seconds / seats,
        "notify": assumed.notify_seconds / seats,
    }
    return {
        target: max(wait / in_flight(assumed), assumed.cpu_ms[target] / 1000 / assumed.utilisation)
        for target, wait in waits.items()
    }


def _ledger(counts: Counts, job: Job) -> Iterator[Row]:
    """Yield a job's documents. Looks are made by each process, for all its calls at once."""
    assumed, seats = counts.assumed, job.objects_created
    looks = seats * assumed.looks_per_second * assumed.seat_seconds / in_flight(assumed)
    for step, number in job.reads.items():
        yield "ledger", f"read: {step}", number, "firestore_read"
    yield "ledger", "read: looks for stops and pauses", looks, "firestore_read"
    for step, number in job.writes.items():
        times = assumed.seat_seconds / COUNTED_SECONDS if step == "renew" else 1
        yield "ledger", f"written: {step}", number * times, "firestore_write"
    if again := assumed.retries * seats:
        yield "ledger", "read: retries", counts.retry.reads * again, "firestore_read"
        yield "ledger", "written: retries", counts.retry.writes * again, "firestore_write"
    yield "ledger", "deleted when they expire", job.expiring, "firestore_delete"


def _run(assumed: Assumed, job: Job, seats: int) -> Iterator[Row]:
    for target, seconds in instance_seconds(assumed, seats).items():
        yield "run", f"{target}: vCPU", seconds * seats * assumed.vcpus, "run_vcpu_second"
        yield "run", f"{target}: memory", seconds * seats * assumed.memory_gib, "run_gib_second"
    yield "run", "requests", job.pushes + assumed.api_requests, "run_request"


def _logged(assumed: Assumed, job: Job) -> float:
    ours = job.log_bytes + job.log_lines * assumed.entry_bytes
    return ours + (job.pushes + assumed.api_requests) * assumed.request_log_bytes


def _lines(rows: Iterable[Row], prices: Mapping[str, Price], times: float) -> list[Line]:
    return [
        Line(group=group, what=what, quantity=quantity * times, price=prices[price])
        for group, what, quantity, price in rows
    ]


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return tomllib.load(file)
