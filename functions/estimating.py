"""What a request for a panel would need now: its open seats, and what they cost at worst.

Nothing is stored or reserved, so nothing is promised: another job may answer or ask the same
meanwhile, and a retry costs one request more.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from functions.acceptance import draft_job
from functions.core.budgets import in_usd, worst_of_all
from functions.core.documents import evaluation_path, from_snapshot
from functions.core.jobs import Evaluation, Job
from functions.core.leases import has_output_since
from functions.core.ports import Snapshot
from functions.core.submissions import Submission
from functions.looking import reuse_since
from functions.outputs import output_exists
from functions.services import Services
from functions.worst_cases import priced


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """`requests` is one per seat without a reusable output: what it takes when nothing fails.

    `cost_usd` is the worst case of those requests, None when the price of any is unknown;
    `reused_seats` is the number of the other seats.
    """

    requests: int
    cost_usd: float | None
    reused_seats: int


async def estimate(services: Services, submission: Submission) -> Estimate:
    """Return what the job would need if it were accepted now.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: it cannot be told what is stored already.
    """
    draft = draft_job(services, submission)
    reusable = await _reusable(services, draft)
    seats = priced(services, draft, submission)
    asked = [seat for seat, stored in zip(seats, reusable, strict=True) if not stored]
    worst = worst_of_all(asked)
    return Estimate(
        requests=len(asked),
        cost_usd=None if worst is None else in_usd(worst),
        reused_seats=len(seats) - len(asked),
    )


async def _reusable(services: Services, draft: Job) -> list[bool]:
    """Return for each seat whether its question has an output that a run now would use."""
    if not draft.policy.reuse:
        return [False] * len(draft.seats)
    paths = [evaluation_path(seat.work_key) for seat in draft.seats]
    found = await services.ledger.get(*paths)
    since = reuse_since(services, draft, found[0].read_time)
    return await asyncio.gather(*(_has_output(services, snapshot, since) for snapshot in found))


async def _has_output(services: Services, found: Snapshot, since: datetime) -> bool:
    state = from_snapshot(Evaluation, found)
    if state is None or state.output is None or not has_output_since(state, since):
        return False
    return await output_exists(services, state.output)
