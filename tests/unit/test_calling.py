"""A call under a lease: what ends it, what is made of its end, and what survives a cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from functions.calling import LEASE_LOST, Cut, KeptLease, ask, insist, kept, shielded
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable, WriteConflict
from functions.core.ports import Create
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.inflight import Call
from functions.leasing import LeaseLost
from tests.faults.world import World
from tests.unit.records import at
from tests.unit.seeing import leased, look

REQUEST = CallRequest(model="m", system="s", user="u", schema={})
ANSWER = ProviderAnswer(text="{}")


class Scripted:
    """A provider that does what it is told, and notes when its connection was closed."""

    name = "fake"
    endpoint = "e"
    concurrency = 1
    pause_scope = "scripted"

    def __init__(self, reply: Any = None) -> None:
        self.reply = reply
        self.started = asyncio.Event()
        self.closed = False

    def refused_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        return {}

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        self.started.set()
        if isinstance(self.reply, BaseException):
            raise self.reply
        if self.reply is not None:
            answer: ProviderAnswer | CallFailure = self.reply
            return answer
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.closed = True
            raise
        return ANSWER


class Holding:
    """A lease that is kept until a test loses it."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def wait_lost(self) -> None:
        await self.lost.wait()
        raise LeaseLost("lost")


async def as_it_is(answer: ProviderAnswer) -> ProviderAnswer:
    return answer


def asking(
    provider: Scripted,
    holding: Holding,
    call: Call,
    seconds: float = 30.0,
    keep: Callable[[ProviderAnswer], Awaitable[ProviderAnswer]] = as_it_is,
) -> "asyncio.Task[ProviderAnswer | CallFailure | Cut]":
    lease: Any = holding
    return asyncio.create_task(
        ask(provider, REQUEST, keep=keep, lease=lease, call=call, deadline_seconds=seconds)
    )


class Keeping:
    """Keeps an answer for as long as a test wants."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.kept: list[ProviderAnswer] = []

    async def keep(self, answer: ProviderAnswer) -> ProviderAnswer:
        self.begun.set()
        await self.may_end.wait()
        self.kept.append(answer)
        return answer


def a_call() -> Call:
    return Call(job="job", run=1, claimed_at=at(0))


@pytest.mark.parametrize("reply", [ANSWER, CallFailure(code="overloaded", message="m")])
async def test_what_the_provider_says_is_returned(reply: object) -> None:
    """An answer and a failure both come through as they are."""
    assert await asking(Scripted(reply), Holding(), a_call()) == reply


async def test_a_call_past_its_deadline_counts_as_sent() -> None:
    """The deadline closes the connection, and the failure says that it may have been paid for."""
    provider = Scripted()
    failure = await asking(provider, Holding(), a_call(), seconds=0.01)
    assert isinstance(failure, CallFailure)
    assert (failure.code, failure.sent, failure.http_status) == ("timeout", True, None)
    assert provider.closed


@pytest.mark.parametrize("code", ["canceled", "interrupted", "deadline_exceeded"])
async def test_a_cut_closes_the_connection(code: str) -> None:
    """A cut ends the call at once with its code; the first code given counts."""
    provider, call = Scripted(), a_call()
    task = asking(provider, Holding(), call)
    await provider.started.wait()
    call.cut(code)
    call.cut("later")
    assert await task == Cut(code=code)
    assert provider.closed


async def test_a_lost_lease_closes_the_connection() -> None:
    """Who may not write the result any more does not wait for it either."""
    provider, holding = Scripted(), Holding()
    task = asking(provider, holding, a_call())
    await provider.started.wait()
    holding.lost.set()
    assert await task == Cut(code=LEASE_LOST)
    assert provider.closed


async def test_a_cut_wins_over_a_lost_lease() -> None:
    """When both come at once, the stop's code is kept: it says what became of the run."""
    provider, holding, call = Scripted(), Holding(), a_call()
    task = asking(provider, holding, call)
    await provider.started.wait()
    holding.lost.set()
    call.cut("canceled")
    assert await task == Cut(code="canceled")


async def test_an_answer_is_kept_in_the_same_turn_of_the_loop() -> None:
    """Between the answer and the first step of keeping it, nothing else gets its turn."""
    turns: list[str] = []

    class Noting(Scripted):
        async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(turns.append, "other")
            turns.append("answered")
            return ANSWER

    async def keep(answer: ProviderAnswer) -> ProviderAnswer:
        turns.append("kept")
        return answer

    assert await asking(Noting(), Holding(), a_call(), keep=keep) == ANSWER
    assert turns == ["answered", "kept", "other"]


@pytest.mark.parametrize("end", ["cut", "lease", "deadline"])
async def test_nothing_ends_the_keeping_of_an_answer(end: str) -> None:
    """Once the answer is there, a cut, a lost lease and the deadline come too late."""
    keeping, holding, call = Keeping(), Holding(), a_call()
    seconds = 0.01 if end == "deadline" else 30.0
    task = asking(Scripted(ANSWER), holding, call, seconds, keeping.keep)
    await keeping.begun.wait()
    if end == "cut":
        call.cut("canceled")
    if end == "lease":
        holding.lost.set()
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    keeping.may_end.set()
    assert await task == ANSWER


