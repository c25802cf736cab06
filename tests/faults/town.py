"""A world with several instances at work at once, each with a clock of its own that is wrong.

Deliveries, repairs and cancels run as tasks beside each other and stand still between the steps of
a test; time moves only when the test lets it.
"""

import asyncio
import itertools
import random
from collections import Counter, deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from functions.adapters.clock import SystemClock
from functions.adapters.memory import MemoryObjects, MemoryPublisher
from functions.bootstrap import wire
from functions.cancellation import cancel
from functions.core.jobs import Job
from functions.core.ports import Ledger, Query, Snapshot, Write
from functions.core.verdicts import CallRequest
from functions.dispatch import SeatMessage
from functions.inflight import at_once
from functions.replays import replay
from tests.faults.fakes import FakeProvider, RecordingLedger, Reply, question_of
from tests.faults.prices import FakePrices
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
from tests.faults.world import Pushed, World, _raise_unexpected
from tests.virtual_loop import LoopClock

MOMENT_SECONDS = 0.01  # how long a step lets everybody run
INSTANCES = 2
SOON_SECONDS = 2.0


class InstanceClock(SystemClock):
    """An instance's clock: its wall time is off, and it stands still with its process.

    Everything else is the real one: it follows the server's times as they arrive.
    """

    def __init__(self, process: Process, time: LoopClock, skew_seconds: float) -> None:
        self._process = process
        self._time = time
        self._skew = timedelta(seconds=skew_seconds)
        super().__init__(
            monotonic=lambda: time.monotonic() + 1000.0,
            wall=lambda: self.wall_now().timestamp(),
        )

    def wall_now(self) -> datetime:
        """Return what the machine's own clock shows: nothing may be decided by it."""
        return self._time.now() + self._skew

    async def sleep(self, seconds: float) -> None:
        """Wait; a process that died meanwhile never wakes, a frozen one wakes when it thaws."""
        await self._time.sleep(seconds)
        await self._process._running()


@dataclass(frozen=True, kw_only=True)
class ObservingLedger:
    """Shows the clock each server time that arrives, as the Firestore adapter does."""

    inner: Ledger
    clock: InstanceClock

    async def get(self, *paths: str) -> list[Snapshot]:
        return self._observed(await self.inner.get(*paths))

    async def commit(self, *writes: Write) -> datetime:
        committed = await self.inner.commit(*writes)
        self.clock.observe(committed)
        return committed

    async def query(self, query: Query) -> list[Snapshot]:
        return self._observed(await self.inner.query(query))

    async def count(self, query: Query) -> int:
        return await self.inner.count(query)

    async def total(self, query: Query) -> int:
        return await self.inner.total(query)

    def _observed(self, snapshots: list[Snapshot]) -> list[Snapshot]:
        for snapshot in snapshots[:1]:
            self.clock.observe(snapshot.read_time)
        return snapshots


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """What the provider does with a request: think for so long, then answer, or fail."""

    seconds: float = 1.0
    failure: Reply | None = None


class PlannedProvider(FakeProvider):
    """Does what was planned for the next requests, in their order, and answers all others.

    `cut` counts the requests, by question, whose connection we closed.
    """

    def __init__(self, clock: LoopClock, on_sent: Any) -> None:
        super().__init__(clock, on_sent)
        self.plans: deque[Planned] = deque()
        self.cut: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], Planned] = {}
        self.script = self._as_planned

    async def call(self, request: CallRequest) -> Reply:
        """Take the next plan and follow it."""
        planned = self.plans.popleft() if self.plans else Planned()
        question = question_of(request)
        self._planned[(question, self.sent[question] + 1)] = planned
        self.seconds = planned.seconds
        try:
            return await super().call(request)
        except asyncio.CancelledError:
            self.cut[question] += 1
            raise

    def _as_planned(self, request: CallRequest, number: int) -> Reply:
        failure = self._planned[(question_of(request), number)].failure
        return failure if failure is not None else self.answer(request, number)


