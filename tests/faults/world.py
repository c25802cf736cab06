"""A whole Empanel in one event loop: what lasts, the processes over it, the bridge, the scheduler.

Ledger, bucket and topics outlive every process. A process that dies is replaced by a fresh one that
knows nothing; its deliveries come again, as Pub/Sub would send them. Time is virtual.
"""

import asyncio
import base64
import itertools
import json
from collections import Counter, deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request

from functions.acceptance import Acceptance, accept
from functions.adapters.memory import MemoryObjects, MemoryPublisher
from functions.adapters.tokens import TokenVerifier
from functions.bootstrap import UNKNOWN_PRICES, wire
from functions.cancellation import cancel
from functions.config import Settings
from functions.core.documents import from_document, job_path
from functions.core.errors import EmpanelError
from functions.core.identities import canonical_json
from functions.core.jobs import Evaluation, Job, Policy, SeatRecord, Terminal
from functions.core.ports import Message, PriceBook
from functions.core.prompts import Rubric, build_prompt
from functions.core.submissions import SeatRequest, Submission
from functions.core.verdicts import CallRequest
from functions.dispatch import SeatMessage, decode
from functions.inflight import at_once
from functions.metrics import Metrics
from functions.purging import purge
from functions.reconciliation import RepairReport, repair_once
from functions.replays import replay
from functions.tracing import Tracing
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.push import answer_evaluate
from tests.faults.fakes import FakeProvider, RecordingLedger, question_of
from tests.faults.processes import (
    DyingLedger,
    DyingObjects,
    DyingProvider,
    DyingPublisher,
    Fate,
    Moment,
    Plan,
    Process,
    Strike,
)
from tests.virtual_clock import VirtualClock

T = TypeVar("T")
TENANT = "tenant"
TOPIC = "empanel-evaluate"
RUBRIC: Mapping[str, Any] = {"instructions": "Score it.", "scale": {"min": 0, "max": 100}}
ROUND_SECONDS = 20.0
CLIENT_TRIES = 10


def test_settings(**changes: Any) -> Settings:
    """Return the settings of a world; durations are virtual, but for the provider's deadline."""
    values: dict[str, Any] = {
        "project": "test",
        "bucket": "test-empanel",
        "evaluate_topic": TOPIC,
        "notify_topic": "empanel-notify",
        "events_topic": "empanel-events",
        "firestore_emulator": None,
        "pubsub_emulator": None,
        "storage_emulator": None,
        "push_audience": None,
        "push_accounts": frozenset(),
        "push_certs": None,
        "lease_seconds": 30.0,
        "provider_deadline_seconds": 120.0,
        "handler_deadline_seconds": 570.0,
        "grace_seconds": 8.0,
        "repair_seconds": 60.0,
        "provider_concurrency": 64,
        "request_slots": 80,
        "retention_days": 400,
    }
    return Settings(**values | changes)


def submission(
    seats: Sequence[str] = ("m0",),
    *,
    question: str = "q",
    key: str | None = "key",
    filler: int = 0,
    **policy: Any,
) -> Submission:
    """Return a request for one seat per model; `filler` bytes make the inputs objects."""
    facts: dict[str, Any] = {"question": question}
    if filler:
        facts["filler"] = "x" * filler
    names = [{"provider": "fake", "model": model} for model in seats]
    return Submission(
        tenant=TENANT,
        body={"facts": facts, "rubric": dict(RUBRIC), "seats": names, "policy": policy},
        facts=facts,
        rubric=RUBRIC,
        seats=tuple(SeatRequest(seat=f"fake/{m}", provider="fake", model=m) for m in seats),
        policy=Policy(**{"required_seats": len(seats)} | policy),
        owner="owner",
        idempotency_key=key,
    )


@dataclass(eq=False, kw_only=True)
class Pushed:
    """A message on its subscription; `deliveries` counts how often it was pushed."""

    message: Message
    deliveries: int = 0


class AnyCaller(TokenVerifier):
    """Takes every token: who calls is not what these tests are about."""

    def __init__(self) -> None:
        super().__init__(audience="", accounts=frozenset(), certs=None)

    async def verify(self, token: str) -> str:
        """Return a name."""
        return "caller"


@dataclass(kw_only=True)
class Observed:
    """What no record shows: noted while it happened, judged by the invariants."""

    unrecorded_sends: list[str] = field(default_factory=list)
    sent_under: set[tuple[str, int]] = field(default_factory=set)
    hollow_acks: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost_calls: Counter[str] = field(default_factory=Counter)
    expected_incidents: int = 0


