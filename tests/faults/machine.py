"""The state machine: everything that clients, time, providers and crashes can do, in any order.

Each rule does one thing to a town and lets everybody run for a moment; whatever was begun goes on
beside what the next rules do. After each rule, and when nothing is left to do, the invariants hold.
"""

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from functions.adapters.memory import MemoryObjects
from functions.core.budgets import Caps, nano_usd
from functions.core.jobs import Job
from functions.core.submissions import Submission
from functions.tenant_caps import TenantCaps
from tests.faults.fakes import failure
from tests.faults.prices import WORST_USD
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.town import INSTANCES, Planned, Town
from tests.faults.town_invariants import ALWAYS, IN_THE_END, demand
from tests.faults.world import submission
from tests.virtual_loop import LoopClock, VirtualLoop

MOST_JOBS = 6
MOST_RUNS = 4
QUESTIONS = ("q0", "q1")
REPLIES = {
    "success": Planned(),
    "slow success": Planned(seconds=45.0),
    "503": Planned(failure=failure("provider_error", http_status=503)),
    "429 with a short hint": Planned(
        failure=failure("rate_limited", http_status=429, hint_seconds=3.0)
    ),
    "429 with a long hint": Planned(
        failure=failure("rate_limited", http_status=429, hint_seconds=40.0)
    ),
    "401": Planned(failure=failure("invalid_credential", http_status=401)),
    "refusal": Planned(failure=failure("refused", http_status=200)),
    "invalid output": Planned(failure=failure("invalid_output", http_status=200)),
    "timeout": Planned(seconds=60.0, failure=failure("timeout", http_status=None)),
    "never": Planned(seconds=10_000.0),
}
TARGETS = (  # the ends of the names of calls
    "call",
    "create object",
    "commit update evaluations",
    "commit update evaluations, create seats",
    "create notifications, update jobs",
    "commit create tenant_days, create jobs",
    "create runs, create operator_log",
    "create runs, create seats, create operator_log",
)
# A day that has room for most of what an example asks for, but not for all.
DAY = TenantCaps(everyone=Caps(requests=40, nano_usd=nano_usd(40 * WORST_USD)))
indexes = st.integers(0, 7)
instances = st.integers(0, INSTANCES - 1)
moments = st.sampled_from(list(Moment))
skews = st.lists(st.sampled_from([0.0, -30.0, 30.0, -12.0, 12.0]), min_size=3, max_size=3)


policies = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([4, 1, 2]),
        "deadline_seconds": st.sampled_from([3600, 3600, 300, 40]),
        "max_requests": st.sampled_from([None, None, 1, 2, 3]),
        "spare_usd": st.sampled_from([None, None, 0.0, 1.0, 2.5]),
        "reuse": st.sampled_from([True, True, True, False]),
    }
)
panels = st.sampled_from([("m0",), ("m0",), ("m0", "m1"), ("m1", "m0", "m2")])


