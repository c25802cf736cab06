"""What a deployment holds, for tests that say: nothing was added."""

import asyncio
from dataclasses import dataclass, replace

from tests.e2e.site import Site

RECORDS = ("jobs", "seats", "terminals", "evaluations", "stops", "budgets", "tenant_days")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The paths of all records, incidents apart, and the names of all objects."""

    records: frozenset[str]
    incidents: frozenset[str]
    objects: frozenset[str]

    def without_incidents(self) -> "Stored":
        """The same, whatever incidents there are."""
        return replace(self, incidents=frozenset())


async def stored(site: Site) -> Stored:
    """Everything that is stored now."""
    groups = await asyncio.gather(*map(site.ledger.group, (*RECORDS, "incidents")))
    paths = [frozenset(found.path for found in group) for group in groups]
    return Stored(
        records=frozenset().union(*paths[:-1]),
        incidents=paths[-1],
        objects=frozenset(await site.bucket.names()),
    )
