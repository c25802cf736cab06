"""The windows on record: made before a run is accepted in them, so that no audit misses one.

A process makes each window once and remembers it; the others find it there.
"""

from contextlib import suppress
from datetime import datetime, timedelta

from functions.core.documents import to_document, window_path
from functions.core.errors import WriteConflict
from functions.core.ports import Create, Ledger
from functions.core.windows import KEPT_LONGER, Window, window_start

REMEMBERED = 1000


class Windows:
    """Makes windows, and remembers those that this process knows to be on record."""

    def __init__(self, ledger: Ledger, retention_days: int) -> None:
        self._ledger = ledger
        self._kept = timedelta(days=retention_days) + KEPT_LONGER
        self._known: set[str] = set()

    async def ensure(self, now: datetime, tenant: str, window: str) -> None:
        """Return once the window is certainly on record.

        Raises:
            LedgerUnavailable: that is not certain; no run may be accepted in it.
        """
        path = window_path(tenant, window)
        if path in self._known:
            return
        record = Window(
            tenant=tenant,
            window=window,
            created_at=now,
            expire_at=window_start(window) + self._kept,
        )
        with suppress(WriteConflict):  # another process was first
            await self._ledger.commit(Create(path=path, data=to_document(record)))
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known.add(path)
