"""Drills on messages and outputs that get lost, and on messages that come more than once."""

import asyncio
from typing import Any

from functions.core.jobs import Job
from functions.dispatch import encode, seat_message
from functions.drill.accounting import Check, Gap, Incident, Promise
from functions.drill.injected import Injected
from functions.drill.site import NEAR_SECONDS, NotSeen, Site
from functions.evaluation import Delivery, evaluate

UNTOLD_SECONDS = 5.0  # when repair looks at a lost notification: an audit may look before it
COPIES = 5
ACKNOWLEDGED = 204


async def lost_dispatch(site: Site) -> Injected:
    """Accept a job whose message never arrives."""
    job = await site.accept_unsent("lost-dispatch", NEAR_SECONDS)
    promise = Promise(
        states={job.id: "succeeded"},
        attempts={job.id: {"succeeded": 1}},
        repairs={job.id: frozenset({"dispatched"})},
    )
    return Injected(jobs=(job.id,), promise=promise)


async def lost_notification(site: Site) -> Injected:
    """Let a run end whose announcement never arrives."""
    job = await _ended_untold(site, "lost-notification")
    promise = Promise(
        states={job.id: "succeeded"},
        attempts={job.id: {"succeeded": 1}},
        found={job.id: frozenset({_undelivered(job)})},
        repairs={job.id: frozenset({"announced"})},
    )
    return Injected(jobs=(job.id,), promise=promise)


async def lost_upload(site: Site) -> Injected:
    """Delete one of two outputs behind the back of a run that has succeeded."""
    job = await site.submit("lost-upload", seats=2)
    [ended] = await site.ended(job)
    await _lose_first_output(site, ended)
    promise = Promise(
        states={job: "succeeded"},
        attempts={job: {"succeeded": 2}},
        left=frozenset({_missing(job)}),
        incidents=frozenset({Incident(kind="output_missing", job=job)}),
        incomplete_reports=frozenset({job}),
    )
    return Injected(jobs=(job,), promise=promise)


async def lost_notification_and_upload(site: Site) -> Injected:
    """Lose the announcement and the output of the same run."""
    job = await _ended_untold(site, "lost-notification-and-upload")
    [ended] = await site.ended(job.id)
    await _lose_first_output(site, ended)
    promise = Promise(
        states={job.id: "succeeded"},
        attempts={job.id: {"succeeded": 1}},
        found={job.id: frozenset({_undelivered(job)})},
        left=frozenset({_missing(job.id)}),
        repairs={job.id: frozenset({"announced"})},
        incidents=frozenset({Incident(kind="output_missing", job=job.id)}),
        incomplete_reports=frozenset({job.id}),
    )
    return Injected(jobs=(job.id,), promise=promise)


async def duplicate_deliveries(site: Site) -> Injected:
    """Deliver each seat's message several times, while it is worked on and after its end."""
    job = await site.submit("duplicate-deliveries", seats=2)
    record = await site.record(job)
    await site.send(record, range(2), COPIES)
    await site.ended(job)
    before = await site.terminal(job)
    checks = await _pushed_again(site, record) if site.deployment.evaluate else ()
    after = await site.terminal(job)
    unchanged = Check(
        promise=f"the terminal record of {job} is written once",
        kept=(before.update_time, before.data) == (after.update_time, after.data),
    )
    promise = Promise(states={job: "succeeded"}, attempts={job: {"succeeded": 2}})
    return Injected(jobs=(job,), promise=promise, checks=(*checks, unchanged))


async def _pushed_again(site: Site, job: Job) -> tuple[Check, ...]:
    messages = [encode(seat_message(job, index)) for index in range(2)] * COPIES
    statuses = await asyncio.gather(*(site.interface.push(message) for message in messages))
    promise = "a delivery after the end is acknowledged"
    kept = set(statuses) == {ACKNOWLEDGED}
    return (Check(promise=promise, kept=kept, seen=f"{sorted(set(statuses))}"),)


async def _ended_untold(site: Site, drill: str) -> Job:
    """Return a job that the drill's own worker has ended, and whose announcement was dropped."""
    job = await site.accept_unsent(drill)
    topic = site.deployment.settings.notify_topic
    services = site.services(dropped={topic}, check_seconds=UNTOLD_SECONDS)
    until = services.clock.monotonic() + services.settings.handler_deadline_seconds
    delivery = await evaluate(services, seat_message(job, 0), until=until)
    if delivery is not Delivery.ENDED:
        raise NotSeen(f"the drill's own delivery of {job.id} came to {delivery.value}")
    return job


async def _lose_first_output(site: Site, ended: dict[str, Any]) -> None:
    output = ended["seats"][0]["output"]
    if output is None:
        raise NotSeen(f"{ended['id']} has no output to lose")
    await site.lose_object(output)


def _undelivered(job: Job) -> Gap:
    return Gap(kind="undelivered_notifications", name=f"{job.decision_id}.{job.run}")


def _missing(job: str) -> Gap:
    return Gap(kind="missing_output", name=f"{job} seat-0")
