"""Which of Firestore's indexes a query uses: the rules that the emulator does not check.

Rules, for a query of one collection, always ordered by the document's ID at last, in the direction
of the order before it:

- Every field has single-field indexes by itself, both ways, and one for what an array contains,
  unless it is exempted. They answer a range or an order over one field alone. Source: Firestore,
  "Index types in Cloud Firestore", "Automatic indexing".
- Equality alone, on however many fields, is answered by merging single-field indexes. Source: the
  same page, "Taking advantage of index merging".
- Equality beside a range or an order over another field needs composite indexes that end in that
  field, in that direction. Several that end alike are merged when together they name all the
  equal fields. Source: the same section.
- What an array contains, beside equality, needs composite indexes too. Source: the reference on
  indexes in Firebase's own agent skills; the page above leaves it open, so this is the safe side.
- `count` needs what the query itself needs. Source: Firestore, "Summarize data with aggregation
  queries".
- An exempted field is in composite indexes all the same. Source: "Single-field index exemptions".
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.core.ports import Query

DECLARED = Path(__file__).resolve().parents[2] / "infra" / "firestore.indexes.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What of a query decides about its indexes; the values do not."""

    collection: str
    equal: frozenset[str] = frozenset()
    contains: frozenset[str] = frozenset()
    order: str | None = None
    descending: bool = False

    def __str__(self) -> str:
        parts = [f"{name} ==" for name in sorted(self.equal)]
        parts += [f"{name} contains" for name in sorted(self.contains)]
        if self.order is not None:
            parts.append(f"by {self.order} {'descending' if self.descending else 'ascending'}")
        return f"{self.collection}: {', '.join(parts) or 'all'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Composite:
    """A declared index: its fields with their modes, in order."""

    collection: str
    fields: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.collection}: {', '.join(f'{name} {mode}' for name, mode in self.fields)}"

    def serves(self, shape: Shape) -> bool:
        """Whether the index ends as the shape is ordered, after nothing but filters of it."""
        filters = self.fields
        if shape.order is not None:
            *filters_, last = self.fields
            if last != (shape.order, "DESCENDING" if shape.descending else "ASCENDING"):
                return False
            filters = tuple(filters_)
        return self.collection == shape.collection and all(
            name in (shape.contains if mode == "CONTAINS" else shape.equal)
            for name, mode in filters
        )

    def filters(self, shape: Shape) -> frozenset[str]:
        """Which of a shape's filters the index answers."""
        names = frozenset(name for name, _ in self.fields)
        return names & (shape.equal | shape.contains)


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """The indexes, exemptions and times to live of `infra/firestore.indexes.json`."""

    composites: tuple[Composite, ...]
    exempt: frozenset[tuple[str, str]]
    ttl: frozenset[tuple[str, str]]

    def used_by(self, shape: Shape) -> frozenset[Composite] | None:
        """Return the composite indexes that answer a shape: none if automatic ones do.

        None when there is no answer, which Firestore gives as FAILED_PRECONDITION.
        """
        parts = len(shape.equal) + len(shape.contains) + (shape.order is not None)
        if parts > 1 and (shape.order is not None or shape.contains):
            return _fewest([index for index in self.composites if index.serves(shape)], shape)
        alone = shape.equal | shape.contains | ({shape.order} if shape.order else set())
        return frozenset() if self._automatic(shape.collection, alone) else None

    def _automatic(self, collection: str, fields: Iterable[str]) -> bool:
        return not any((collection, field) in self.exempt for field in fields)


def shape_of(query: Query) -> Shape:
    """Return the shape of a query; a collection below a document is named by its last part."""
    return Shape(
        collection=query.collection.rpartition("/")[2],
        equal=frozenset(name for name, operator, _ in query.where if operator == "=="),
        contains=frozenset(name for name, operator, _ in query.where if operator[0] == "a"),
        order=query.order_by,
        descending=query.descending,
    )


def read_declared(path: Path = DECLARED) -> Declared:
    """Return what the deployment declares."""
    declared: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    overrides = declared["fieldOverrides"]
    return Declared(
        composites=tuple(
            Composite(
                collection=index["collectionGroup"],
                fields=tuple(
                    (field["fieldPath"], field.get("order") or field["arrayConfig"])
                    for field in index["fields"]
                ),
            )
            for index in declared["indexes"]
        ),
        exempt=frozenset(
            (one["collectionGroup"], one["fieldPath"]) for one in overrides if not one["indexes"]
        ),
        ttl=frozenset((one["collectionGroup"], one["fieldPath"]) for one in overrides if _ttl(one)),
    )


def _ttl(override: Mapping[str, Any]) -> bool:
    return override.get("ttl", False) is True


def _fewest(serving: Iterable[Composite], shape: Shape) -> frozenset[Composite] | None:
    """Return the indexes to merge for a shape, few of them: the exact one if there is one."""
    left, chosen = shape.equal | shape.contains, set[Composite]()
    by_size = sorted(serving, key=lambda index: (len(index.fields), str(index)))
    while left:
        best = max(by_size, key=lambda index: len(index.filters(shape) & left), default=None)
        if best is None or not best.filters(shape) & left:
            return None
        chosen.add(best)
        left -= best.filters(shape)
    return frozenset(chosen)
