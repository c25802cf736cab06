"""Drills on who holds a lease: workers that die, freeze, or come at the same time."""

import asyncio
import os
import signal

from functions.core.ports import Snapshot
from functions.drill.accounting import ENDED, Check, Promise
from functions.drill.deployment import DrillRefused, function_pids
from functions.drill.injected import Injected
from functions.drill.site import NotSeen, Site
from functions.drill.worker import Plan
from functions.drill.workers import open_worker

CALL_SECONDS = 1.0
SEATS = 4
TRIES = 5
OPEN_STATES = ("accepted", "running")


async def killed_after_answer(site: Site) -> Injected:
    """Kill a worker that has its provider's answer and has not begun to store it."""
    job = await site.accept_unsent("killed-after-answer")
    async with open_worker(site, job, Plan.HOLD_UPLOAD) as worker:
        await worker.hears("go")
        await worker.says("upload")
        await worker.kill()
    promise = Promise(
        states={job.id: "succeeded"},
        attempts={job.id: {"unknown": 1, "succeeded": 1}},
        repairs={job.id: frozenset({"woken"})},
    )
    return Injected(jobs=(job.id,), promise=promise)


async def killed_evaluate(site: Site) -> Injected:
    """Kill the stack's own `evaluate` processes while calls are in flight."""
    jobs: list[str] = []
    for _ in range(TRIES):
        await _require_idle(site, jobs)
        jobs.append(await site.submit("killed-evaluate", seats=SEATS))
        if in_flight := await _in_flight(site, jobs[-1]):
            break
    await _kill_evaluate(site)
    await site.ended(*jobs)
    outcomes = await asyncio.gather(*map(site.interface.outcomes, jobs))
    unknown = sum(ends.count("unknown") for ends in outcomes)
    checks = (
        Check(promise="the kill hit calls in flight", kept=in_flight > 0, seen=f"{in_flight}"),
        Check(
            promise="no more is unknown than was in flight",
            kept=unknown <= SEATS,
            seen=f"{unknown}",
        ),
    )
    attempts = {
        job: {"succeeded": SEATS} | ({"unknown": lost} if (lost := ends.count("unknown")) else {})
        for job, ends in zip(jobs, outcomes, strict=True)
    }
    promise = Promise(states=dict.fromkeys(jobs, "succeeded"), attempts=attempts)
    return Injected(jobs=tuple(jobs), promise=promise, checks=checks)


async def two_holders(site: Site) -> Injected:
    """Let two workers and the deployment itself reach for the same seat at once."""
    job = await site.accept_unsent("two-holders")
    async with (
        open_worker(site, job, Plan.ANSWER, call_seconds=CALL_SECONDS) as one,
        open_worker(site, job, Plan.ANSWER, call_seconds=CALL_SECONDS) as two,
    ):
        await asyncio.gather(one.hears("go"), two.hears("go"), site.send(job, [0]))
        await asyncio.gather(one.says("ended"), two.says("ended"))
        called = (one.said + two.said).count("called")
    asked_once = Check(
        promise="of three who reach for the seat at most one asks",
        kept=called <= 1,
        seen=f"{called} calls by the drill's two workers",
    )
    promise = Promise(states={job.id: "succeeded"}, attempts={job.id: {"succeeded": 1}})
    return Injected(jobs=(job.id,), promise=promise, checks=(asked_once,))


async def late_result(site: Site) -> Injected:
    """Freeze two workers past their leases; their failure and answer come after the success."""
    failure, answer = await asyncio.gather(_overtaken(site, "failure"), _overtaken(site, "answer"))
    jobs = (*failure.jobs, *answer.jobs)
    promise = Promise(
        states=dict.fromkeys(jobs, "succeeded"),
        attempts={job: {"unknown": 1, "succeeded": 1} for job in jobs},
        repairs={job: frozenset({"woken"}) for job in jobs},
    )
    return Injected(jobs=jobs, promise=promise, checks=(*failure.checks, *answer.checks))


async def _overtaken(site: Site, late: str) -> Injected:
    """Let a worker's failure or answer arrive after another holder's success."""
    job = await site.accept_unsent("late-result")
    async with open_worker(site, job, Plan.WAIT) as worker:
        await worker.hears("go")
        await worker.says("called")
        worker.freeze()
        async with site.interface.repairing():
            [ended] = await site.ended(job.id)
        before = await site.terminal(job.id)
        await worker.hears(late)
        worker.thaw()
        await worker.says("ended")
    after = await site.terminal(job.id)
    seen = await site.interface.read(f"/v1/jobs/{job.id}")
    checks = (
        _unchanged(f"a late {late} leaves the terminal record of {job.id} alone", before, after),
        Check(
            promise=f"a late {late} leaves the output of {job.id} alone",
            kept=seen["seats"][0]["output"] == ended["seats"][0]["output"],
            seen=f"{seen['seats'][0]['output']}",
        ),
    )
    return Injected(jobs=(job.id,), promise=Promise(states={}, attempts={}), checks=checks)


def _unchanged(promise: str, before: Snapshot, after: Snapshot) -> Check:
    kept = (before.update_time, before.data) == (after.update_time, after.data)
    return Check(promise=promise, kept=kept, seen=f"written again at {after.update_time}")


async def _require_idle(site: Site, own: list[str]) -> None:
    """Refuse to kill what works for others as well.

    Raises:
        DrillRefused: jobs are open that are not the drill's own.
    """
    for state in OPEN_STATES:
        page = await site.interface.read("/v1/jobs", state=state)
        if any(job["id"] not in own for job in page["jobs"]):
            raise DrillRefused("other jobs are open: a kill would cut their calls; try again later")


async def _in_flight(site: Site, job: str) -> int:
    """Wait until calls of a job are in flight; how many, 0 when it has ended before any was seen.

    Raises:
        NotSeen: nothing happens to it.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + site.patience_seconds
    while loop.time() < deadline:
        outcomes = await site.interface.outcomes(job)
        if running := outcomes.count("running"):
            return running
        if (await site.interface.read(f"/v1/jobs/{job}"))["state"] in ENDED:
            return 0
    raise NotSeen(f"{job} begins: not so after {site.patience_seconds:g} s")


async def _kill_evaluate(site: Site) -> None:
    """Kill every `evaluate` process; wait until the stack has started others."""
    stack = site.deployment.stack
    if stack is None:
        raise DrillRefused("only a local stack's processes can be killed")
    killed = set(function_pids(stack, "evaluate"))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)

    async def successors() -> set[int]:
        return set(function_pids(stack, "evaluate"))

    await site.until(
        successors, lambda pids: bool(pids) and not pids & killed, "the stack restarts evaluate"
    )
