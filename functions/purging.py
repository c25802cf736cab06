"""Purge: inputs and outputs of a finished job are deleted; digests and records stay.

    mark -> delete -> delete again once no call can bring an object any more

The mark is one commit: the head loses its inputs, the evaluations of its seats lose their outputs
and get new object names, so nothing that is to be deleted can be reused from there on. What is to
be deleted can be read off the marked records, so that a purge that died is finished by repair,
and the same pass finds what a late upload brought.

Outputs are shared by all jobs that asked the same; they are gone for all of them. The names of what
was purged are remembered, so that the others' reports and the audit can tell it from a loss.
"""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from functions import telemetry
from functions.core.documents import (
    changes,
    evaluation_path,
    from_document,
    from_snapshot,
    job_path,
)
from functions.core.errors import EmpanelError, LedgerUnavailable, ObjectError, WriteConflict
from functions.core.identities import name_in_bucket
from functions.core.jobs import Evaluation, Inputs, Job, JobState, PurgedInput, SeatRecord
from functions.core.leases import bury
from functions.core.ports import SERVER_TIME, Query, Snapshot, Update
from functions.operator_log import log_entry
from functions.services import Services

TRIES = 20
LONGEST_CALL_SECONDS = 900.0  # a handler ends after ten minutes; its process may stand still
KEPT_NAMES = 16


class NotPurgeable(EmpanelError):
    """The job is open, or an open job has the same facts; the text says which."""


async def purge(services: Services, job: Job, *, by: str) -> Job:
    """Delete a finished job's inputs and outputs; return the job as it is then.

    Safe to repeat: a purged job is only looked at again. What cannot be deleted now is deleted by
    repair. `by` is the name of who asked for it.

    Raises:
        NotPurgeable: not as long as something still needs what would be deleted.
        LedgerUnavailable, ObjectsUnavailable: it is not certain that the job is marked; ask again.
    """
    marked = await _mark(services, job, by)
    try:
        deleted = await sweep(services, marked)
    except (LedgerUnavailable, ObjectError) as exc:
        telemetry.warning("purge left to repair", job=job.id, error=str(exc)[:300])
    else:
        telemetry.event("purged", job=job.id, owner=job.owner, objects=deleted)
    return marked


async def sweep(services: Services, job: Job) -> int:
    """Delete every object that a purged job has left; return how many there were.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: not everything is certainly deleted.
    """
    names = await _output_names(services, job)
    deleted = sum(await asyncio.gather(*(_delete(services, name) for name in names)))
    if job.purged_inputs and await _open_job_with_its_facts(services, job) is None:
        for kept in job.purged_inputs:
            deleted += await services.objects.delete(kept.name, kept.generation)
    return deleted


async def _delete(services: Services, name: str) -> bool:
    stored = await services.objects.stat(name)
    return stored is not None and await services.objects.delete(name, stored.generation)


def next_sweep(job: Job, now: datetime) -> datetime | None:
    """Return when a purged job must be looked at again, None when it need not."""
    last = (job.purged_at or now) + timedelta(seconds=LONGEST_CALL_SECONDS)
    return last if now < last else None


async def _mark(services: Services, job: Job, by: str) -> Job:
    for _ in range(TRIES):
        [found] = await services.ledger.get(job_path(job.id))
        services.clock.observe(found.read_time)
        current = from_snapshot(Job, found)
        if current is None:
            raise LedgerUnavailable(f"{found.path}: the job cannot be read back")
        if current.purged_at is not None:
            return current
        await _check_unneeded(services, current)
        try:
            await _commit_mark(services, current, found, by)
        except WriteConflict:
            continue
        except LedgerUnavailable as exc:
            telemetry.warning("mark uncertain", job=job.id, error=str(exc)[:300])
    raise LedgerUnavailable(f"{job_path(job.id)}: the job could not be marked")


async def _check_unneeded(services: Services, job: Job) -> None:
    if not job.state.is_terminal:
        raise NotPurgeable(f"the job is {job.state.value}: cancel it first, or let it end")
    other = await _open_job_with_its_facts(services, job)
    if other is not None:
        raise NotPurgeable(f"the open job {other} has the same facts")


