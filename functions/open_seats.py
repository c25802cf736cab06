"""How many seats of a tenant are open at once, where that is capped.

One tenant's backlog stands in the same queue as everybody's work, so it may only be so long. A
job's seats are open from its acceptance, or replay, until its run closes. They are summed up in the
ledger when more are asked for; what this process is about to add is counted beside that, so only
requests that reach several processes at the same moment can go beyond the cap, by themselves.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from functions.core.errors import EmpanelError
from functions.core.ports import Ledger, Query
from functions.tenant_caps import TenantCaps

RETRY_AFTER_SECONDS = 5.0


class TooManyOpen(EmpanelError):
    """The tenant has no room for the seats; `never` says that it cannot have, however few are open.

    Nothing is recorded.
    """

    def __init__(self, reason: str, *, never: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.never = never


class OpenSeats:
    """Gives room for seats, and remembers what it has given until that is on record."""

    def __init__(self, ledger: Ledger, caps: TenantCaps) -> None:
        self._ledger = ledger
        self._caps = caps
        self._coming: Counter[str] = Counter()

    @asynccontextmanager
    async def room(self, tenant: str, wanted: int) -> AsyncIterator[None]:
        """Hold room for `wanted` seats for the block, which puts them on record.

        Raises:
            TooManyOpen: there is none.
            LedgerUnavailable: no answer.
        """
        cap = self._caps.open_seats(tenant)
        if cap is None:
            yield
            return
        if wanted > cap:
            raise TooManyOpen(
                f"{wanted} seats are more than the {cap} open ones of a tenant", never=True
            )
        ahead = self._coming[tenant]
        self._coming[tenant] += wanted
        try:
            await self._ensure(tenant, ahead, wanted, cap)
            yield
        finally:
            self._coming[tenant] -= wanted
            if not self._coming[tenant]:
                del self._coming[tenant]

    async def _ensure(self, tenant: str, ahead: int, wanted: int, cap: int) -> None:
        where = (("tenant", "==", tenant),)
        query = Query(collection="jobs", where=where, order_by="open_seats")
        taken = await self._ledger.total(query) + ahead
        if taken + wanted > cap:
            reason = f"{taken} of the tenant's {cap} open seats are taken; {wanted} more do not fit"
            raise TooManyOpen(reason, never=False)
