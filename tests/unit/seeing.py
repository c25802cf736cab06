"""A job on record and the look at its first seat, for tests below the level of a delivery."""

from typing import Any

from functions.dispatch import seat_message
from functions.leasing import Granted, Lease, try_claim
from functions.looking import Seen, peek
from tests.faults.world import World, submission
from tests.unit.records import claimant


async def seen(world: World, *, key: str = "key", **policy: Any) -> Seen:
    """Return a look at the seat of a job that is on record."""
    job = await world.submit(submission(key=key, **policy))
    world.drop_messages()
    return await look(world, job.id)


async def look(world: World, job: str) -> Seen:
    """Return another look at the first seat of a job."""
    message = seat_message(world.jobs()[job], 0)
    looked = await peek(world.evaluator.services, message)
    assert looked is not None
    return looked


def asking(at: Seen, **fields: Any) -> Any:
    """Return a claimant for the seat that was looked at."""
    job = at.job
    values = {
        "job": job.id,
        "run": job.run,
        "seat": at.index,
        "work_key": job.seats[at.index].work_key,
        "run_at": job.run_at,
        "reuse_since": at.reuse_since,
    }
    return claimant(**values | fields)


async def leased(world: World, at: Seen | None = None, **fields: Any) -> Lease:
    """Return a lease on a seat, by default of a new job."""
    at = at or await seen(world)
    granted = await try_claim(world.evaluator.services, at, asking(at, **fields))
    assert isinstance(granted, Granted)
    return granted.lease
