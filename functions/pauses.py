"""Pauses: how a rate limit that one process met holds back the seats of all the others.

The process that got the hint knows at once, and writes the pause down after it has settled its own
attempt. The others read all pauses that have not ended with one query: once a second while calls
are in flight, and before a claim when the last look is older than two seconds. A look serves every
delivery of the process.

Pauses are a courtesy, no invariant: when one cannot be written or read, that is logged, and the
seats that go too early meet the provider's refusal themselves.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from functions import telemetry
from functions.core.documents import from_document, pause_path, to_document
from functions.core.errors import LedgerUnavailable, UnreadableRecord, WriteConflict
from functions.core.pauses import Pause, covers, merged
from functions.core.ports import Clock, Create, Ledger, Query, Snapshot, Update, Write
from functions.unreadables import Tell, Unreadables

LOOK_SECONDS = 1.0  # how often a process with calls in flight looks
OLDEST_LOOK_SECONDS = 2.0  # an older look is not good enough for a claim
PAGE = 500  # the pauses that end last; one for each key and model that is refused just now
TELL_TRIES = 5
TELL_PAUSE_SECONDS = 0.1  # doubled at each try
TELL_SECONDS = 10.0  # bounds a ledger that does not answer
KEPT = timedelta(days=1)  # an ended pause is deleted by its `expire_at`


class Pauses:
    """What this process knows about paused models."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        jitter: Callable[[], float],
        tell: Tell | None = None,
    ) -> None:
        """Begin with nothing known; `tell` opens the incident of a pause that cannot be read."""
        self._ledger = ledger
        self._clock = clock
        self._jitter = jitter
        self._known: dict[tuple[str, str], Pause] = {}
        self._stored: dict[tuple[str, str], Pause] = {}  # what the ledger has, as last seen there
        self._looked_at: float | None = None
        self._looking = asyncio.Lock()
        self._telling = asyncio.Lock()
        self._unreadables = Unreadables("pause", tell)

    async def watch(self) -> None:
        """Look once a second until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.refresh(LOOK_SECONDS / 2)

    async def refresh(self, oldest_seconds: float = OLDEST_LOOK_SECONDS) -> None:
        """Look unless the last look is young enough; one look at a time serves all who wait.

        A look that fails is logged and counts as one: what was known stays known.
        """
        if self._is_young(oldest_seconds):
            return
        async with self._looking:
            if self._is_young(oldest_seconds):
                return
            began = self._clock.monotonic()
            try:
                await self._look()
            except Exception as exc:  # noqa: BLE001 - no delivery may fail for want of a courtesy
                telemetry.error("pauses not read", exc=exc)
            self._looked_at = began  # only now: whoever comes during a look waits for its end

    def find(self, scope: str, model: str) -> Pause | None:
        """Return the pause that holds or spreads requests just now, as far as is known."""
        pause = self._known.get((scope, model))
        return pause if pause is not None and pause.ends_at > self._clock.now() else None

    def note(self, pause: Pause) -> Pause:
        """Hold back this process's seats at once; return the pause with what was known before."""
        known = merged(self._known.get(pause.key), pause)
        self._known[pause.key] = known
        return known

    async def tell(self, pause: Pause) -> None:
        """Write a pause for the other processes to see; never raises for a ledger that fails.

        One writer at a time: the refusals of one burst usually find that the first has told all.
        """
        try:
            async with asyncio.timeout(TELL_SECONDS), self._telling:
                told = await self._tell(pause)
        except Exception as exc:  # noqa: BLE001 - the attempt is settled; this must not undo it
            telemetry.error("pause not written", exc=exc, model=pause.model)
        else:
            if not told:
                telemetry.warning("pause not written", tries=TELL_TRIES, model=pause.model)

    async def _tell(self, pause: Pause) -> bool:
        """Merge a pause into its document; False when that was lost too often."""
        for number in range(TELL_TRIES):
            if covers(self._stored.get(pause.key), pause):
                return True
            if number:
                wait_seconds = TELL_PAUSE_SECONDS * 2 ** (number - 1) * (1 + self._jitter())
                await self._clock.sleep(wait_seconds)
            try:
                await self._merge(pause)
            except (WriteConflict, LedgerUnavailable) as exc:
                telemetry.event("pause written again", model=pause.model, error=str(exc)[:300])
        return covers(self._stored.get(pause.key), pause)

    async def _merge(self, pause: Pause) -> None:
        [found] = await self._ledger.get(pause_path(*pause.key))
        known = await self._read(found)
        after = merged(known, pause)
        if after != known:
            await self._ledger.commit(_write(found, after))
            telemetry.event(
                "model paused", model=pause.model, code=pause.code, until=after.until.isoformat()
            )
        self._stored[pause.key] = after
        self.note(after)

    async def _look(self) -> None:
        now = self._clock.now()
        query = Query(
            collection="providers",
            where=(("ends_at", ">", now),),
            order_by="ends_at",
            descending=True,
            limit=PAGE,
        )
        found = await self._ledger.query(query)
        read = [pause for each in found if (pause := await self._read(each)) is not None]
        self._stored = {pause.key: pause for pause in read}
        self._known = {key: pause for key, pause in self._known.items() if pause.ends_at > now}
        for pause in read:
            self.note(pause)

    async def _read(self, found: Snapshot) -> Pause | None:
        """Return the pause in a document; one that cannot be read holds nobody back.

        It is reported, and the next pause of the model replaces it.
        """
        if found.data is None:
            return None
        try:
            pause = from_document(Pause, found.data, found.path)
            if found.path != pause_path(*pause.key):
                text = f"{found.path}: it is about another key or model"
                raise UnreadableRecord(text, where=found.path)
            if pause.until.tzinfo is None or pause.ends_at.tzinfo is None:
                text = f"{found.path}: a time without its zone"
                raise UnreadableRecord(text, where=found.path)
        except UnreadableRecord as exc:
            await self._unreadables.report(found, exc)
            return None
        return pause

    def _is_young(self, oldest_seconds: float) -> bool:
        at = self._looked_at
        return at is not None and self._clock.monotonic() - at < oldest_seconds


def _write(found: Snapshot, pause: Pause) -> Write:
    fields = to_document(pause) | {"expire_at": pause.ends_at + KEPT}
    if found.update_time is None:
        return Create(path=found.path, data=fields)
    return Update(path=found.path, fields=fields, if_updated_at=found.update_time)