async def test_a_cancellation_waits_until_the_answer_is_kept() -> None:
    """A cancelled handler keeps what was paid for, and is cancelled afterwards all the same."""
    keeping = Keeping()
    task = asking(Scripted(ANSWER), Holding(), a_call(), keep=keeping.keep)
    await keeping.begun.wait()
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    keeping.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert keeping.kept == [ANSWER]


async def test_an_unexpected_error_is_not_hidden() -> None:
    """A defect in a provider comes out; it is neither a cut nor a failure."""
    with pytest.raises(BaseExceptionGroup) as raised:
        await asking(Scripted(KeyError("defect")), Holding(), a_call())
    assert raised.group_contains(KeyError)


async def test_a_cancellation_goes_through_and_closes_the_connection() -> None:
    """Cancelling the handler cancels the call; `CancelledError` is not swallowed."""
    provider = Scripted()
    task = asking(provider, Holding(), a_call())
    await provider.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.closed


async def test_shielded_work_ends_before_the_cancellation_goes_on() -> None:
    """A settlement in progress is finished, and the caller is cancelled afterwards all the same."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def settlement() -> None:
        begun.set()
        for _ in range(5):
            await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(shielded(settlement()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_an_error_of_shielded_work_is_the_cause_of_the_cancellation() -> None:
    """When the work fails while the caller is cancelled, neither is lost."""
    begun = asyncio.Event()

    async def settlement() -> None:
        begun.set()
        await asyncio.sleep(0)
        raise LedgerUnavailable("down")

    task = asyncio.create_task(shielded(settlement()))
    await begun.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as cancelled:
        assert isinstance(cancelled.__cause__, LedgerUnavailable)
    else:
        raise AssertionError("the cancellation was swallowed")


@pytest.mark.parametrize("failures", [0, 1, 4])
async def test_a_paid_answer_is_insisted_on(failures: int) -> None:
    """A store that gives no answer is asked again, up to five times in all."""
    world, errors = World(), [ObjectsUnavailable("down")] * failures

    async def step() -> str:
        if errors:
            raise errors.pop()
        return "stored"

    assert await insist(world.evaluator.services, step) == "stored"


async def test_insisting_ends() -> None:
    """After five tries the last error comes out."""
    tried = []

    async def step() -> None:
        tried.append(1)
        raise LedgerUnavailable("down")

    with pytest.raises(LedgerUnavailable):
        await insist(World().evaluator.services, step)
    assert len(tried) == 5


async def test_insisting_does_not_repeat_a_certain_answer() -> None:
    """A conflict is an answer: it is not asked again."""
    tried = []

    async def step() -> None:
        tried.append(1)
        raise WriteConflict("there")

    with pytest.raises(WriteConflict):
        await insist(World().evaluator.services, step)
    assert len(tried) == 1


async def test_a_lease_is_renewed_at_a_third_of_its_length() -> None:
    """Beside a long call the expiry moves on, and the timer of the evaluation with it."""
    world = World(lease_seconds=30.0)
    services = world.evaluator.services
    lease = await leased(world)
    async with kept(services, lease) as holding:
        await world.clock.sleep(10.5)
        renewed = holding.current.evaluation
        assert renewed.lease_until == at(40)
        assert renewed.wake_at == at(40)
        await world.clock.sleep(10.0)
        assert holding.current.evaluation.lease_until == at(50)
    [state] = world.evaluations().values()
    assert state.lease_until == at(50)


async def test_a_renewal_that_finds_another_holder_loses_the_lease() -> None:
    """Once another has claimed, the lease is lost at the next renewal, not at its end."""
    world = World()
    lease = await leased(world)
    async with kept(world.evaluator.services, lease) as holding:
        world.clock.advance(31.0)
        [job] = world.jobs()
        await leased(world, await look(world, job), holder="other")
        with pytest.raises(LeaseLost):
            await holding.wait_lost()
    [state] = world.evaluations().values()
    assert state.holder == "other"


async def test_a_lease_is_given_up_before_it_ends_when_no_renewal_succeeds() -> None:
    """Without an answer of the ledger until 2 s before its end, the lease counts as lost."""
    world = World()
    lease = await leased(world)

    async def down(*writes: object) -> None:
        raise LedgerUnavailable("down")

    world.ledger.commit = down  # type: ignore[method-assign, assignment]
    async with kept(world.evaluator.services, lease) as holding:
        with pytest.raises(LeaseLost):
            await holding.wait_lost()
        assert at(27) <= world.clock.now() <= at(30)


async def test_an_outage_shorter_than_the_lease_loses_nothing() -> None:
    """Renewals are tried again until one succeeds."""
    world = World()
    lease = await leased(world)
    commit, failures = world.ledger.commit, iter(range(5))

    async def unsteady(*writes: Create) -> Any:
        if next(failures, None) is not None:
            raise LedgerUnavailable("down")
        return await commit(*writes)

    world.ledger.commit = unsteady  # type: ignore[method-assign, assignment]
    async with kept(world.evaluator.services, lease) as holding:
        await world.clock.sleep(25.0)
        until = holding.current.evaluation.lease_until
        assert until is not None
        assert until > at(40)


async def test_no_renewal_is_under_way_once_the_call_has_ended() -> None:
    """After the block the renewal is over, so that it cannot meet the settlement."""
    world = World()
    lease = await leased(world)
    async with kept(world.evaluator.services, lease) as holding:
        pass
    written = len(world.ledger.history)
    world.clock.advance(60.0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(world.ledger.history) == written
    assert isinstance(holding, KeptLease)
