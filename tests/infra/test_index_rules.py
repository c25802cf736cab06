"""The rules by which the index proof judges, on queries whose answer is known."""

import pytest

from tests.infra.indexes import Composite, Declared, Shape, read_declared

STATE = Composite(
    collection="jobs",
    fields=(("tenant", "ASCENDING"), ("state", "ASCENDING"), ("at", "DESCENDING")),
)
OWNER = Composite(
    collection="jobs",
    fields=(("tenant", "ASCENDING"), ("owner", "ASCENDING"), ("at", "DESCENDING")),
)
LABEL = Composite(collection="jobs", fields=(("labels", "CONTAINS"), ("at", "DESCENDING")))
DECLARED = Declared(
    composites=(STATE, OWNER, LABEL), exempt=frozenset({("jobs", "at")}), ttl=frozenset()
)


def shape(*equal: str, order: str | None = None, descending: bool = False) -> Shape:
    return Shape(collection="jobs", equal=frozenset(equal), order=order, descending=descending)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        (shape(), frozenset()),
        (shape("a", "b", "c"), frozenset()),
        (shape(order="b"), frozenset()),
        (shape("tenant", "state", order="at", descending=True), frozenset({STATE})),
        (shape("tenant", "state", "owner", order="at", descending=True), frozenset({STATE, OWNER})),
    ],
)
def test_a_query_with_its_indexes_is_answered(asked: Shape, used: frozenset[Composite]) -> None:
    """Equality merges by itself, one field orders itself, and composites that end alike merge."""
    assert DECLARED.used_by(asked) == used


def test_an_array_field_needs_an_index_that_holds_what_it_contains() -> None:
    """`array_contains` is served by an index in that mode, equality on the same field is not."""
    contains = Shape(collection="jobs", contains=frozenset({"labels"}), order="at", descending=True)
    assert DECLARED.used_by(contains) == frozenset({LABEL})
    assert DECLARED.used_by(Shape(collection="jobs", contains=frozenset({"c"}))) == frozenset()
    beside = Shape(collection="jobs", contains=frozenset({"c"}), equal=frozenset({"tenant"}))
    assert DECLARED.used_by(beside) is None
    assert DECLARED.used_by(shape("labels", order="at", descending=True)) is None


@pytest.mark.parametrize(
    "asked",
    [
        shape("tenant", "state", order="at"),  # the other direction
        shape("state", order="at", descending=True),  # an index over a field that is not equal
        shape("tenant", "window", order="at", descending=True),  # a field that no index has
        shape("tenant", order="b"),  # equality beside an order, and no index at all
        shape(order="at"),  # an exempted field alone
        shape("at", "tenant"),  # and merged
        Shape(collection="runs", equal=frozenset({"tenant", "state"}), order="at", descending=True),
    ],
    ids=str,
)
def test_a_query_without_its_index_is_found(asked: Shape) -> None:
    """What Firestore would refuse has no answer."""
    assert DECLARED.used_by(asked) is None


def test_every_time_to_live_is_exempt_from_indexing() -> None:
    """`expire_at` grows with time, and nobody asks for it."""
    declared = read_declared()
    assert declared.ttl <= declared.exempt
    assert {name for _, name in declared.ttl} == {"expire_at"}


def test_every_composite_index_is_declared_once() -> None:
    """Firestore refuses the same index twice."""
    composites = read_declared().composites
    assert len(set(composites)) == len(composites)
