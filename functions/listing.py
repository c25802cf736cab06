"""Pages of a tenant's jobs, newest first, with cursors that stay right while jobs are added.

The submission time is indexed per shard, so that no single index range takes every write; a page is
merged from one query a shard.
"""

import asyncio
import heapq
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice

from functions.core.cursors import decode_cursor, encode_cursor
from functions.core.documents import from_document
from functions.core.identities import SHARDS
from functions.core.jobs import Job
from functions.core.ports import Query
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
    """Jobs, newest first, and the cursor of the next page, None at the end."""

    jobs: tuple[Job, ...]
    next_cursor: str | None


async def list_jobs(
    services: Services, tenant: str, wanted: JobFilter, *, limit: int, cursor: str | None
) -> Page:
    """Return one page.

    Raises:
        BadCursor: the cursor cannot be read, or is another list's.
        LedgerUnavailable: a query had no answer, or lacks its index.
    """
    of = ["jobs", tenant, asdict(wanted)]
    after = decode_cursor(of, cursor) if cursor is not None else None
    queries = [_query(tenant, wanted, shard, limit + 1, after) for shard in range(SHARDS)]
    found = await asyncio.gather(*(services.ledger.query(query) for query in queries))
    pages = [[from_document(Job, doc.data or {}, doc.path) for doc in page] for page in found]
    newest = heapq.merge(*pages, key=_position, reverse=True)
    jobs = tuple(islice(newest, limit))
    more = sum(map(len, pages)) > len(jobs)
    last = encode_cursor(of, *_position(jobs[-1])) if jobs and more else None
    return Page(jobs=jobs, next_cursor=last)


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


def _position(job: Job) -> tuple[datetime, str]:
    return (job.submitted_at, job.id)
