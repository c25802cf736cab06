"""The end of a stopped run: its seats get their records, and what it took of its day is written.

The terminal record of a stopped run is older than the ends of its last calls. Repair does what is
left as soon as those have ended; a replay, which begins the next run, waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from functions.core.documents import evaluation_path, from_snapshot
from functions.core.endings import run_attempts, stopped_seat
from functions.core.jobs import Evaluation, Job
from functions.core.leases import under_way
from functions.core.ports import Update
from functions.services import Services
from functions.settlement import read_seats, settle_seat
from functions.tenant_days import commit_trued_up


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The seats that got their record now, and how many have a call that is still under way."""

    recorded: tuple[int, ...]
    busy: int


async def end_seats(services: Services, job: Job) -> Ending:
    """Give the seats of a stopped run their records.

    A seat whose own call is still under way gets its record from that call's end.

    Raises:
        LedgerUnavailable: not certainly done; safe to repeat.
    """
    records, read_at = await read_seats(services, job)
    missing = [index for index, record in enumerate(records) if record is None]
    evaluations = await evaluations_of(services, job, missing)
    recorded = []
    for index in missing:
        evaluation = evaluations[index]
        if not under_way(evaluation, job.id, job.run, index, read_at):
            await settle_seat(services, job, stopped_seat(job, index, evaluation, read_at))
            recorded.append(index)
    return Ending(recorded=tuple(recorded), busy=len(missing) - len(recorded))


async def commit_end(services: Services, job: Job, head: Update) -> None:
    """Commit what becomes of the head once all seats have their records; the day is trued up.

    Raises:
        WriteConflict: the head has changed since it was read.
        LedgerUnavailable: not certainly done; safe to repeat.
    """
    if job.day is None or job.day.final:
        await services.ledger.commit(head)
        return
    records, _ = await read_seats(services, job)  # also what deliveries have settled meanwhile
    ended = [record for record in records if record is not None]
    await commit_trued_up(services, job, run_attempts(ended), head)


async def evaluations_of(
    services: Services, job: Job, indexes: Sequence[int]
) -> dict[int, Evaluation | None]:
    """Return the evaluations of some seats, by index.

    Raises:
        LedgerUnavailable: no answer.
    """
    if not indexes:
        return {}
    paths = [evaluation_path(job.seats[index].work_key) for index in indexes]
    snapshots = await services.ledger.get(*paths)
    return {
        index: from_snapshot(Evaluation, found)
        for index, found in zip(indexes, snapshots, strict=True)
    }