class World:
    """One Empanel with its clients, its bridge and its scheduler."""

    def __init__(
        self,
        strikes: Mapping[int, Strike] | None = None,
        *,
        objects: MemoryObjects | None = None,
        prices: PriceBook = UNKNOWN_PRICES,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
        **settings: Any,
    ) -> None:
        self.prices = prices
        self.metrics, self.tracing = metrics, tracing
        self.settings = test_settings(**settings)
        self.clock = VirtualClock()
        self.objects = objects or MemoryObjects()
        self.ledger = RecordingLedger(self.clock, self.objects)
        self.topics = MemoryPublisher(self.clock)
        self.provider = FakeProvider(self.clock, self._on_sent)
        self.plan = Plan(strikes=strikes or {})
        self.observed = Observed()
        self.pending: deque[Pushed] = deque()
        self.frozen: list[tuple[Process, asyncio.Task[Any]]] = []
        self._taken = 0
        self._known: dict[str, tuple[Mapping[str, Any], Any]] = {}
        self._asked: dict[str, dict[str, str]] = {}
        self._ids = itertools.count(1)
        self.api = self.new_process("api")
        self.evaluator = self.new_process("evaluate")
        self.reconciler = self.new_process("reconcile")

    # Processes

    def new_process(self, name: str) -> Process:
        """Return a fresh process over what lasts."""
        process = Process(name, self.plan, self._on_strike)
        process.services = wire(
            self.settings,
            clock=self.clock,
            ledger=DyingLedger(process=process, inner=self.ledger),
            objects=DyingObjects(process=process, inner=self.objects),
            publisher=DyingPublisher(process=process, inner=self.topics),
            providers={"fake": DyingProvider(process=process, inner=self.provider)},
            prices=self.prices,
            new_id=lambda: f"{name}-{next(self._ids)}",
            jitter=lambda: 0.0,
            calm=at_once,
            metrics=self.metrics,
            tracing=self.tracing,
        )
        return process

    def _replace(self, process: Process) -> None:
        for role in ("api", "evaluator", "reconciler"):
            if getattr(self, role) is process:
                setattr(self, role, self.new_process(process.name))

    async def run(self, process: Process, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T] | None":
        """Run work in a process; None when the process died or froze over it."""
        task = await process.lead(work)
        if not process.gone.is_set():
            return task
        self._replace(process)
        if process.alive and not task.done():
            await self._note_frozen_calls()
            self.frozen.append((process, task))
        elif process.alive:
            return task
        return None

    async def thaw(self) -> None:
        """Let all frozen processes go on until they have ended what they were at."""
        frozen, self.frozen = self.frozen, []
        for process, _ in frozen:
            process.thaw()
        for process, task in frozen:
            await asyncio.wait({task})
            if process.alive:
                _raise_unexpected(task)

    # Clients

    async def submit(self, asked: Submission) -> Job:
        """Submit as a client would that asks again until it has an answer."""
        for _ in range(CLIENT_TRIES):
            acceptance = await self.submit_once(asked)
            if acceptance is not None:
                return acceptance.job
            self.clock.advance(1.0)
        raise AssertionError("the client never got an answer")

    async def submit_once(self, asked: Submission) -> Acceptance | None:
        """Submit once; None when the client gets an error, or no answer."""
        task = await self.run(self.api, accept(self.api.services, asked))
        if task is None:
            return None
        _raise_unexpected(task)
        if isinstance(error := task.exception(), EmpanelError):
            self.observed.refused.append(str(error))
            return None
        return task.result()

    async def replay(self, job: Job) -> Job:
        """Replay as a client would that asks again until it has an answer."""
        for _ in range(CLIENT_TRIES):
            task = await self.run(self.api, replay(self.api.services, job, by="someone"))
            if task is not None:
                _raise_unexpected(task)
                if task.exception() is None:
                    return task.result()
                if self.jobs()[job.id].run > job.run:
                    return self.jobs()[job.id]  # the answer to an earlier try was lost
            self.clock.advance(1.0)
        raise AssertionError("the client never got an answer")

    async def purge(self, job: Job) -> Job:
        """Purge as an operator would who asks again until there is an answer."""
        self.questions()
        for _ in range(CLIENT_TRIES):
            task = await self.run(self.api, purge(self.api.services, job, by="operator"))
            if task is not None:
                _raise_unexpected(task)
                if task.exception() is None:
                    return task.result()
            self.clock.advance(1.0)
        raise AssertionError("the client never got an answer")

    async def cancel(self, job: Job) -> Job:
        """Cancel as a client would that asks again until it has an answer."""
        for _ in range(CLIENT_TRIES):
            task = await self.run(self.api, cancel(self.api.services, job, by="someone"))
            if task is not None:
                _raise_unexpected(task)
                if task.exception() is None:
                    return task.result()
            self.clock.advance(1.0)
        raise AssertionError("the client never got an answer")

    # The bridge

    def collect(self) -> int:
        """Take what was published since the last time into the subscription; return how many."""
        published = self.topics.messages(TOPIC)
        fresh = published[self._taken :]
        self._taken = len(published)
        self.pending.extend(Pushed(message=message) for message in fresh)
        return len(fresh)

    async def deliver_all(self, *, at_once: bool = False) -> None:
        """Push everything published until all is acked; what is not acked comes again."""
        self.collect()
        while self.pending:
            batch = list(self.pending) if at_once else [self.pending[0]]
            for pushed in batch:
                self.pending.remove(pushed)
            acked = await asyncio.gather(*(self.deliver(pushed.message) for pushed in batch))
            for pushed, was_acked in zip(batch, acked, strict=True):
                pushed.deliveries += 1
                if not was_acked:
                    assert pushed.deliveries < 100, f"{pushed.message} is never acked"
                    self.pending.append(pushed)
            if not all(acked):
                self.clock.advance(10.0)
            self.collect()

    async def deliver(self, message: Message, process: Process | None = None) -> bool:
        """Push one message to an instance; say whether it was acked."""
        process = process or self.evaluator
        before = self._published_for(message)
        task = await self.run(process, answer_evaluate(_application(process), _push(message)))
        if task is None:
            return False
        _raise_unexpected(task)
        acked = task.result().status_code == 204
        if acked:
            self._judge_ack(message, fresh=self._published_for(message) > before)
        else:
            assert task.result().status_code == 503, "a delivery is answered 204 or 503"
        return acked

    def drop_messages(self) -> int:
        """Lose everything that was published and not yet acked; return how many."""
        self.collect()
        lost = len(self.pending)
        self.pending.clear()
        return lost

    def _published_for(self, message: Message) -> int:
        return sum(m.attributes == message.attributes for m in self.topics.messages(TOPIC))

    def _judge_ack(self, message: Message, *, fresh: bool) -> None:
        seat = decode(message)
        job, records = self.jobs().get(seat.job), self.seats(seat.job)
        if job is None:
            return
        ended = (seat.run, seat.seat) in records or job.state.is_terminal
        if not (ended or fresh or self._has_timer(job, seat)):
            self.observed.hollow_acks.append(f"{seat.job} seat {seat.seat}")

    def _has_timer(self, job: Job, seat: SeatMessage) -> bool:
        """Whether the seat waits for a time that a timer watches."""
        state = self.evaluations().get(seat.work_key)
        if state is None:
            return False
        back_at = max(filter(None, (state.due_at, state.lease_until)), default=None)
        if back_at is None or back_at <= self.clock.now():
            return False
        own = state.wake is not None and (state.wake.job, state.wake.seat) == (job.id, seat.seat)
        watched = job.check_at is not None and (job.check_at - back_at).total_seconds() <= 1.0
        return (own and state.wake_at is not None) or watched

    # The scheduler

    async def repair(self) -> RepairReport:
        """Run one look of repair; what it raises is left to the next one, as the scheduler does."""
        report = RepairReport()
        task = await self.run(self.reconciler, repair_once(self.reconciler.services, report))
        if task is not None:
            _raise_unexpected(task)
        return report

    async def finish(self, *, at_once: bool = False, rounds: int = 250) -> None:
        """Deliver, pass the time and repair until nothing is left to do, frozen work included."""
        for _ in range(rounds):
            await self.deliver_all(at_once=at_once)
            if self.is_quiet():
                if not self.frozen:
                    return
                await self.thaw()
                continue
            self.clock.advance(ROUND_SECONDS)
            await self.repair()
        if self.frozen:
            await self.thaw()

    def is_quiet(self) -> bool:
        """Whether no message and no timer is left."""
        self.collect()
        jobs, evaluations = self.jobs().values(), self.evaluations().values()
        timers = [job.check_at for job in jobs] + [state.wake_at for state in evaluations]
        return not self.pending and not any(timers)

    # What is on record

    def jobs(self) -> dict[str, Job]:
        """Return all jobs by identity."""
        return {job.id: job for job in self._records(Job, "jobs").values()}

    def evaluations(self) -> dict[str, Evaluation]:
        """Return all evaluations by work key."""
        return {e.work_key: e for e in self._records(Evaluation, "evaluations").values()}

    def seats(self, job: str) -> dict[tuple[int, int], SeatRecord]:
        """Return the records of a job's seats, by run and index."""
        found = self._records(SeatRecord, "seats", job).values()
        return {(record.run, record.index): record for record in found}

    def terminals(self, job: str) -> dict[int, Terminal]:
        """Return the terminal records of a job, by run."""
        found = self._records(Terminal, "terminals", job).values()
        return {terminal.run: terminal for terminal in found}

    def incidents(self) -> list[Mapping[str, Any]]:
        """Return all incidents."""
        stored = self.ledger.stored()
        return [data for path, data in stored.items() if path.startswith("incidents/")]

    def _records(self, kind: type[Any], collection: str, job: str | None = None) -> dict[str, Any]:
        parent = collection if job is None else f"{job_path(job)}/{collection}"
        return {
            path: self._read(kind, path, data)
            for path, data in self.ledger.stored().items()
            if path.rpartition("/")[0] == parent
        }

    def _read(self, kind: type[Any], path: str, data: Mapping[str, Any]) -> Any:
        """Return the record in a document, read once for each state of it."""
        known = self._known.get(path)
        if known is None or known[0] is not data:
            known = self._known[path] = (data, from_document(kind, data, path))
        return known[1]

    def questions(self) -> dict[str, str]:
        """Return the work key of every question that any job asks, or asked before its purge."""
        for job in self.jobs().values():
            if job.id not in self._asked:
                self._asked[job.id] = {
                    question_of(self._request(job, index)): seat.work_key
                    for index, seat in enumerate(job.seats)
                }
        return {q: key for asked in self._asked.values() for q, key in asked.items()}

    def sent(self) -> Counter[str]:
        """Return how many requests were sent, by work key."""
        questions = self.questions()
        return Counter({questions[q]: count for q, count in self.provider.sent.items()})

    def unusable(self) -> Counter[str]:
        """Return how many replies were failures or no answers, by work key."""
        questions = self.questions()
        return Counter({questions[q]: count for q, count in self.provider.unusable.items()})

    def _request(self, job: Job, index: int) -> CallRequest:
        facts, rubric = job.inputs.facts, job.inputs.rubric
        if facts is None or rubric is None:
            stored = [
                self.objects._objects[name].data.decode()
                for name in (job.inputs.facts_object, job.inputs.rubric_object)
                if name is not None
            ]
            facts, rubric = stored
        system, user = build_prompt(Rubric.from_json(json.loads(rubric)), facts)
        seat = job.seats[index]
        return CallRequest(
            model=seat.model, system=system, user=user, schema={}, parameters=seat.parameters
        )

    # What is watched while it happens

    def _on_sent(self, request: CallRequest) -> None:
        question = question_of(request)
        key = self.questions()[question]
        state = self.evaluations().get(key)
        recorded = state.token if state else 0
        self.observed.sent_under.add((key, recorded))
        if self.provider.sent[question] > recorded:
            self.observed.unrecorded_sends.append(f"{request.model}: {recorded} on record")

    def _on_strike(self, strike: Strike, name: str) -> None:
        """Note whose answer this strike may cost: those sent, or about to be, and not stored."""
        if strike.fate is Fate.FAIL:
            if name == "call" and strike.moment is Moment.AFTER:
                self.observed.lost_calls.update(self._unstored())
            return
        self.observed.lost_calls.update(self._unstored(about_to=strike.fate is Fate.FREEZE))

    async def _note_frozen_calls(self) -> None:
        """Note also the calls that were on their way to the ledger when their process froze."""
        for _ in range(3):
            await asyncio.sleep(0)
        self.observed.lost_calls |= Counter(self._unstored(about_to=True))

    def _unstored(self, *, about_to: bool = False) -> list[str]:
        sent, stored = self.sent(), set(self.objects.names())
        return [
            key
            for key, state in self.evaluations().items()
            if any(attempt.ended_at is None for attempt in state.attempts)
            and (about_to or sent[key] > 0)
            and state.object_name not in stored
        ]


def seat_of(world: World, job: Job, index: int = 0) -> SeatRecord:
    """Return the record of a seat that has ended in the job's first run."""
    return world.seats(job.id)[(1, index)]


def evaluation_of(world: World, job: Job, index: int = 0) -> Evaluation:
    """Return the evaluation of a seat."""
    return world.evaluations()[job.seats[index].work_key]


def _raise_unexpected(task: "asyncio.Task[Any]") -> None:
    """Fail the test for whatever a process must not end with."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, BaseExceptionGroup):
        _, error = error.split(EmpanelError)
    if error is not None and not isinstance(error, EmpanelError):
        raise error


def _application(process: Process) -> Application:
    services = process.services
    return Application(services=services, keys=KeyRing(services.ledger), callers=AnyCaller())


def _push(message: Message) -> Request:
    data = base64.b64encode(message.data).decode()
    envelope = {"message": {"data": data, "attributes": dict(message.attributes)}}
    return request(canonical_json(envelope))


def request(body: bytes, *, path: str = "/", query: str = "") -> Request:
    """Return a push or scheduler request with a token."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"authorization", b"Bearer token"), (b"content-type", b"application/json")],
        "server": ("test", 80),
        "scheme": "http",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)
