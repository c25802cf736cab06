"""Whether a request that takes minutes may still go on: its caller is asked for at intervals."""

from starlette.requests import Request

from functions.core.errors import CallersUnknown, LedgerError
from functions.core.ports import Clock
from functions.web.authentication import Caller, KeyRing

CHECK_SECONDS = 10.0
AGAIN_SECONDS = 1.0
# Without a certain answer the caller is believed for so long.
UNCERTAIN_SECONDS = 30.0


class Permit:
    """The right of one request's caller; a key that is revoked or expires ends it within 20 s.

    Ten of them are those that the key ring may remember a key for.
    """

    def __init__(self, keys: KeyRing, request: Request, caller: Caller, clock: Clock) -> None:
        self._keys = keys
        self._request = request
        self._caller = caller
        self._clock = clock
        self._certain_at = clock.monotonic()
        self.check_at = self._certain_at + CHECK_SECONDS

    async def holds(self) -> bool:
        """Whether the caller may go on; asks only when the time for it has come."""
        now = self._clock.monotonic()
        if now < self.check_at:
            return True
        try:
            admitted = await self._keys.admits(self._request, self._caller)
        except (CallersUnknown, LedgerError):
            self.check_at = now + AGAIN_SECONDS
            return now - self._certain_at < UNCERTAIN_SECONDS
        self._certain_at, self.check_at = now, now + CHECK_SECONDS
        return admitted
