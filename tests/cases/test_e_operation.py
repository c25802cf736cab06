"""E01, E06, E07: time limits that fit each other, reconcilers that overlap, failures in the log.

| case | where else it is shown |
|---|---|
| E01 | each setting's range and the chain's messages: `tests/unit/test_config.py` |
| E06 | two repairs beside live traffic, in any order: `tests/faults/test_stateful.py` |
| E07 | what a line looks like: `tests/unit/test_telemetry.py` |
"""

import asyncio
import gc
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from functions_framework.aio import create_asgi_app

from functions import bootstrap, telemetry
from functions.config import CLEAN_UP_SECONDS, PUSH_DEADLINE_SECONDS, load
from functions.core.errors import ConfigurationError
from functions.core.jobs import JobState, Outcome
from functions.dispatch import encode, seat_message
from functions.evaluation import Delivery
from functions.services import Services
from functions.serving import SOURCE
from functions.web import dead_letter_push, notify_push, push
from tests.cases.scenes import envelope, messages, strike_next, total_sent
from tests.faults.invariants import broken
from tests.faults.notifying import NotifyingWorld
from tests.faults.processes import Fate, Moment, Process, Strike
from tests.faults.world import World, _application, evaluation_of, request, seat_of, submission

REPOSITORY = SOURCE.parent
PROJECT = {"GOOGLE_CLOUD_PROJECT": "project"}


@pytest.mark.parametrize(
    ("provider", "handler"),
    [
        ("120", "120"),
        ("120", "129.9"),
        ("300", "200"),
        ("540", "545"),
        ("120", "595"),
        ("1", "599"),
    ],
)
def test_e01_limits_that_do_not_fit_stop_the_start(provider: str, handler: str) -> None:
    """Call < handler < ack deadline, with room to settle: else both names and values are told."""
    with pytest.raises(ConfigurationError, match="EMPANEL_HANDLER_DEADLINE_SECONDS") as refused:
        load(
            {
                **PROJECT,
                "EMPANEL_PROVIDER_DEADLINE_SECONDS": provider,
                "EMPANEL_HANDLER_DEADLINE_SECONDS": handler,
            }
        )
    assert f"={handler}" in str(refused.value)


def test_e01_no_server_setting_cuts_a_handler_before_its_own_deadline() -> None:
    """The image starts no server with a worker timeout, and the defaults keep the whole chain."""
    dockerfile = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r'^CMD \["python", "-m", "functions.serving"\]$', dockerfile, re.MULTILINE)
    assert "gunicorn" not in (REPOSITORY / "functions" / "serving.py").read_text(encoding="utf-8")
    settings = load(PROJECT)
    handler = settings.handler_deadline_seconds
    assert settings.provider_deadline_seconds < handler
    assert handler + CLEAN_UP_SECONDS < PUSH_DEADLINE_SECONDS


async def test_e01_a_call_longer_than_a_lease_is_one_call() -> None:
    """45 s at a lease of 30 s: the lease is renewed, and nobody else starts."""
    world = World()
    world.provider.seconds = 45.0
    job = await world.submit(submission())
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    assert total_sent(world) == 1
    assert broken(world) == {}


@pytest.mark.parametrize("redelivered_after", [0.0, 10.0, 60.0])
async def test_e01_a_worker_killed_in_its_call_costs_one_call_more(
    redelivered_after: float,
) -> None:
    """After the lease one later delivery finishes; the lost call is on record and is charged."""
    world = World()
    world.provider.seconds = 45.0
    job = await world.submit(submission(max_requests=3))
    [message] = messages(world)
    work = asyncio.create_task(world.deliver(message))
    await world.clock.sleep(30.0)
    old, world.evaluator = world.evaluator, world.new_process("evaluate")
    old.alive = False
    world.observed.lost_calls[job.seats[0].work_key] += 1
    work.cancel()
    await asyncio.wait({work})
    world.clock.advance(redelivered_after)
    await asyncio.gather(world.deliver(message), world.deliver(message))
    await world.finish()
    assert world.jobs()[job.id].state is JobState.SUCCEEDED
    outcomes = [attempt.outcome for attempt in evaluation_of(world, job).attempts]
    assert outcomes == [Outcome.UNKNOWN, Outcome.SUCCEEDED]
    assert total_sent(world) == 2
    assert len(seat_of(world, job).attempts) == 2
    assert world.ledger.stored()[f"budgets/{job.id}.1"]["requests"] == 2


