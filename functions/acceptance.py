"""A request becomes an accepted job: recorded once, then dispatched.

The create is the whole guard: whoever asks again under the same identity finds the job there.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from functions import telemetry
from functions.core.documents import from_snapshot, job_path, to_document
from functions.core.errors import EmpanelError, LedgerUnavailable, WriteConflict
from functions.core.identities import (
    decision_id,
    digest,
    job_id,
    shard_of,
    window_of,
    work_key,
)
from functions.core.jobs import Digests, Inputs, Job, Seat
from functions.core.ports import SERVER_TIME, Create
from functions.core.prompts import PROMPT_DIGEST
from functions.core.submissions import Submission
from functions.dispatch import start
from functions.inputs import inline_inputs, store_inputs
from functions.open_seats import TooManyOpen
from functions.services import Services
from functions.tenant_days import DaySpent, commit_reserved, ensure_room, wanted_day
from functions.worst_cases import CostRefused, check_cost, priced

_CAP_OF = {CostRefused: "cost", DaySpent: "tenant_day", TooManyOpen: "open_seats"}
POLICY_REVISION = "2026-11-29"  # date of the last change to the rules of retry, lease and close


class IdempotencyConflict(EmpanelError):
    """The key names a job that was accepted with another body."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{job.id} was accepted with another request body")
        self.job = job


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """The job under the request's identity, and whether this request created it, and when."""

    job: Job
    created: bool
    update_time: datetime


async def accept(services: Services, submission: Submission) -> Acceptance:
    """Record the job if its identity is new, then publish a message per seat.

    The answer may be given as soon as this returns: a message that was not published is found by
    repair through the job's `check_at`.

    A job that is known is returned whatever prices and caps have become since.

    Raises:
        IdempotencyConflict: the identity belongs to another request.
        CostRefused: a cap on cost could not be kept; nothing is stored.
        DaySpent, TooManyOpen: the tenant has no room; nothing is recorded.
        LedgerUnavailable, ObjectsUnavailable: nothing certain is recorded; ask again.
    """
    draft = _reserving(services, draft_job(services, submission), submission)
    try:
        check_cost(services, draft)
        async with services.open_seats.room(draft.tenant, len(draft.seats)):
            await ensure_room(services, draft.tenant, draft.day)
            acceptance = await _store(services, draft, submission)
    except (CostRefused, DaySpent, TooManyOpen) as refused:
        if (known := await _known(services, draft)) is None:
            services.metrics.budget_refused(_CAP_OF[type(refused)])
            raise
        return known
    if acceptance.created:
        job = acceptance.job
        services.metrics.run_accepted(replay=False)
        await start(services, job, range(len(job.seats)), acceptance.update_time)
    return acceptance


async def _store(services: Services, draft: Job, submission: Submission) -> Acceptance:
    """Record the job, after everything that it refers to."""
    inputs = inline_inputs(submission.facts, submission.rubric)
    if inputs is None:
        if (known := await _known(services, draft)) is not None:
            return known
        inputs = await store_inputs(services, draft.tenant, submission.facts, submission.rubric)
    await services.windows.ensure(services.clock.now(), draft.tenant, draft.window)
    return await _record(services, replace(draft, inputs=inputs))


async def find(services: Services, tenant: str, job: str) -> Job | None:
    """Return a tenant's job; None for unknown and foreign ones alike.

    Raises:
        LedgerUnavailable: no answer.
    """
    [found] = await services.ledger.get(job_path(job))
    services.clock.observe(found.read_time)
    record = from_snapshot(Job, found)
    return record if record is not None and record.tenant == tenant else None


def draft_job(services: Services, submission: Submission) -> Job:
    """Return the job that a request would make now: nothing is stored, nothing reserved."""
    now = services.clock.now()
    digests = _digests(submission)
    identity = job_id(
        submission.tenant,
        idempotency_key=submission.idempotency_key,
        request_digest=digests.request,
    )
    window = window_of(now)
    return Job(
        id=identity,
        tenant=submission.tenant,
        decision_id=decision_id(submission.tenant, identity),
        digests=digests,
        seats=_seats(services, submission, digests),
        policy=submission.policy,
        policy_revision=POLICY_REVISION,
        owner=submission.owner,
        labels=dict(submission.labels),
        label_pairs=tuple(f"{key}:{value}" for key, value in sorted(submission.labels.items())),
        input_digests=(digests.facts, digests.rubric),
        window=window,
        submitted_at=now,
        expire_at=now + timedelta(days=services.settings.retention_days),
        inputs=Inputs(),
        traceparent=submission.traceparent,
        notify_url=submission.notify_url,
        run_window=window,
        run_at=now,
        deadline_at=now + timedelta(seconds=submission.policy.deadline_seconds),
        check_at=first_check(services, now, submission.policy.deadline_seconds),
        check_seconds=int(services.settings.repair_seconds),
        shard=shard_of(identity),
        open_seats=len(submission.seats),
    )