@dataclass(kw_only=True)
class TargetedPlan(Plan):
    """A plan that also strikes the next call whose name ends so, whenever it comes."""

    targets: list[tuple[str, Strike]] = field(default_factory=list)

    def next(self, name: str) -> Strike | None:
        """Note a call; return what happens to it."""
        strike = super().next(name)
        for target in self.targets if strike is None else ():
            if name.endswith(target[0]):
                self.targets.remove(target)
                return target[1]
        return strike


class Town(World):
    """A world in the time of a virtual loop; `skews` are the errors of the instances' clocks."""

    def __init__(
        self,
        clock: LoopClock,
        *,
        ledger: RecordingLedger | None = None,
        objects: MemoryObjects | None = None,
        skews: Iterable[float] = (0.0,),
        **settings: Any,
    ) -> None:
        self._skews = itertools.cycle(skews)
        self.instances: list[Process] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.lost_objects: Counter[str] = Counter()
        super().__init__(objects=objects, prices=FakePrices(), **settings)
        self.clock = clock
        self.ledger = ledger or RecordingLedger(clock, self.objects)
        self.topics = MemoryPublisher(clock)
        self.planned = PlannedProvider(clock, self._on_sent)
        self.provider = self.planned
        self.strikes: dict[int, Strike] = {}
        self.targeted = self.plan = TargetedPlan(strikes=self.strikes)
        self.api = self.new_process("api")
        self.reconciler = self.new_process("reconcile")
        self.instances = [self.new_process("evaluate") for _ in range(INSTANCES)]

    # Processes

    def new_process(self, name: str) -> Process:
        """Return a fresh process whose clock knows nothing of the server's yet."""
        if not isinstance(self.clock, LoopClock):
            return super().new_process(name)  # before the clock is set; replaced afterwards
        process = Process(name, self.plan, self._on_strike)
        clock = InstanceClock(process, self.clock, next(self._skews))
        inner = DyingLedger(process=process, inner=self.ledger)
        process.services = wire(
            self.settings,
            clock=clock,
            ledger=ObservingLedger(inner=inner, clock=clock),
            objects=DyingObjects(process=process, inner=self.objects),
            publisher=DyingPublisher(process=process, inner=self.topics),
            providers={"fake": DyingProvider(process=process, inner=self.provider)},
            prices=self.prices,
            new_id=lambda: f"{name}-{next(self._ids)}",
            jitter=random.Random(next(self._ids)).random,
            calm=at_once,
        )
        return process

    def _replace(self, process: Process) -> None:
        super()._replace(process)
        if process in self.instances:
            self.instances[self.instances.index(process)] = self.new_process(process.name)

    def strike_later(self, strike: Strike, *, after_calls: int, calls: int = 1) -> None:
        """Strike `calls` calls in a row, after so many that are spared."""
        first = len(self.plan.calls) + after_calls + 1
        self.strikes.update((first + n, strike) for n in range(calls))

    def kill(self, process: Process) -> None:
        """End an instance now, wherever it is; another takes its place."""
        process._hit(Strike(fate=Fate.DIE, moment=Moment.BEFORE), "killed")
        self._replace(process)

    def shut_down(self, process: Process) -> None:
        """Begin an orderly end of an instance; another takes the new deliveries."""
        grace_seconds = process.services.settings.grace_seconds
        self.start(process.services.inflight.shut_down(grace_seconds))
        self._replace(process)

    def thaw_all(self) -> None:
        """Let the frozen processes go on; what they were at runs beside everything else."""
        frozen, self.frozen = self.frozen, []
        for process, task in frozen:
            process.thaw()
            self.start(self._outlived(process, task))

    async def _outlived(self, process: Process, task: "asyncio.Task[Any]") -> None:
        await asyncio.wait({task})
        if process.alive:
            _raise_unexpected(task)

    # Work beside each other

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something that goes on beside the steps of the test."""
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    def start_delivery(self, pushed: Pushed, instance: int) -> None:
        """Push a message to an instance; not acked, it will be pending again."""
        self.start(self._pushed(pushed, self.instances[instance]))

    async def _pushed(self, pushed: Pushed, process: Process) -> None:
        pushed.deliveries += 1
        if not await self.deliver(pushed.message, process):
            self.pending.append(pushed)

    async def go_on(self, seconds: float = MOMENT_SECONDS) -> None:
        """Let everything run for so long; what went wrong in a task is raised here."""
        await self.clock.sleep(seconds)
        self.raise_what_failed()
        self.collect()

    def raise_what_failed(self) -> None:
        """Raise what a task that has ended did not expect."""
        ended = {task for task in self.tasks if task.done()}
        self.tasks -= ended
        for task in ended:
            task.result()

    async def knock(self) -> None:
        """Look an API key up, as the API does before it takes a request."""

        async def look() -> None:
            await self.api.services.ledger.get("api_keys/0")

        await self.run(self.api, look())

    async def cancel_once(self, job: Job) -> None:
        """Cancel as a client would that gives up when it gets no answer."""
        task = await self.run(self.api, cancel(self.api.services, job, by="someone"))
        if task is not None:
            _raise_unexpected(task)

    async def replay_once(self, job: Job) -> None:
        """Replay as a client would that gives up when it gets no answer."""
        task = await self.run(self.api, replay(self.api.services, job, by="someone"))
        if task is not None:
            _raise_unexpected(task)

    def lose_object(self, name: str) -> None:
        """Lose an object of the bucket, and remember whose answer it was."""
        for key, state in self.evaluations().items():
            output = state.output.uri.removeprefix(self.objects.uri("")) if state.output else None
            if name in (output, state.object_name):
                self.lost_objects[key] += 1
        self.objects.lose(name)

    async def settle_down(self, rounds: int = 400) -> None:
        """Strike no more, then deliver, wait and repair until nothing is left to do.

        Frozen processes go on once everything has ended without them: as late as can be.
        """
        self.strikes.clear()
        self.targeted.targets.clear()
        self.planned.plans.clear()
        for _ in range(rounds):
            self.collect()
            while self.pending:
                self.start_delivery(self.pending.popleft(), 0)
            if self.tasks:
                await asyncio.wait(self.tasks)
                self.raise_what_failed()
            elif self.is_quiet():
                if not self.frozen:
                    return
                self.thaw_all()
            else:
                await self.go_on(self._until_next_timer())
                await self.repair()

    def _until_next_timer(self) -> float:
        timers = [job.check_at for job in self.jobs().values()]
        timers += [state.wake_at for state in self.evaluations().values()]
        soonest = min((at for at in timers if at is not None), default=self.clock.now())
        return max(5.0, (soonest - self.clock.now()).total_seconds())

    # What is on record

    def cut(self) -> Counter[str]:
        """Return how many requests were cut from our side, by work key."""
        questions = self.questions()
        return Counter({questions[q]: count for q, count in self.planned.cut.items()})

    def _has_timer(self, job: Job, seat: SeatMessage) -> bool:
        """Whether something that was written for this seat will bring it back.

        Others work beside this delivery, so the lease or due time it left behind may have passed on
        already: what counts is that the evaluation was touched and that a timer is near.
        """
        state = self.evaluations().get(seat.work_key)
        if job.check_at is None:
            return False
        if state is None:  # its claim was lost, and the job's check was moved to the next look
            return (job.check_at - self.clock.now()).total_seconds() <= SOON_SECONDS
        own = state.wake is not None and (state.wake.job, state.wake.seat) == (job.id, seat.seat)
        lease = timedelta(seconds=self.settings.lease_seconds + 1.0)
        latest = max(filter(None, (state.due_at, state.lease_until, self.clock.now() + lease)))
        return (own and state.wake_at is not None) or job.check_at <= latest