async def reconcile(process: Process, mode: str) -> int:
    """Call `reconcile` as the scheduler does; the status."""
    answer = await push.answer_reconcile(_application(process), request(b"", query=f"mode={mode}"))
    return answer.status_code


async def gaps() -> NotifyingWorld:
    """Return a world in which each kind of work was lost: a dispatch, a holder, two announcements.

    Two jobs have ended untold, one lost its message, one its worker in the call.
    """
    world = NotifyingWorld()
    for number in range(2):
        await world.ended(question=f"told-{number}", key=f"told-{number}")
    world.announcements()
    await world.submit(replace(submission(question="lost", key="lost"), notify_url=None))
    world.drop_messages()
    await world.submit(submission(question="held", key="held"))
    [message] = messages(world)
    strike_next(world, "evaluate: call", Strike(fate=Fate.DIE, moment=Moment.AFTER))
    assert not await world.deliver(message)
    world.clock.advance(timedelta(minutes=2).total_seconds())
    return world


async def deliver_for_ever(world: NotifyingWorld) -> None:
    """Push what is published, as the subscriptions do all the time."""
    while True:
        await world.deliver_all(at_once=True)
        await world.deliver_notifications()
        await world.clock.sleep(1.0)


async def test_e06_repairs_and_audits_that_overlap_repair_each_gap_once() -> None:
    """Two repairs and two audits at once and the scheduler's retry: all 2xx, one effect each."""
    world = await gaps()
    others = [world.new_process("reconcile-2"), world.new_process("reconcile-3")]
    bought = total_sent(world)

    async def late(process: Process, mode: str) -> int:
        await world.clock.sleep(20.0)
        return await reconcile(process, mode)

    bridge = asyncio.create_task(deliver_for_ever(world))
    statuses = await asyncio.gather(
        reconcile(world.reconciler, "repair"),
        reconcile(others[0], "repair"),
        reconcile(world.reconciler, "audit"),
        reconcile(others[0], "audit"),
        late(others[1], "repair"),
        late(others[1], "audit"),
    )
    bridge.cancel()
    await asyncio.wait({bridge})
    assert set(statuses) == {200}
    told = {
        path: data for path, data in world.ledger.stored().items() if path.startswith("repairs/")
    }
    assert sorted(repair["kind"] for repair in told.values()) == [
        "announced",
        "announced",
        "dispatched",
        "woken",
    ]
    await world.deliver_all(at_once=True)
    await world.settle()
    assert all(job.state is JobState.SUCCEEDED for job in world.jobs().values())
    assert total_sent(world) == bought + 2
    identities = [call.id for call in world.calls]
    assert len(identities) == len(set(identities)) == 2
    assert {event.attributes["ce-id"] for event in world.events()} == {
        notification.id for notification in world.notifications()
    }
    assert len(world.events()) == len(world.jobs())
    assert broken(world) == {}


async def test_e06_a_repair_that_dies_is_followed_by_the_next() -> None:
    """There is no guard that could stay behind: the next period finds what is left."""
    world = await gaps()
    strike_next(world, "reconcile: publish 1", Strike(fate=Fate.DIE, moment=Moment.BEFORE))
    await world.repair()
    for _ in range(3):
        world.clock.advance(61.0)
        await world.repair()
    await world.deliver_all(at_once=True)
    await world.settle()
    assert all(job.state is JobState.SUCCEEDED for job in world.jobs().values())
    assert len({call.id for call in world.calls}) == len(world.calls) == 2


TRACE = "105445aa7843bc8bf206b12000100000"
CLOUD_TRACE = {"X-Cloud-Trace-Context": f"{TRACE}/1;o=1"}


