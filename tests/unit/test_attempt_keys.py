"""The key of an attempt: what a provider with an idempotency header is told."""

import re

from functions.core.identities import attempt_key
from functions.core.verdicts import CallRequest
from tests.cases.scenes import replies, total_sent
from tests.faults.fakes import Reply, failure
from tests.faults.world import World, submission


def test_the_key_is_stable_and_fits_a_header() -> None:
    """A33: the same attempt has the same key for ever; its parts cannot be read from it."""
    key = attempt_key(job="job_a", run=1, seat=0, number=2)
    assert key == attempt_key(job="job_a", run=1, seat=0, number=2)
    assert re.fullmatch(r"att_[a-z2-7]{32}", key)


def test_each_part_counts() -> None:
    """Another job, run, seat or attempt is another key."""
    keys = {
        attempt_key(job=job, run=run, seat=seat, number=number)
        for job in ("job_a", "job_b")
        for run in (1, 2)
        for seat in (0, 1)
        for number in (1, 2)
    }
    assert len(keys) == 16


async def test_a33_every_request_carries_the_key_of_its_attempt() -> None:
    """A timed-out request and its retry are two attempts, both counted, each with its own key."""
    world = World()
    replies(world, failure("timeout", http_status=None))
    script, asked = world.provider.script, list[CallRequest]()

    def noting(request: CallRequest, number: int) -> Reply:
        asked.append(request)
        return script(request, number)

    world.provider.script = noting
    job = await world.submit(submission(max_requests=2))
    await world.finish()
    expected = [attempt_key(job=job.id, run=1, seat=0, number=number) for number in (1, 2)]
    assert [request.attempt_key for request in asked] == expected
    assert total_sent(world) == world.ledger.stored()[f"budgets/{job.id}.1"]["requests"] == 2
