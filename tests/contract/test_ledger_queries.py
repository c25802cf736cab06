"""What every ledger promises about queries and counts."""

from dataclasses import replace
from typing import Any

import pytest

from functions.core.errors import LedgerUnavailable
from functions.core.ports import Create, Ledger, Query

DOCUMENTS: dict[str, dict[str, Any]] = {
    "a/1": {"n": 2, "tags": ["x"], "kind": "even"},
    "a/2": {"n": 1, "tags": ["x", "y"], "kind": "odd"},
    "a/3": {"n": 2, "tags": [], "kind": "even"},
    "a/4": {"kind": "none"},
    "a/5": {"n": None, "kind": "null"},
    "a/6": {"n": "text", "kind": "text"},
    "a/7": {"n": 1.5, "kind": "half"},
    "b/1": {"n": 1},
    "a/1/a/1": {"n": 1, "kind": "odd"},
    "a/1/a/2": {"n": 0, "kind": "even"},
}


@pytest.fixture(autouse=True)
async def _documents(ledger: Ledger) -> None:
    await ledger.commit(*(Create(path=path, data=data) for path, data in DOCUMENTS.items()))


FOUND: dict[str, tuple[Query, list[str]]] = {
    "everything by id": (Query(collection="a"), ["1", "2", "3", "4", "5", "6", "7"]),
    "by id, after": (Query(collection="a", after=(None, "5")), ["6", "7"]),
    "a subcollection": (Query(collection="a/1/a", order_by="n"), ["2", "1"]),
    "an empty collection": (Query(collection="none"), []),
    "equal": (Query(collection="a", where=(("kind", "==", "even"),)), ["1", "3"]),
    "equal, two clauses": (
        Query(collection="a", where=(("kind", "==", "even"), ("n", "==", 2.0))),
        ["1", "3"],
    ),
    "equal to null": (Query(collection="a", where=(("n", "==", None),)), ["5"]),
    "true is not one": (Query(collection="a", where=(("n", "==", True),)), []),
    "ordered: null, numbers, text; without the field not at all; ties by id": (
        Query(collection="a", order_by="n"),
        ["5", "2", "7", "1", "3", "6"],
    ),
    "descending, ties too": (
        Query(collection="a", order_by="n", descending=True),
        ["6", "3", "1", "7", "2", "5"],
    ),
    "a range stays in its type": (
        Query(collection="a", where=(("n", "<=", 2),), order_by="n"),
        ["2", "7", "1", "3"],
    ),
    "less": (Query(collection="a", where=(("n", "<", 2),), order_by="n"), ["2", "7"]),
    "greater": (Query(collection="a", where=(("n", ">", 1),), order_by="n"), ["7", "1", "3"]),
    "at least, and equal elsewhere": (
        Query(collection="a", where=(("n", ">=", 2), ("kind", "==", "even")), order_by="n"),
        ["1", "3"],
    ),
    "between, descending, limited": (
        Query(
            collection="a",
            where=(("n", ">", 1), ("n", "<=", 2)),
            order_by="n",
            descending=True,
            limit=2,
        ),
        ["3", "1"],
    ),
    "array contains": (
        Query(collection="a", where=(("tags", "array_contains", "x"),)),
        ["1", "2"],
    ),
    "array contains, ordered": (
        Query(collection="a", where=(("tags", "array_contains", "x"),), order_by="n"),
        ["2", "1"],
    ),
    "after a tie": (Query(collection="a", order_by="n", after=(2, "1")), ["3", "6"]),
    "after a tie, descending": (
        Query(collection="a", order_by="n", descending=True, after=(2, "3")),
        ["1", "7", "2", "5"],
    ),
}


@pytest.mark.parametrize(("query", "ids"), FOUND.values(), ids=FOUND.keys())
async def test_a_query_finds_documents_in_order(
    ledger: Ledger, query: Query, ids: list[str]
) -> None:
    """A query finds the direct children that match, in its order, with their data and times."""
    found = await ledger.query(query)
    assert [s.id for s in found] == ids
    assert [s.data for s in found] == [DOCUMENTS[f"{query.collection}/{i}"] for i in ids]
    assert all(s.update_time is not None and s.update_time <= s.read_time for s in found)


@pytest.mark.parametrize(("query", "ids"), FOUND.values(), ids=FOUND.keys())
async def test_a_count_is_the_number_of_documents_found(
    ledger: Ledger, query: Query, ids: list[str]
) -> None:
    """A count equals the length of the query's result."""
    assert await ledger.count(query) == len(ids)


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_join_without_gap_or_repetition(ledger: Ledger, *, descending: bool) -> None:
    """Pages of one document, each after the last, give the whole result."""
    query = Query(collection="a", order_by="n", descending=descending)
    pages: list[str] = []
    page = await ledger.query(replace(query, limit=1))
    while page:
        pages += [s.id for s in page]
        [last] = page
        assert last.data is not None
        page = await ledger.query(replace(query, limit=1, after=(last.data["n"], last.id)))
    assert pages == [s.id for s in await ledger.query(query)]


REFUSED = {
    "unknown operators": Query(collection="a", where=(("n", "!=", 1),)),
    "needs `order_by`": Query(collection="a", where=(("n", "<", 1),)),
    "cannot be ordered": Query(collection="a", where=(("n", "<", 1),), order_by="kind"),
    "descending order": Query(collection="a", descending=True),
    "not positive": Query(collection="a", limit=0),
}


@pytest.mark.parametrize(("reason", "query"), REFUSED.items(), ids=REFUSED.keys())
async def test_a_query_that_firestore_refuses_is_refused(
    ledger: Ledger, reason: str, query: Query
) -> None:
    """A query without an answer from one index is a ValueError, never an empty result."""
    with pytest.raises(ValueError, match=reason):
        await ledger.query(query)
    with pytest.raises(ValueError, match=reason):
        await ledger.count(query)


async def test_a_total_is_the_sum_of_the_field_it_is_ordered_by(ledger: Ledger) -> None:
    """Of the documents that match and have it; what is no number adds nothing."""
    twos = (("kind", "==", "even"),)
    assert await ledger.total(Query(collection="a", where=twos, order_by="n")) == 4
    assert await ledger.total(Query(collection="a/1/a", order_by="n")) == 1
    for kind in ("none", "null", "text"):
        query = Query(collection="a", where=(("kind", "==", kind),), order_by="n")
        assert await ledger.total(query) == 0
    assert await ledger.total(Query(collection="nothing", order_by="n")) == 0


async def test_a_total_that_is_no_whole_number_is_no_answer(ledger: Ledger) -> None:
    """A fraction is not cut off without a word; a sum over nothing named is refused."""
    with pytest.raises(LedgerUnavailable):
        await ledger.total(Query(collection="a", order_by="n"))
    with pytest.raises(ValueError, match="order_by"):
        await ledger.total(Query(collection="a"))