class Streams(io.StringIO):
    """What a process printed, on both streams."""

    def lines(self) -> list[str]:
        """Return the lines printed since the last time."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text.splitlines()


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    """Log as a function process does, to one stream for stdout and stderr."""
    gc.collect()  # asyncio logs what earlier tests' dead processes left when that is collected
    streams, root = Streams(), logging.getLogger()
    monkeypatch.setattr(sys, "stdout", streams)
    monkeypatch.setattr(sys, "stderr", streams)
    before, level = root.handlers[:], root.level
    telemetry.configure("project")
    yield streams
    root.handlers[:] = before
    root.setLevel(level)


async def posted(target: str, path: str, body: bytes) -> httpx.Response:
    """Post to a target through functions-framework's own application."""
    app = create_asgi_app(target, str(SOURCE))  # type: ignore[no-untyped-call]
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        headers = {"Authorization": "Bearer token", **CLOUD_TRACE}
        return await client.post(path, content=body, headers=headers)


EVIL = 'line1\nline2\r\n{"severity": "INFO", "message": "all is well"}\x1b[2J\u2028\x85'
STEPS = {
    "evaluate": (push, "evaluate_seat"),
    "notify": (notify_push, "notify"),
    "dead_letter": (dead_letter_push, "record_dead_letter"),
    "reconcile": (push, "repair"),
}


@pytest.mark.parametrize("error", [ValueError(EVIL), KeyError(EVIL), RuntimeError()])
@pytest.mark.parametrize("target", STEPS)
async def test_e07_an_unexpected_error_is_one_line_that_can_be_found(
    target: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    printed: Streams,
) -> None:
    """JSON on one line of stdout: ERROR, the trace, the stack in one field; the answer is 500."""
    world = World()
    job = await world.submit(submission())

    async def failing(services: Services, *_: Any, **__: Any) -> Delivery:
        raise error

    monkeypatch.setattr(*STEPS[target], failing)
    message = encode(seat_message(job, 0))
    body = envelope(message)
    if target == "notify":
        data = json.dumps({"v": 1, "notification": f"{job.decision_id}.1"}).encode()
        body = envelope(replace(message, data=data))
    bootstrap.use_application(_application(world.evaluator))
    printed.lines()
    answer = await posted(target, "/?mode=repair" if target == "reconcile" else "/", body)
    assert answer.status_code == 500
    assert "line1" not in answer.text
    [line] = printed.lines()
    entry = json.loads(line)
    assert entry["severity"] == "ERROR"
    assert entry[telemetry.TRACE] == f"projects/project/traces/{TRACE}"
    assert type(error).__name__ in entry["stack"]
    assert "Traceback" in entry["stack"]
    if target != "reconcile":
        assert entry["message_id"] == "m1"
    if target == "evaluate":
        assert (entry["job"], entry["run"], entry["seat"]) == (job.id, 1, 0)
    if target == "notify":
        assert entry["notification"] == f"{job.decision_id}.1"


async def test_e07_a_failure_before_our_own_door_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, printed: Streams
) -> None:
    """What the framework itself logs of an error goes through the same formatter."""

    def unwired(environ: object) -> None:
        raise ValueError(EVIL)

    monkeypatch.setattr(bootstrap, "build_application", unwired)
    printed.lines()
    assert (await posted("evaluate", "/", b"{}")).status_code == 500
    [line] = printed.lines()
    entry = json.loads(line)
    assert entry["severity"] == "ERROR"
    assert "ValueError: line1" in entry["message"]


async def test_e07_a_line_of_one_request_holds_nothing_of_another(
    monkeypatch: pytest.MonkeyPatch, printed: Streams
) -> None:
    """Identities are those of the delivery that fails, also where requests share a task."""
    world = World()
    jobs = [await world.submit(submission(key=key, question=key)) for key in ("a", "b")]

    async def failing(services: Services, *_: Any, **__: Any) -> Delivery:
        raise RuntimeError

    monkeypatch.setattr(push, "evaluate_seat", failing)
    application = _application(world.evaluator)
    printed.lines()
    for body in (envelope(encode(seat_message(jobs[0], 0))), b"{}"):
        await push.answer_evaluate(application, request(body))
    first, second = (json.loads(line) for line in printed.lines())
    assert (first["job"], first["message_id"]) == (jobs[0].id, "m1")
    assert second["message"] == "incident opened"
    assert "message_id" not in second
    assert second["job"] is None
