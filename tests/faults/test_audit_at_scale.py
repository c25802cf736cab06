"""Thousands of jobs with known faults, on the emulator and the bucket server: each is found.

The long run seeds 5,000 jobs of four seats; the short one a tenth of that.
"""

import asyncio
import hashlib
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.memory import MemoryPublisher
from functions.audit import AuditPass, audit, audit_window
from functions.audit_reports import list_windows, read_report
from functions.bootstrap import wire
from functions.core.documents import (
    job_path,
    notification_path,
    seat_path,
    terminal_path,
    to_document,
    window_path,
)
from functions.core.identities import decision_id, window_of
from functions.core.jobs import (
    Job,
    JobState,
    Output,
    Policy,
    Seat,
    SeatOutcome,
    SeatRecord,
    SeatState,
    Terminal,
    Totals,
)
from functions.core.notifications import NotificationState, new_notification
from functions.core.ports import Create, Ledger, Objects
from functions.core.windows import Window
from functions.services import Services
from infra.local.emulators import EmulatorHosts
from infra.local.storage import create_bucket
from tests.faults.test_operation_counts import CountingLedger, total
from tests.faults.world import test_settings as some_settings
from tests.unit.records import job as some_job

SEATS = 4
WINDOWS = 5
NO_TERMINAL, NO_OBJECT, ORPHAN = 100, 200, 500  # one in so many: jobs, seats, seats
AT_ONCE = 32
COMMIT = 400
SECOND_SHARE, SECOND_LEAST = 0.02, 100  # of the first audit's reads; what few jobs cost anyway
READS_PER_GAP = 2  # all faults are in one window, which is not sealed: each is looked at again
GROWTH_MIB = 64


@dataclass(kw_only=True)
class Seeded:
    """What was put there, and what an audit has to find."""

    jobs: int = 0
    open: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)


@pytest.mark.parametrize("jobs", [500, pytest.param(5000, marks=pytest.mark.long)])
async def test_each_known_fault_is_found_and_only_those(
    jobs: int, emulator_hosts: EmulatorHosts, storage_url: str, project: str
) -> None:
    """Each fault is listed once; a second audit of the sealed windows reads 2 % of the first's."""
    async with _services(emulator_hosts, storage_url, project) as (services, counting):
        seeded = await _seed(services.ledger, services.objects, jobs)
        counting.documents.clear()
        before = _peak_mib()
        first = await audit(services)
        grown, reads = _peak_mib() - before, total(counting.documents, "read")
        assert first.complete, first.errors
        found = await _found(services)
        assert found == seeded
        assert grown < GROWTH_MIB
        counting.documents.clear()
        second = await audit(services)
        again = total(counting.documents, "read")
        assert second.complete, second.errors
        assert await _found(services) == seeded
        windows = await list_windows(services, "tenant", "0", "9", 9)
        [unsealed] = [window for window in windows if not window.sealed]
        assert len(windows) == WINDOWS
        gaps = len(seeded.open) + len(seeded.lost) + len(seeded.orphans)
        alone = await _reads_of_one(services, counting, unsealed)
        sealed = again - alone
        print(
            f"{jobs} jobs: {reads} reads, then {again}: {alone} for {gaps} gaps, {sealed} for the "
            f"rest; {grown:.0f} MiB more at the peak"
        )
        assert alone <= READS_PER_GAP * gaps
        assert sealed <= max(SECOND_SHARE * reads, SECOND_LEAST)


async def _reads_of_one(services: Services, counting: CountingLedger, window: Window) -> int:
    """Return what looking again at a window that cannot be sealed reads, measured by itself."""
    [found] = await services.ledger.get(window_path(window.tenant, window.window))
    counting.documents.clear()
    await audit_window(services, AuditPass(), found, window)
    return total(counting.documents, "read")


async def _found(services: Services) -> Seeded:
    found = Seeded()
    prefix = services.objects.uri("")
    for window in await list_windows(services, "tenant", "0", "9", 100):
        assert window.report is not None
        report = await read_report(services, window.report)
        assert window.population == sum(window.counts.values()) == report.population
        found.jobs += window.population
        found.open |= set(report.missing_terminal)
        found.lost |= {gap["uri"].removeprefix(prefix) for gap in report.missing_output}
        found.orphans |= {uri.removeprefix(prefix) for uri in report.orphan_outputs}
        others = ("digest_mismatch", "missing_failure", "malformed", "undelivered_notifications")
        assert [getattr(report, name) for name in others] == [[]] * len(others)
        assert len(window.view["missing_terminal"]) <= 100
    return found