async def _commit_mark(services: Services, job: Job, found: Snapshot, by: str) -> None:
    evaluations = [
        update
        for snapshot in await services.ledger.get(*_evaluation_paths(job))
        if (update := _without_output(services, snapshot)) is not None
    ]
    again = services.clock.now() + timedelta(seconds=services.settings.repair_seconds)
    after = replace(
        job,
        inputs=Inputs(),
        input_digests=(),
        check_at=again,
        purged_inputs=await _inputs_to_delete(services, job),
    )
    head = Update(
        path=found.path,
        fields=changes(job, after) | {"purged_at": SERVER_TIME},
        if_updated_at=found.update_time,
    )
    log = log_entry(services, tenant=job.tenant, who=by, what="purge", job=job.id)
    await services.ledger.commit(head, *evaluations, log)


def _without_output(services: Services, found: Snapshot) -> Update | None:
    """Return the write that takes an evaluation's output away and ends its last holder's right.

    Whoever still works on it stores under a name that is remembered as purged, and settles nothing.
    """
    evaluation = from_snapshot(Evaluation, found)
    if evaluation is None:
        return None
    services.clock.observe(found.read_time)
    state = evaluation
    if state.holder is not None:
        over = replace(
            state, lease_until=min(state.lease_until or found.read_time, found.read_time)
        )
        state = replace(bury(over, found.read_time), wake_at=None, wake=None)
    output = name_in_bucket(state.output.uri) if state.output else None
    names = [name for name in (output, state.object_name) if name is not None]
    if names:
        purged = tuple(dict.fromkeys((*state.purged, *names)))[-KEPT_NAMES:]
        epoch = state.epoch + 1
        state = replace(state, output=None, object_name=None, epoch=epoch, purged=purged)
    fields = changes(evaluation, state)
    if not fields:
        return None
    return Update(path=found.path, fields=fields, if_updated_at=found.update_time)


async def _inputs_to_delete(services: Services, job: Job) -> tuple[PurgedInput, ...]:
    """Return the input objects that are the job's alone, or its facts: never a rubric of others.

    By generation, since a later job may store the same content under the same name.
    """
    names = [job.inputs.facts_object]
    if job.inputs.rubric_object and not await _others_use(services, job, job.digests.rubric):
        names.append(job.inputs.rubric_object)
    stored = [await services.objects.stat(name) for name in names if name is not None]
    return tuple(PurgedInput(name=s.name, generation=s.generation) for s in stored if s is not None)


async def _others_use(services: Services, job: Job, digest: str) -> bool:
    found = await services.ledger.query(_jobs_with(job, digest, limit=2))
    return any(other.id != job.id for other in found)


async def _open_job_with_its_facts(services: Services, job: Job) -> str | None:
    """Return an open job of the tenant that has the same facts, None when there is none."""
    for state in (JobState.ACCEPTED, JobState.RUNNING):
        query = _jobs_with(job, job.digests.facts, ("state", "==", state.value))
        if found := await services.ledger.query(query):
            return found[0].id
    return None


def _jobs_with(job: Job, digest: str, *also: tuple[str, str, object], limit: int = 1) -> Query:
    where = (("tenant", "==", job.tenant), ("input_digests", "array_contains", digest), *also)
    return Query(collection="jobs", where=where, limit=limit)


async def _output_names(services: Services, job: Job) -> list[str]:
    """Return the names of all objects that hold, or may come to hold, an answer to the job.

    Those on record in its seats, of all runs, and those its evaluations had to give up.
    """
    seats = await services.ledger.query(Query(collection=f"{job_path(job.id)}/seats"))
    records = [from_document(SeatRecord, doc.data or {}, doc.path) for doc in seats]
    uris = [record.output.uri for record in records if record.output is not None]
    names = [name_in_bucket(uri) for uri in uris]
    for found in await services.ledger.get(*_evaluation_paths(job)):
        evaluation = from_snapshot(Evaluation, found)
        names += evaluation.purged if evaluation is not None else ()
    return list(dict.fromkeys(names))


def _evaluation_paths(job: Job) -> list[str]:
    return [evaluation_path(seat.work_key) for seat in job.seats]  # no two seats ask the same
