"""Hundreds of jobs at once: accepted together, followed cheaply, compared with the provider.

What is compared comes from three sides that know nothing of each other: the provider's records, the
ledger read past the functions, and the bucket.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.records import Document
from tests.e2e.site import Json, Site
from tests.e2e.waiting import until
from tests.stub import RequestRecord

CALLS_AT_ONCE = 64
LEASE_SECONDS = 10
LOAD_SETTINGS = {
    "EMPANEL_LEASE_SECONDS": str(LEASE_SECONDS),
    "EMPANEL_PROVIDER_CONCURRENCY": str(CALLS_AT_ONCE),
    "EMPANEL_REQUEST_SLOTS": "100",
    "EMPANEL_REPAIR_SECONDS": "15",
}
SUBMITTED_AT_ONCE = 16
LOOK_SECONDS = 0.25


async def submitted(site: Site, bodies: Iterable[Json]) -> list[str]:
    """Submit the jobs, a few at a time; their IDs in order."""
    limit = asyncio.Semaphore(SUBMITTED_AT_ONCE)

    async def one(body: Json) -> str:
        async with limit:
            return await site.accepted(body)

    return await asyncio.gather(*map(one, bodies))


async def answered(site: Site, count: int, *, timeout_seconds: float = 60.0) -> None:
    """Wait until the provider has answered that many requests."""
    await until(
        lambda: site.stub.stats(requests=False),
        lambda stats: stats.totals.answered >= count,
        what=f"{count} answers",
        timeout_seconds=timeout_seconds,
    )


async def all_ended(site: Site, *, timeout_seconds: float = 90.0) -> None:
    """Wait until no job of the site is open: two small queries a look, however many jobs."""
    await until(
        lambda: _open_jobs(site),
        lambda found: not found,
        what="all jobs end",
        timeout_seconds=timeout_seconds,
        look_seconds=LOOK_SECONDS,
    )


async def _open_jobs(site: Site) -> list[str]:
    pages = [
        await site.read(f"/v1/jobs?state={state}&limit=1") for state in ("accepted", "running")
    ]
    return [job["id"] for page in pages for job in page["jobs"]]


class Books:
    """What the ledger and the provider say about the jobs of one label, read once."""

    def __init__(
        self,
        terminals: Sequence[Document],
        evaluations: Sequence[Document],
        requests: Sequence[RequestRecord],
    ) -> None:
        self.terminals = terminals
        self.evaluations = evaluations
        self.requests = requests

    @property
    def states(self) -> dict[str, str]:
        """How each job ended, by its terminal record."""
        return {found.data["job"]: found.data["state"] for found in self.terminals}

    @property
    def attempts(self) -> list[Json]:
        """All attempts on record."""
        return [attempt for found in self.evaluations for attempt in found.data["attempts"]]

    def by_key(self) -> dict[str, list[RequestRecord]]:
        """The provider's requests of each question, oldest first."""
        found: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        for record in self.requests:
            found[record.key].append(record)
        return found

    def by_answer(self) -> dict[str, Document]:
        """Each evaluation under the provider's ID of the answer that it kept."""
        return {
            attempt["provider_request_id"]: found
            for found in self.evaluations
            for attempt in found.data["attempts"]
            if attempt.get("provider_request_id")
        }


async def books(site: Site, ids: Sequence[str], label: str) -> Books:
    """Read the books of these jobs, whose questions all carry a label that begins like this."""
    jobs = set(ids)
    terminals, evaluations = await asyncio.gather(
        site.ledger.group("terminals"), site.ledger.group("evaluations")
    )
    stats = await site.stub.stats()
    assert stats.totals.records_dropped == 0
    return Books(
        [found for found in terminals if found.data["job"] in jobs],
        [found for found in evaluations if found.data["attempts"][0]["job"] in jobs],
        [record for record in stats.requests if (record.label or "").startswith(label)],
    )


def assert_ended_once(found: Books, ids: Sequence[str]) -> None:
    """Each job has one terminal record, which nobody has written to since it was created."""
    assert sorted(terminal.path for terminal in found.terminals) == sorted(
        f"jobs/{job}/terminals/1" for job in ids
    )
    assert all(terminal.update_time == terminal.create_time for terminal in found.terminals)


def in_flight_at(record: RequestRecord, moment: float) -> bool:
    """Whether the provider had the request then, and had not answered it."""
    ended = record.ended_monotonic
    return record.arrived_monotonic <= moment and (ended is None or ended > moment)


def moment(text: str) -> datetime:
    """The time that RFC 3339 text of the emulators names."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder for a stack whose bucket is asked for many objects a second.

    The bucket's server calls fsync twice an upload, one upload at a time: on a busy disk a single
    one takes as long as thirty uploads.
    """
    memory = Path("/dev/shm")  # Linux; elsewhere the usual place for temporary files
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