def _reserving(services: Services, draft: Job, submission: Submission) -> Job:
    """Return the draft with what it may cost and what it reserves, where anything is capped."""
    caps = services.settings.tenant_caps.of(draft.tenant)
    if draft.policy.max_cost_usd is not None or caps.nano_usd is not None:
        draft = replace(draft, seats=priced(services, draft, submission))
    day = wanted_day(services, draft.tenant, draft.policy, draft.seats, draft.submitted_at)
    return replace(draft, day=day)


def first_check(services: Services, now: datetime, deadline_seconds: float) -> datetime:
    """Return when repair looks first; never later than the deadline."""
    return now + timedelta(seconds=min(services.settings.repair_seconds, deadline_seconds))


def _digests(submission: Submission) -> Digests:
    policy = {
        "required_seats": submission.policy.required_seats,
        "deadline_seconds": submission.policy.deadline_seconds,
        "max_attempts": submission.policy.max_attempts,
        "max_requests": submission.policy.max_requests,
        "max_cost_usd": submission.policy.max_cost_usd,
        "reuse": submission.policy.reuse,
    }
    return Digests(
        request=digest(submission.body),
        facts=digest(submission.facts),
        rubric=digest(submission.rubric),
        policy=digest(policy),
        prompt=PROMPT_DIGEST,
    )


def _seats(services: Services, submission: Submission, digests: Digests) -> tuple[Seat, ...]:
    seats = []
    for asked in submission.seats:
        endpoint = services.providers[asked.provider].endpoint
        key = work_key(
            tenant=submission.tenant,
            facts=digests.facts,
            rubric=digests.rubric,
            endpoint=endpoint,
            model=asked.model,
            parameters=asked.parameters,
            sample=asked.sample,
            prompt=digests.prompt,
        )
        seats.append(
            Seat(
                seat=asked.seat,
                provider=asked.provider,
                model=asked.model,
                sample=asked.sample,
                parameters=dict(asked.parameters),
                work_key=key,
                endpoint=endpoint,
            )
        )
    return tuple(seats)


async def _record(services: Services, draft: Job) -> Acceptance:
    document = to_document(draft) | {"run_at": SERVER_TIME}
    create = Create(path=job_path(draft.id), data=document)
    try:
        committed = await commit_reserved(services, draft.tenant, draft.day, create)
    except (WriteConflict, LedgerUnavailable):
        return await _already_recorded(services, draft)
    telemetry.event("job accepted", job=draft.id, run=1, owner=draft.owner, seats=len(draft.seats))
    services.clock.observe(committed)
    return Acceptance(job=draft, created=True, update_time=committed)


async def _already_recorded(services: Services, draft: Job) -> Acceptance:
    """Read back what stands under the identity: our own ambiguous create, an earlier one, or none.

    Raises:
        IdempotencyConflict: another request's job.
        LedgerUnavailable: nothing is there: the create was not applied.
    """
    known = await _known(services, draft)
    if known is None:
        raise LedgerUnavailable(f"{draft.id}: the job was not recorded")
    return known


async def _known(services: Services, draft: Job) -> Acceptance | None:
    """Return what stands under the identity, None when nothing does.

    Raises:
        IdempotencyConflict: another request's job.
    """
    [found] = await services.ledger.get(job_path(draft.id))
    job = from_snapshot(Job, found)
    if job is None:
        return None
    if job.digests.request != draft.digests.request or job.tenant != draft.tenant:
        raise IdempotencyConflict(job)
    mine = job.submitted_at == draft.submitted_at
    return Acceptance(job=job, created=mine, update_time=found.update_time or found.read_time)
