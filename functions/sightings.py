"""Under which names a tenant's models have answered: one small record for each, made once.

A process writes a name that it has not met yet, and reads nothing: the create fails when the name
is known already. So an alias costs one write each time it changes, and one refused write for each
process that starts.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from functions import telemetry
from functions.core.documents import from_document, sighting_path, to_document
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.identities import digest
from functions.core.jobs import Sighting
from functions.core.ports import Clock, Create, Ledger, Query

MOST_NAMES = 32  # of one alias; a server that gives each answer a name of its own is not followed
MOST_ALIASES = 4096  # remembered by one process


class Sightings:
    """The names that this process has met, and the ledger's records of them."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        """Begin with nothing; the ledger is not asked."""
        self._ledger = ledger
        self._clock = clock
        self._met: dict[str, set[str]] = {}

    async def note(self, alias: str, model_returned: str | None) -> None:
        """Record a name at its first sighting; best effort, since the answer is settled already.

        What is lost in an outage is written with the next answer under that name.
        """
        met = self._met.get(alias, set())
        if model_returned is None or model_returned in met or len(met) >= MOST_NAMES:
            return
        sighting = Sighting(alias=alias, model_returned=model_returned, seen_at=self._clock.now())
        path = sighting_path(alias, digest(model_returned)[:32])
        try:
            await self._ledger.commit(Create(path=path, data=to_document(sighting)))
            telemetry.event("model name sighted", model_returned=model_returned)
        except WriteConflict:
            pass  # known since an earlier answer
        except LedgerUnavailable as exc:
            telemetry.warning("model name not noted", error=str(exc)[:300])
            return
        if alias not in self._met and len(self._met) >= MOST_ALIASES:
            self._met.pop(next(iter(self._met)))
        self._met.setdefault(alias, set()).add(model_returned)

    async def known(self, aliases: Collection[str]) -> Mapping[str, Sequence[Sighting]]:
        """Return the sightings of each alias.

        Raises:
            LedgerUnavailable: no answer.
        """
        asked = list(dict.fromkeys(aliases))
        found = await asyncio.gather(*map(self._known, asked))
        return dict(zip(asked, found, strict=True))

    async def _known(self, alias: str) -> list[Sighting]:
        query = Query(collection="sightings", where=(("alias", "==", alias),))
        documents = await self._ledger.query(query)
        return [from_document(Sighting, doc.data or {}, doc.path) for doc in documents]