class EmpanelMachine(RuleBasedStateMachine):
    """One town per example, in an event loop of its own; memory only."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.asked: list[Submission] = []
        self.checked: tuple[int, int, int] = (-1, -1, -1)

    def do(self, work: Any) -> Any:
        """Run a step to its end; what was begun before it runs beside it."""
        return self.loop.run_until_complete(work)

    async def town_of(self, clock_skews: list[float]) -> Town:
        """Return the town of this example."""
        clock, bucket = LoopClock(self.loop), self.make_objects()
        return Town(clock, skews=clock_skews, objects=bucket, tenant_caps=DAY)

    def make_objects(self) -> MemoryObjects:
        """Return an empty bucket."""
        return MemoryObjects()

    @initialize(clock_skews=skews)
    def found_town(self, clock_skews: list[float]) -> None:
        """Everything starts with instances whose clocks are wrong."""
        self.town = self.do(self.town_of(clock_skews))

    # Clients

    @precondition(lambda self: len(self.asked) < MOST_JOBS)
    @rule(
        panel=panels,
        question=st.sampled_from((*QUESTIONS, QUESTIONS[0])),
        required=st.sampled_from([1, 3]),
        policy=policies,
    )
    def submit(
        self, panel: tuple[str, ...], question: str, required: int, policy: dict[str, Any]
    ) -> None:
        """A new job under a key of its own; most ask what others ask too."""
        enough = min(required, len(panel))
        key, spare = f"key-{len(self.asked)}", policy["spare_usd"]
        allowed = {name: value for name, value in policy.items() if name != "spare_usd"}
        if spare is not None:
            allowed["max_cost_usd"] = len(panel) * WORST_USD + spare
        new = submission(panel, question=question, key=key, required_seats=enough, **allowed)
        self.asked.append(new)
        self.do(self._submit(new))

    @precondition(lambda self: self.asked)
    @rule(pick=indexes)
    def submit_again(self, pick: int) -> None:
        """A client that asks for the same job again."""
        self.do(self._submit(self.asked[pick % len(self.asked)]))

    async def _submit(self, new: Submission) -> None:
        await self.town.knock()
        await self.town.submit_once(new)
        await self.town.go_on()

    @precondition(lambda self: self.town.jobs())
    @rule(pick=indexes)
    def cancel(self, pick: int) -> None:
        """A client that stops a job, however far it is."""
        jobs = sorted(self.town.jobs().values(), key=lambda job: job.submitted_at)
        self.town_does(self.town.cancel_once(jobs[pick % len(jobs)]))

    @precondition(lambda self: self._ended())
    @rule(pick=indexes)
    def replay(self, pick: int) -> None:
        """A client that wants the seats without a success asked again."""
        ended = self._ended()
        self.town_does(self.town.replay_once(ended[pick % len(ended)]))

    def _ended(self) -> list[Job]:
        """Return the jobs that a replay could begin a run of, oldest first, but not for ever."""
        jobs = sorted(self.town.jobs().values(), key=lambda job: job.submitted_at)
        return [job for job in jobs if job.state.is_terminal and job.run < MOST_RUNS]

    # Messages

    @precondition(lambda self: self.town.pending)
    @rule(pick=indexes, instance=instances, alone=st.booleans())
    def deliver(self, pick: int, instance: int, alone: bool) -> None:
        """One message, any of them; the next rule may find its handler at any point."""
        self.town.pending.rotate(-pick)
        pushed = self.town.pending.popleft()
        self.do(self._deliver([(pushed, instance)], alone))

    @precondition(lambda self: self.town.pending)
    @rule(pick=indexes)
    def deliver_twice_at_once(self, pick: int) -> None:
        """One message at two instances at the same time."""
        self.town.pending.rotate(-pick)
        pushed = self.town.pending.popleft()
        self.do(self._deliver([(pushed, 0), (pushed, 1)], alone=False))

    @precondition(lambda self: len(self.town.pending) > 1)
    @rule()
    def deliver_all(self) -> None:
        """Everything that is pending, at once, spread over the instances."""
        waiting = list(self.town.pending)
        self.town.pending.clear()
        self.do(self._deliver([(p, n % INSTANCES) for n, p in enumerate(waiting)], alone=False))

    async def _deliver(self, deliveries: list[tuple[Any, int]], alone: bool) -> None:
        for pushed, instance in deliveries:
            self.town.start_delivery(pushed, instance)
        if not alone:
            await self.town.go_on()

    @precondition(lambda self: self.town.topics.messages(self.town.settings.evaluate_topic))
    @rule(pick=indexes)
    def redeliver(self, pick: int) -> None:
        """An old message comes again, acked or not."""
        messages = self.town.topics.messages(self.town.settings.evaluate_topic)
        self.do(self._redeliver(messages[pick % len(messages)]))

    async def _redeliver(self, message: Any) -> None:
        self.town.start(self.town.deliver(message, self.town.instances[0]))
        await self.town.go_on()

    @precondition(lambda self: self.town.pending)
    @rule(pick=indexes)
    def drop(self, pick: int) -> None:
        """A message is lost."""
        self.town.pending.rotate(-pick)
        self.town.pending.popleft()

    # Time and repair

    @rule(seconds=st.sampled_from([0.2, 1.2, 1.2, 4.0, 11.0, 33.0, 33.0, 95.0]))
    def pass_time(self, seconds: float) -> None:
        """Calls end, leases are renewed or run out, retries fall due."""
        self.do(self.town.go_on(seconds))

    @rule()
    def repair(self) -> None:
        """A look of repair, beside everything else."""
        self.town_does(self.town.repair())

    # The provider

    @rule(replies=st.lists(st.sampled_from(list(REPLIES)), min_size=1, max_size=3))
    def plan_replies(self, replies: list[str]) -> None:
        """What the provider does with the next requests."""
        self.town.planned.plans.extend(REPLIES[reply] for reply in replies)

    # What goes wrong

    @rule(
        after_calls=st.integers(0, 12),
        fate=st.sampled_from([Fate.DIE, Fate.FREEZE, Fate.FREEZE, Fate.FAIL]),
        moment=moments,
    )
    def strike_one_call(self, after_calls: int, fate: Fate, moment: Moment) -> None:
        """A process dies, freezes or gets no answer at one of the next calls."""
        self.town.strike_later(Strike(fate=fate, moment=moment), after_calls=after_calls)

    @rule(
        step=st.sampled_from(TARGETS),
        fate=st.sampled_from([Fate.DIE, Fate.FREEZE, Fate.FREEZE]),
        moment=moments,
    )
    def strike_a_step(self, step: str, fate: Fate, moment: Moment) -> None:
        """A process dies or freezes when it comes to a certain step."""
        self.town.targeted.targets.append((step, Strike(fate=fate, moment=moment)))

    @rule(after_calls=st.integers(0, 6), calls=st.integers(2, 8), moment=moments)
    def strike_several_calls(self, after_calls: int, calls: int, moment: Moment) -> None:
        """An outage: several calls in a row get no answer."""
        strike = Strike(fate=Fate.FAIL, moment=moment)
        self.town.strike_later(strike, after_calls=after_calls, calls=calls)

    @precondition(lambda self: self.town.frozen)
    @rule()
    def thaw(self) -> None:
        """Frozen processes go on, late."""
        self.do(self._thaw())

    async def _thaw(self) -> None:
        self.town.thaw_all()
        await self.town.go_on()

    @precondition(lambda self: self.town.tasks)
    @rule(instance=instances)
    def kill(self, instance: int) -> None:
        """An instance is gone in the middle of what it does."""
        self.do(self._end(instance, orderly=False))

    @precondition(lambda self: self.town.tasks)
    @rule(instance=instances)
    def shut_down(self, instance: int) -> None:
        """An instance is told to end, and has its grace time."""
        self.do(self._end(instance, orderly=True))

    async def _end(self, instance: int, *, orderly: bool) -> None:
        process = self.town.instances[instance]
        if orderly:
            self.town.shut_down(process)
        else:
            self.town.kill(process)
        await self.town.go_on()

    @precondition(lambda self: not self.town.frozen and self._outputs())
    @rule(pick=indexes)
    def lose_object(self, pick: int) -> None:
        """An output is gone from the bucket."""
        names = self._outputs()
        self.town.lose_object(names[pick % len(names)])

    def _outputs(self) -> list[str]:
        return [name for name in self.town.objects.names() if name.startswith("outputs/")]

    def town_does(self, work: Any) -> None:
        """Begin something and let everybody run for a moment."""

        async def begin() -> None:
            self.town.start(work)
            await self.town.go_on()

        self.do(begin())

    # What must hold

    @invariant()
    def holds_always(self) -> None:
        """Nothing that may be judged now is broken."""
        if not hasattr(self, "town"):
            return
        town = self.town
        seen = (len(town.ledger.history), counted(town), len(town.observed.hollow_acks))
        if seen != self.checked:
            self.checked = seen
            demand(town, ALWAYS)

    def teardown(self) -> None:
        """Let everything come to its end, and look at all of it."""
        try:
            if hasattr(self, "town"):
                self.do(self.town.settle_down())
                demand(self.town, (*ALWAYS, *IN_THE_END))
        finally:
            self.close()

    def close(self) -> None:
        """End what is left of the dead and close the loop."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.do(asyncio.wait(left)) if left else None
        self.loop.close()


def counted(town: Town) -> int:
    """Return how many requests were sent in all."""
    return sum(town.planned.sent.values())
