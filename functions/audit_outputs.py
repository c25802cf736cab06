"""Outputs on record against objects in the bucket: compared by listing, not one by one.

Objects of the window's own prefix come from its listing, a thousand a page. An output that was
reused from an older window, and everything a later audit looks at again, is asked for by name. An
object that no run of the window points to is an orphan only when its evaluation does not either: a
late answer is kept for reuse on purpose.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from functions.core.audits import Findings
from functions.core.documents import evaluation_path, from_snapshot
from functions.core.jobs import Evaluation, Job, SeatOutcome, SeatState
from functions.core.leases import holds_output, is_live
from functions.outputs import was_purged
from functions.services import Services

GET_AT_ONCE = 100


class Listed(NamedTuple):
    """What a listing tells of an object."""

    generation: int
    sha256: str | None


class WindowObjects:
    """The objects under a window's prefix, and what runs pointed to among them.

    Holds a few hundred bytes an object while a window is scanned, and nothing afterwards.
    """

    def __init__(self, services: Services, tenant: str, window: str) -> None:
        self._services = services
        self._prefix = f"outputs/{tenant}/{window}/"
        self._listed: dict[str, Listed] = {}
        self._used: set[str] = set()
        self._asked: dict[str, Listed | None] = {}
        self._is_listed = False

    async def read_listing(self) -> None:
        """Read the whole listing.

        Raises:
            ObjectsUnavailable: a page failed; nothing can be called missing.
        """
        page = None
        while True:
            shown = await self._services.objects.list_page(self._prefix, page=page)
            for stored in shown.objects:
                digest = stored.metadata.get("sha256")
                self._listed[stored.name] = Listed(stored.generation, digest)
            page = shown.next_page
            if page is None:
                self._is_listed = True
                return

    async def find(self, uri: str) -> Listed | None:
        """Return the object of an output; None when it is certainly gone.

        Raises:
            ObjectsUnavailable: no certain answer.
        """
        name = uri.removeprefix(self._services.objects.uri(""))
        if self._is_listed and name.startswith(self._prefix):
            self._used.add(name)
            return self._listed.get(name)
        if name not in self._asked:
            stored = await self._services.objects.stat(name)
            known = Listed(stored.generation, stored.metadata.get("sha256")) if stored else None
            self._asked[name] = known
        return self._asked[name]

    async def was_purged(self, uri: str) -> bool:
        """Whether an output that is gone was deleted on purpose, with another job.

        Raises:
            LedgerUnavailable: no answer.
        """
        return await was_purged(self._services, uri)

    def unused(self) -> list[str]:
        """Return the names of listed objects that no run of the window points to."""
        return sorted(self._listed.keys() - self._used)


async def compare_outputs(
    objects: WindowObjects,
    findings: Findings,
    job: Job,
    run: int,
    outcomes: Iterable[SeatOutcome],
) -> None:
    """Note each seat that succeeded and whose object is gone or is not what it was.

    An object that was purged with another job counts as purged.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no certain answer.
    """
    for outcome in outcomes:
        if outcome.state is SeatState.SUCCEEDED and outcome.uri is not None:
            found = await objects.find(outcome.uri)
            if found is None and job.purged_at is None:
                if await objects.was_purged(outcome.uri):
                    findings.purged += 1
                else:
                    findings.missing_output.append(_entry(job, run, outcome))
            elif found is not None and not _matches(found, outcome):
                entry = _entry(job, run, outcome) | {"found_sha256": found.sha256}
                findings.digest_mismatch.append(entry)


def _entry(job: Job, run: int, outcome: SeatOutcome) -> dict[str, object]:
    return {
        "job_id": job.id,
        "owner": job.owner,
        "run": run,
        "seat": outcome.seat,
        "uri": outcome.uri,
        "generation": outcome.generation,
        "sha256": outcome.sha256,
    }


def _matches(found: Listed, outcome: SeatOutcome) -> bool:
    return (found.generation, found.sha256) == (outcome.generation, outcome.sha256)


async def find_orphans(services: Services, tenant: str, names: Iterable[str]) -> list[str]:
    """Return those of the objects, as URIs, that nothing on record points to.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: an evaluation cannot be read.
    """
    orphans: list[str] = []
    waiting = list(names)
    while waiting:
        some, waiting = waiting[:GET_AT_ONCE], waiting[GET_AT_ONCE:]
        paths = {name: evaluation_path(name.split("/")[-2]) for name in some}
        found = await services.ledger.get(*dict.fromkeys(paths.values()))
        states = {snapshot.path: from_snapshot(Evaluation, snapshot) for snapshot in found}
        now = found[0].read_time
        for name in some:
            state = states[paths[name]]
            if state is None or state.tenant != tenant or not _is_wanted(state, name, now):
                orphans.append(services.objects.uri(name))
    return orphans


def _is_wanted(state: Evaluation, name: str, now: datetime) -> bool:
    """Whether an object is the evaluation's output, or a call or repair may still make it that."""
    under_way = is_live(state, now) or state.wake_at is not None
    return holds_output(state, name) or (under_way and state.object_name == name)