@asynccontextmanager
async def _services(
    hosts: EmulatorHosts, storage_url: str, project: str
) -> AsyncIterator[tuple[Services, CountingLedger]]:
    clock = SystemClock()
    ledger = FirestoreLedger(project, emulator_host=hosts.firestore, clock=clock)
    await create_bucket(storage_url, project, project)
    objects = GcsObjects(project, emulator_host=storage_url)
    counting = CountingLedger(inner=ledger)
    try:
        services = wire(
            some_settings(),
            clock=clock,
            ledger=counting,
            objects=objects,
            publisher=MemoryPublisher(clock),
            providers={},
        )
        yield services, counting
    finally:
        await objects.aclose()
        await ledger.aclose()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _seed(ledger: Ledger, objects: Objects, count: int) -> Seeded:
    """Put jobs with all their records and objects there, some of them with a fault."""
    seeded = Seeded(jobs=count)
    last = SystemClock().now() - timedelta(days=1)
    limit = asyncio.Semaphore(AT_ONCE)
    writes: list[Create] = []
    for hours in range(WINDOWS):
        writes.append(_window(last - timedelta(hours=hours)))
    for number in range(count):
        moment = last - timedelta(hours=number % WINDOWS)
        writes += await _job(objects, seeded, number, moment, limit)
        if len(writes) > COMMIT:
            await ledger.commit(*writes)
            writes = []
    await ledger.commit(*writes)
    return seeded


def _window(moment: datetime) -> Create:
    name = window_of(moment)
    record = Window(
        tenant="tenant", window=name, created_at=moment, expire_at=moment + timedelta(days=400)
    )
    return Create(path=window_path("tenant", name), data=to_document(record))


async def _job(
    objects: Objects, seeded: Seeded, number: int, moment: datetime, limit: asyncio.Semaphore
) -> list[Create]:
    window, identity = window_of(moment), f"job_{number:06}"
    seats = tuple(_seat(number, index) for index in range(SEATS))
    job = some_job(
        id=identity,
        decision_id=decision_id("tenant", identity),
        seats=seats,
        policy=Policy(required_seats=SEATS),
        window=window,
        run_window=window,
        submitted_at=moment,
        run_at=moment,
        deadline_at=moment + timedelta(hours=1),
        expire_at=moment + timedelta(days=400),
        state=JobState.SUCCEEDED,
        check_at=None,
    )
    names = [f"outputs/tenant/{window}/{seat.work_key}/0.json" for seat in seats]
    outputs = await asyncio.gather(
        *(_output(objects, seeded, SEATS * number + i, name, limit) for i, name in enumerate(names))
    )
    records = [_record(job, index, moment, outputs[index]) for index in range(SEATS)]
    writes = [Create(path=job_path(identity), data=to_document(job))]
    writes += [
        Create(path=seat_path(identity, 1, index), data=to_document(record))
        for index, record in enumerate(records)
    ]
    if number % NO_TERMINAL == NO_TERMINAL - 1:
        seeded.open.add(identity)
        return writes
    terminal = _terminal(job, moment, records)
    told = new_notification(job, terminal, moment)
    return [
        *writes,
        Create(path=terminal_path(identity, 1), data=to_document(terminal)),
        Create(
            path=notification_path(job.decision_id, 1),
            data=to_document(told)
            | {"state": NotificationState.DELIVERED.value, "delivered": True},
        ),
    ]


def _seat(number: int, index: int) -> Seat:
    key = hashlib.sha256(f"{number}.{index}".encode()).hexdigest()
    return Seat(
        seat=f"p/m{index}", provider="p", model=f"m{index}", sample=0, work_key=key, endpoint="e"
    )


async def _output(
    objects: Objects, seeded: Seeded, place: int, name: str, limit: asyncio.Semaphore
) -> Output:
    data = name.encode()
    digest = hashlib.sha256(data).hexdigest()
    generation = 1
    async with limit:
        if place % ORPHAN == ORPHAN - 1:
            orphan = name.replace("/0.json", "/7.json")
            await objects.create(orphan, data, content_type="text/plain", metadata={})
            seeded.orphans.add(orphan)
        if place % NO_OBJECT == NO_OBJECT - 1:
            seeded.lost.add(name)
        else:
            stored = await objects.create(
                name, data, content_type="text/plain", metadata={"sha256": digest}
            )
            assert stored is not None
            generation = stored.generation
    at = some_job().submitted_at
    return Output(uri=objects.uri(name), generation=generation, sha256=digest, stored_at=at)


def _record(job: Job, index: int, moment: datetime, output: Output) -> SeatRecord:
    return SeatRecord(
        run=1,
        index=index,
        seat=job.seats[index].seat,
        state=SeatState.SUCCEEDED,
        work_key=job.seats[index].work_key,
        ended_at=moment,
        output=output,
    )


def _terminal(job: Job, moment: datetime, records: list[SeatRecord]) -> Terminal:
    outcomes = tuple(_outcome(record) for record in records)
    return Terminal(
        job=job.id,
        tenant=job.tenant,
        run=1,
        window=job.window,
        state=JobState.SUCCEEDED,
        reason="4 of 4",
        completed_at=moment,
        decision_id=job.decision_id,
        input_digest="i",
        models_digest="m",
        policy_revision="p",
        seats=outcomes,
        totals=Totals(requests=SEATS, cost_usd=0.0),
    )


def _outcome(record: SeatRecord) -> SeatOutcome:
    assert record.output is not None
    return SeatOutcome(
        seat=record.seat,
        state=record.state,
        sha256=record.output.sha256,
        uri=record.output.uri,
        generation=record.output.generation,
    )
