"""Pages of a tenant's jobs, newest first, with cursors that stay right while jobs are added.

The submission time is indexed per shard, so that no single index range takes every write; a page is
merged from one query a shard.
"""

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice

from functions.core.cursors import decode_cursor, encode_cursor
from functions.core.documents import from_document
from functions.core.errors import UnreadableRecord
from functions.core.identities import SHARDS
from functions.core.jobs import Job
from functions.core.ports import Query, Snapshot
from functions.services import Services


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """What a page of jobs is narrowed to; None means anything."""

    state: str | None = None
    window: str | None = None
    owner: str | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Jobs, newest first, and the cursor of the next page, None at the end.

    `unreadable` has those whose record cannot be read, by ID: one of them must not hide the others
    of its page, nor bar the way to the pages behind it.
    """

    jobs: tuple[Job, ...]
    next_cursor: str | None
    unreadable: Mapping[str, UnreadableRecord] = field(default_factory=dict)


async def list_jobs(
    services: Services, tenant: str, wanted: JobFilter, *, limit: int, cursor: str | None
) -> Page:
    """Return one page.

    Raises:
        BadCursor: the cursor cannot be read, or is another list's.
        LedgerUnavailable: a query had no answer, or lacks its index.
        UnreadableRecord: a job has no place in the list.
    """
    of = ["jobs", tenant, asdict(wanted)]
    after = decode_cursor(of, cursor) if cursor is not None else None
    queries = [_query(tenant, wanted, shard, limit + 1, after) for shard in range(SHARDS)]
    found = await asyncio.gather(*(services.ledger.query(query) for query in queries))
    page = list(islice(heapq.merge(*found, key=_position, reverse=True), limit))
    more = sum(map(len, found)) > len(page)
    last = encode_cursor(of, *_position(page[-1])) if page and more else None
    jobs, unreadable = _read(page)
    return Page(jobs=tuple(jobs), next_cursor=last, unreadable=unreadable)


def _read(page: Sequence[Snapshot]) -> tuple[list[Job], dict[str, UnreadableRecord]]:
    jobs: list[Job] = []
    unreadable: dict[str, UnreadableRecord] = {}
    for found in page:
        try:
            jobs.append(from_document(Job, found.data or {}, found.path))
        except UnreadableRecord as exc:
            unreadable[found.id] = exc
    return jobs, unreadable


def _query(
    tenant: str, wanted: JobFilter, shard: int, limit: int, after: tuple[datetime, str] | None
) -> Query:
    where: list[tuple[str, str, object]] = [("tenant", "==", tenant), ("shard", "==", shard)]
    for name, value in (
        ("state", wanted.state),
        ("run_window", wanted.window),
        ("owner", wanted.owner),
    ):
        if value is not None:
            where.append((name, "==", value))
    if wanted.label is not None:
        where.append(("label_pairs", "array_contains", wanted.label))
    return Query(
        collection="jobs",
        where=tuple(where),
        order_by="submitted_at",
        descending=True,
        limit=limit,
        after=after,
    )


def _position(found: Snapshot) -> tuple[datetime, str]:
    """Return where a job stands in the list, which asks for nothing else of its record.

    Raises:
        UnreadableRecord: nowhere.
    """
    at = (found.data or {}).get("submitted_at")
    if not isinstance(at, datetime):
        raise UnreadableRecord(f"{found.path}: unreadable field submitted_at", where=found.path)
    return at, found.id
