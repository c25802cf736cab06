"""A query read to its end, page by page, in the order of document IDs."""

from collections.abc import AsyncIterator
from dataclasses import replace

from functions.core.ports import Ledger, Query, Snapshot


async def pages(ledger: Ledger, query: Query, size: int) -> AsyncIterator[list[Snapshot]]:
    """Yield what matches `query`, at most `size` documents a page and no page empty.

    `query` has no order of its own: in that of IDs no document is left out for want of a field.

    Raises:
        LedgerUnavailable: a page failed.
    """
    query = replace(query, limit=size)
    while True:
        page = await ledger.query(query)
        if page:
            yield page
        if len(page) < size:
            return
        query = replace(query, after=(None, page[-1].id))
