"""Stops: how a cancel or an expiry in one process ends the calls of all the others.

The marker is written in the commit that closes the run. Every process with calls in flight asks
once a second for the markers since its oldest claim, or since its last look: one query, whatever
the number of calls. A claim reads the terminal record after its commit, so a stop that it did not
see is younger; the look begins some seconds earlier because a marker carries the time of its
request, and because a claim becomes a call only a moment later.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from functions import telemetry
from functions.core.documents import stop_path
from functions.core.errors import UnreadableRecord
from functions.core.jobs import Job, JobState
from functions.core.ports import SERVER_TIME, Clock, Create, Ledger, Query, Snapshot
from functions.core.versions import STOP
from functions.inflight import InFlight
from functions.unreadables import Tell, Unreadables

LOOK_SECONDS = 1.0
OVERLAP_SECONDS = 30.0  # covers a slow commit of the marker and a slow start of a call
KEPT_HOURS = 24  # no call lives longer; old markers are deleted by their `expire_at`
CODES = {JobState.CANCELED.value: "canceled", JobState.EXPIRED.value: "deadline_exceeded"}


def stop_marker(job: Job, state: JobState, now: datetime) -> Create:
    """Return the write that tells every process to end the run's calls."""
    data: dict[str, Any] = {
        "v": STOP.written,
        "job": job.id,
        "run": job.run,
        "state": state.value,
        "at": SERVER_TIME,
        "expire_at": now + timedelta(hours=KEPT_HOURS),
    }
    return Create(path=stop_path(job.id, job.run), data=data)


class StopWatcher:
    """Looks for stops while calls are in flight, and cuts the calls they concern."""

    def __init__(self, ledger: Ledger, clock: Clock, tell: Tell | None = None) -> None:
        """Look in `ledger`; `tell` opens the incident of a marker that cannot be read."""
        self._ledger = ledger
        self._clock = clock
        self._unreadables = Unreadables("stop marker", tell)

    async def watch(self, inflight: InFlight) -> None:
        """Look once a second until cancelled; whatever fails only delays the next look."""
        looked_at = datetime.min.replace(tzinfo=UTC)
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            claimed = [call.claimed_at for call in inflight.calls]
            if not claimed:
                continue
            now = self._clock.now()
            try:
                await self._look(inflight, max(min(claimed), looked_at))
            except Exception as exc:  # noqa: BLE001 - a watch that ended would leave calls running
                telemetry.error("stops not read", exc=exc)
            else:
                looked_at = now

    async def _look(self, inflight: InFlight, moment: datetime) -> None:
        since = moment - timedelta(seconds=OVERLAP_SECONDS)
        query = Query(collection="stops", where=(("at", ">=", since),), order_by="at")
        for found in await self._ledger.query(query):
            try:
                job, run, code = _stop(found)
            except UnreadableRecord as exc:
                await self._unreadables.report(found, exc)
                continue
            if cut := inflight.cut(job, run, code):
                telemetry.event("calls cut", job=job, run=run, code=code, calls=cut)


def _stop(found: Snapshot) -> tuple[str, int, str]:
    """Return the job and run that a marker stops, and the code its calls end with."""
    stop = STOP.read(found.data or {}, found.path)
    job, run, code = stop.get("job"), stop.get("run"), CODES.get(str(stop.get("state")))
    if not isinstance(job, str) or not isinstance(run, int) or code is None:
        raise UnreadableRecord(f"{found.path}: unreadable stop marker", where=found.path)
    return job, run, code
