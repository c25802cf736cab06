"""The demo: the jobs in `examples/`, asked of a real model, from submission to report.

At the end one question is asked again under another key, to show that its answers are reused.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from functions.cli import book_tables
from functions.cli.answers import Job
from functions.cli.client import Api, Received, open_api
from functions.cli.exits import CliError, Exit
from functions.cli.progress import Show, showing
from functions.cli.reconciler import reconciler_at
from functions.cli.screen import Screen, open_screen
from functions.cli.tables import attempt_table, report_view, usage_line
from functions.cli.target import Target
from functions.cli.watching import watch
from infra.local.demo_model import DEFAULT_MODEL, DemoTarget, choose_target

AUDITS = 10
AUDIT_PAUSE_SECONDS = 1.0
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class StackInfo(Protocol):
    """What the demo needs to know of a running stack."""

    @property
    def api(self) -> str:
        """The API's address."""

    @property
    def api_key(self) -> str:
        """A key of the stack's tenant."""

    @property
    def functions(self) -> Mapping[str, str]:
        """The addresses of the other functions."""

    @property
    def push_token(self) -> str:
        """A token that these accept."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One file of `examples/`, its seats set to the demo's provider and model."""

    name: str
    body: bytes


async def demo(info: StackInfo) -> int:
    """Run the demo against a fresh stack; idempotency keys are `demo-<file stem>`.

    Returns 0 when every job succeeded, the repeated question cost no request and the audit accounts
    for every job, else an exit code of the command line (`functions.cli.exits`).
    """
    screen = open_screen(json_only=False)
    try:
        target = await choose_target(os.environ)
        examples = load_examples(EXAMPLES, target)
        async with open_api(Target(api=info.api, api_key=info.api_key)) as api:
            code = await _run(api, screen, examples, target)
            audited = await _audit(info, api, screen)
            return code if audited else max(code, Exit.ENDED_OTHERWISE)
    except CliError as error:
        screen.fail(error)
        return error.code


def load_examples(folder: Path, target: DemoTarget) -> list[Example]:
    """The folder's jobs by file name, each seat asking the target."""
    return [
        Example(name=path.stem, body=_aimed(path.read_bytes(), target))
        for path in sorted(folder.glob("*.json"))
    ]


def _aimed(body: bytes, target: DemoTarget) -> bytes:
    """The job with its seats at the target; without parameters they differ by their samples."""
    job = json.loads(body)
    seats = [{**seat, "provider": target.provider, "model": target.model} for seat in job["seats"]]
    if target.hosted:
        seats = [{**seat, "parameters": {}, "sample": sample} for sample, seat in enumerate(seats)]
    return json.dumps({**job, "seats": seats}).encode()


async def _run(api: Api, screen: Screen, examples: Sequence[Example], target: DemoTarget) -> Exit:
    screen.say(
        f"{len(examples)} jobs from examples/, provider {target.provider}, model {target.model}"
    )
    submitted = {
        example.name: (await api.submit(example.body, key=f"demo-{example.name}")).value
        for example in examples
    }
    ended = await _watch_all(api, screen, submitted)
    for name, job in ended.items():
        await _print_outcome(api, screen, name, job)
    if target.model == DEFAULT_MODEL:
        screen.say(
            f"These scores mean nothing: {DEFAULT_MODEL} has 135 million parameters and cannot "
            "judge a laptop. What counts here is how the answers were asked for, checked and kept."
        )
    reused = await _ask_again(api, screen, examples[0])
    succeeded = sum(job.state == "succeeded" for job in ended.values())
    screen.say(f"{succeeded} of {len(ended)} jobs succeeded.")
    return Exit.DONE if reused and succeeded == len(examples) else Exit.ENDED_OTHERWISE


async def _watch_all(api: Api, screen: Screen, jobs: dict[str, Job]) -> dict[str, Job]:
    """All jobs at their end, watched side by side in one picture."""
    with showing(screen.out, live=screen.watched) as show:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(_watch_one(api, show, name, job))
                    for name, job in jobs.items()
                }
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
    return {name: task.result().value for name, task in tasks.items()}


async def _watch_one(api: Api, show: Show, name: str, job: Job) -> Received[Job]:
    show(name, job)
    return await watch(api, job.id, partial(show, name))


async def _print_outcome(api: Api, screen: Screen, name: str, job: Job) -> None:
    report = await api.report(job.id, partial=True)
    attempts = await api.attempts(job.id)
    screen.say(f"\n{name}: {job.state}")
    screen.out.print(report_view(report.value))
    screen.out.print(attempt_table(attempts.value.attempts))
    screen.say(usage_line(job.usage))


async def _ask_again(api: Api, screen: Screen, example: Example) -> bool:
    """Ask one question under another key; whether it was answered without a single request."""
    screen.say(f"\nThe same question again, as another job: {example.name}")
    again = (await api.submit(example.body, key=f"demo-{example.name}-again")).value
    ended = await _watch_all(api, screen, {f"{example.name} again": again})
    (job,) = ended.values()
    requests = len((await api.attempts(job.id)).value.attempts)
    reused = sum(seat.reused for seat in job.seats)
    screen.say(
        f"{job.state}: {reused} of {len(job.seats)} seats reused, {requests} further requests."
    )
    return job.state == "succeeded" and reused == len(job.seats) and requests == 0


async def _audit(info: StackInfo, api: Api, screen: Screen) -> bool:
    """Print the audit of every hour the demo touched; whether each accepted job is accounted for.

    A notification takes a moment after its job has ended, so the audit is asked more than once.
    """
    screen.say("\nThe audit: accepted jobs against terminal records, answers and notifications")
    async with reconciler_at(info.functions["reconcile"], info.push_token) as reconciler:
        for _ in range(AUDITS):
            await reconciler.audit()
            windows = (await api.audits()).value.audits
            audits = [(await api.audit(window.window)).value for window in windows]
            if all(audit.in_order for audit in audits):
                break
            await asyncio.sleep(AUDIT_PAUSE_SECONDS)
    for audit in reversed(audits):
        screen.out.print(book_tables.audit_view(audit))
    return all(audit.in_order for audit in audits)
