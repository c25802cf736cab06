"""Records that a watch cannot read: logged, and told to an operator, once for each state of them.

A watch looks every second, in every process; an incident has one identity whoever opens it, and
what this process has told already it need not try to tell again.
"""

from collections.abc import Awaitable, Callable

from functions import telemetry
from functions.core.errors import LedgerError, UnreadableRecord
from functions.core.ports import Snapshot

Tell = Callable[[UnreadableRecord], Awaitable[object]]
REMEMBERED = 1000


class Unreadables:
    """What one watch has met; `tell` opens the incident, and raises `LedgerError` if it cannot."""

    def __init__(self, what: str, tell: Tell | None = None) -> None:
        """Begin with nothing; without `tell` the log alone is told. `what` is a record's name."""
        self._what = what
        self._tell = tell
        self._told: set[str] = set()

    async def report(self, found: Snapshot, error: UnreadableRecord) -> None:
        """Report a record, unless that was done; never raises: a watch goes on."""
        state = f"{found.path} {found.update_time}"
        if state in self._told:
            return
        telemetry.error(f"{self._what} unreadable", path=found.path, error=str(error)[:300])
        try:
            if self._tell is not None:
                await self._tell(error)
        except LedgerError as exc:
            telemetry.error("unreadable record not recorded", exc=exc, path=found.path)
            return  # the next look tries again
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told.add(state)
