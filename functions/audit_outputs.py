"""Outputs on record against objects in the bucket: compared by listing, not one by one.

Objects of the window's own prefix come from its listing, a thousand a page. What is not listed is
asked for by name: an output that was reused from an older window, everything a later audit looks at
again, and what may be younger than the listing. An
object that no run of the window points to is an orphan only when its evaluation does not either: a
late answer is kept for reuse on purpose.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, TypeVar

from functions import telemetry
from functions.core.audits import Findings
from functions.core.documents import evaluation_path, from_snapshot
from functions.core.errors import UnreadableRecord
from functions.core.identities import name_in_bucket, work_key_of
from functions.core.jobs import Evaluation, Job, SeatOutcome, SeatRecord, SeatState
from functions.core.leases import holds_output, is_live
from functions.core.ports import Snapshot
from functions.outputs import was_purged
from functions.services import Services

GET_AT_ONCE = 100
WORK_KEY = re.compile("[0-9a-f]{64}")


R = TypeVar("R", Evaluation, SeatRecord)


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
        name = name_in_bucket(uri)
        if self._is_listed and name.startswith(self._prefix):
            self._used.add(name)
            if name in self._listed:
                return self._listed[name]
        # Not listed: it is gone, or it was stored after the listing, by a run that ended since.
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
        try:
            return await was_purged(self._services, uri)
        except UnreadableRecord as exc:  # it says nothing of a purge: the output is missing
            telemetry.warning("evaluation not read", uri=uri, error=str(exc)[:300])
            return False

    def unused(self) -> list[str]:
        """Return the names of listed objects that no run of the window points to."""
        return sorted(self._listed.keys() - self._used)


def readable(kind: type[R], snapshot: Snapshot, findings: Findings) -> R | None:
    """Return the record in a snapshot; None when there is none, or it is malformed and noted so."""
    try:
        return from_snapshot(kind, snapshot)
    except UnreadableRecord:
        if snapshot.path not in findings.malformed:
            findings.malformed.append(snapshot.path)
        return None


async def compare_outputs(
    objects: WindowObjects,
    findings: Findings,
    job: Job,
    run: int,
    outcomes: Iterable[SeatOutcome],
) -> int:
    """Note each seat that succeeded and whose object is gone or is not what it was.

    Return how many were purged with another job. Of a purged job nothing is expected to be there.

    Raises:
        LedgerUnavailable, ObjectsUnavailable: no certain answer.
    """
    purged = 0
    for outcome in outcomes if job.purged_at is None else ():
        if outcome.state is SeatState.SUCCEEDED and outcome.uri is not None:
            found = await objects.find(outcome.uri)
            if found is None and await objects.was_purged(outcome.uri):
                purged += 1
            elif found is None:
                findings.missing_output.append(_entry(job, run, outcome))
            elif not _matches(found, outcome):
                entry = _entry(job, run, outcome) | {"found_sha256": found.sha256}
                findings.digest_mismatch.append(entry)
    return purged


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


async def find_orphans(
    services: Services, findings: Findings, tenant: str, names: Iterable[str]
) -> list[str]:
    """Return those of the objects, as URIs, that nothing on record points to.

    An object of an evaluation that cannot be read is none; the evaluation is malformed.

    Raises:
        LedgerUnavailable: no answer.
    """
    named, waiting = list(names), []
    orphans = [services.objects.uri(name) for name in named if not _has_work_key(name)]
    waiting = [name for name in named if _has_work_key(name)]
    while waiting:
        some, waiting = waiting[:GET_AT_ONCE], waiting[GET_AT_ONCE:]
        paths = {name: evaluation_path(work_key_of(name)) for name in some}
        found = await services.ledger.get(*dict.fromkeys(paths.values()))
        unread = len(findings.malformed)
        states = {doc.path: readable(Evaluation, doc, findings) for doc in found}
        now = found[0].read_time
        for name in some:
            state = states[paths[name]]
            if paths[name] in findings.malformed[unread:]:
                continue
            if state is None or state.tenant != tenant or not _is_wanted(state, name, now):
                orphans.append(services.objects.uri(name))
    return orphans


def _has_work_key(name: str) -> bool:
    """Whether an object is named as outputs are; anybody may have put another one there."""
    parts = name.split("/")
    return len(parts) == 5 and WORK_KEY.fullmatch(parts[3]) is not None


def _is_wanted(state: Evaluation, name: str, now: datetime) -> bool:
    """Whether an object is the evaluation's output, or a call or repair may still make it that."""
    under_way = is_live(state, now) or state.wake_at is not None
    return holds_output(state, name) or (under_way and state.object_name == name)
