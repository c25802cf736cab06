"""The provider call under a lease: bounded by a deadline, by the lease, and by a cut.

claim -> [ call | lease renewal | cut ] -> answer, stored -> settle
         one task group; the first end     not cut any more: it is paid for
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from functions import telemetry
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable
from functions.core.ports import Provider
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.inflight import Call, CallCut
from functions.leasing import RENEWAL_MARGIN_SECONDS, Lease, LeaseKeeper, LeaseLost
from functions.services import Services

T = TypeVar("T")
LEASE_LOST = "lease_lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """The call was ended from our side: by a stop, a shutdown, or a lost lease."""

    code: str
    sent: bool = True


class KeptLease:
    """A lease under renewal; `current` is its latest state."""

    def __init__(self, keeper: LeaseKeeper, renewal: "asyncio.Task[None]") -> None:
        self._keeper = keeper
        self._renewal = renewal

    @property
    def current(self) -> Lease:
        """The lease as last renewed."""
        return self._keeper.lease

    @property
    def safe(self) -> bool:
        """Whether enough of the lease is left to send a request under it."""
        return self._keeper.left_seconds > RENEWAL_MARGIN_SECONDS

    async def wait_lost(self) -> None:
        """Wait until the lease can no longer be kept.

        Raises:
            LeaseLost: always, once that is so.
        """
        await asyncio.shield(self._renewal)

    async def stop(self) -> None:
        """End the renewal and wait for it, so that no write of it is under way any more."""
        self._renewal.cancel()
        await asyncio.wait([self._renewal])
        error = None if self._renewal.cancelled() else self._renewal.exception()
        if error is not None and not isinstance(error, LeaseLost):
            raise error


@asynccontextmanager
async def kept(services: Services, lease: Lease) -> AsyncIterator[KeptLease]:
    """Renew a lease for the time of the block."""
    keeper = LeaseKeeper(services, lease)
    renewal = asyncio.create_task(keeper.keep(), name=f"renew {lease.path}")
    holding = KeptLease(keeper, renewal)
    try:
        yield holding
    finally:
        await holding.stop()


class Exchange(Generic[T]):
    """A request and what is done with its answer, in one task: no turn of the loop lies between.

    An answer that has arrived and is not stored yet is what a dying process loses.
    """

    def __init__(
        self,
        provider: Provider,
        request: CallRequest,
        keep: Callable[[ProviderAnswer], Awaitable[T]],
    ) -> None:
        self.answered = False
        self._task = asyncio.create_task(self._run(provider, request, keep), name="exchange")

    async def _run(
        self,
        provider: Provider,
        request: CallRequest,
        keep: Callable[[ProviderAnswer], Awaitable[T]],
    ) -> T | CallFailure:
        answer = await provider.call(request)
        if isinstance(answer, CallFailure):
            return answer
        self.answered = True
        return await keep(answer)

    async def result(self) -> T | CallFailure:
        """Wait for the end of it; a cancellation ends the waiting only."""
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        """End a request without an answer; else wait until the answer, paid for, is kept."""
        if not self.answered:
            self._task.cancel()
        await asyncio.wait([self._task])


async def ask(
    provider: Provider,
    request: CallRequest,
    *,
    keep: Callable[[ProviderAnswer], Awaitable[T]],
    lease: KeptLease,
    call: Call,
    deadline_seconds: float,
) -> T | CallFailure | Cut:
    """Send the request once and return what `keep` makes of its answer.

    Until the answer is there, the deadline, a cut or a lost lease closes its connection; from then
    on none of them ends anything. A call that runs into the deadline was sent: it counts as paid
    for, whatever the provider did.
    """
    exchange = Exchange(provider, request, keep)
    try:
        async with asyncio.timeout(deadline_seconds), asyncio.TaskGroup() as group:
            guards = [group.create_task(lease.wait_lost()), group.create_task(call.wait_cut())]
            result = await exchange.result()
            for guard in guards:
                guard.cancel()
        return result
    except (TimeoutError, BaseExceptionGroup) as exc:
        ended = exc
    finally:
        await exchange.close()
    if exchange.answered:
        return await exchange.result()
    if isinstance(ended, BaseExceptionGroup):
        return Cut(code=_cut_code(ended))
    message = f"no answer within {deadline_seconds:g} s"
    return CallFailure(code="timeout", message=message, sent=True)


def _cut_code(ended: BaseExceptionGroup[BaseException]) -> str:
    """Return why the call was cut.

    Raises:
        BaseExceptionGroup: something else went wrong as well; that is not ours to hide.
    """
    _, others = ended.split((CallCut, LeaseLost))
    if others is not None:
        raise others
    cuts, _ = ended.split(CallCut)
    while cuts is not None:
        first = cuts.exceptions[0]
        if isinstance(first, CallCut):
            return first.code
        cuts = first
    return LEASE_LOST


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even when the caller is cancelled; then the cancellation goes on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise asyncio.CancelledError from error
        raise


async def insist(services: Services, step: Callable[[], Awaitable[T]], tries: int = 5) -> T:
    """Repeat a step that is safe to repeat while the ledger or the bucket gives no answer.

    Used only where an answer that was paid for would be lost otherwise.
    """
    for number in range(tries - 1):
        try:
            return await step()
        except (LedgerUnavailable, ObjectsUnavailable) as exc:
            telemetry.warning("no answer, trying again", tries=number + 1, error=str(exc)[:300])
            await services.clock.sleep(0.2 * 2**number)
    return await step()
