"""Stops: how a cancel or an expiry in one process ends the calls of all the others.

The marker is written in the commit that closes the run. Every process with calls in flight asks
once a second for the markers since its oldest claim: one query, whatever the number of calls. The
claim read the terminal record under a lock, so a stop it did not see was committed after its read
time; the look begins some seconds earlier because a marker carries the time of its request.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.core.documents import stop_path
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import SCHEMA_VERSION, Job, JobState
from functions.core.ports import SERVER_TIME, Clock, Create, Ledger, Query
from functions.inflight import InFlight

LOOK_SECONDS = 1.0
OVERLAP_SECONDS = 15.0  # a marker's time is that of its request, before its commit
KEPT_HOURS = 24  # no call lives longer; old markers are deleted by their `expire_at`
CODES = {JobState.CANCELED.value: "canceled", JobState.EXPIRED.value: "deadline_exceeded"}


def stop_marker(job: Job, state: JobState, now: datetime) -> Create:
    """Return the write that tells every process to end the run's calls."""
    data: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "job": job.id,
        "run": job.run,
        "state": state.value,
        "at": SERVER_TIME,
        "expire_at": now + timedelta(hours=KEPT_HOURS),
    }
    return Create(path=stop_path(job.id, job.run), data=data)


class StopWatcher:
    """Looks for stops while calls are in flight, and cuts the calls they concern."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def watch(self, inflight: InFlight) -> None:
        """Look once a second until cancelled; an outage of the ledger only delays the next look."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            claimed = [call.claimed_at for call in inflight.calls]
            if not claimed:
                continue
            try:
                for job, run, code in await self._stops_since(min(claimed)):
                    cut = inflight.cut(job, run, code)
                    if cut:
                        telemetry.event("calls cut", job=job, run=run, code=code, calls=cut)
            except LedgerUnavailable as exc:
                telemetry.warning("stops not read", error=str(exc)[:300])

    async def _stops_since(self, moment: datetime) -> Sequence[tuple[str, int, str]]:
        since = moment - timedelta(seconds=OVERLAP_SECONDS)
        query = Query(collection="stops", where=(("at", ">=", since),), order_by="at")
        found = [snapshot.data or {} for snapshot in await self._ledger.query(query)]
        return [
            (str(stop["job"]), int(stop["run"]), CODES.get(str(stop["state"]), "canceled"))
            for stop in found
            if "job" in stop and "run" in stop and "state" in stop
        ]
