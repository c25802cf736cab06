"""Whether a caller's `output_schema` is a JSON Schema that answers can be checked against, safely.

A schema arrives from outside and is run against every answer, so its cost is bounded when the job
is accepted: size, number and levels of subschemas with every `$ref` written out, length of arrays.
A `$ref` stays inside the document (`#/...`), names a subschema, and never leads back to itself.
Regular expressions are refused: Python's can take time without bound on a hostile answer, and the
check runs beside the other seats of the process.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

from functions.web.faults import Fault, Path, path_of
from functions.web.sizes import size_fault

MAX_SCHEMA_BYTES = 32 * 1024
MAX_SUBSCHEMAS = 500
MAX_EXPANDED_SUBSCHEMAS = 2000
MAX_ARRAY_ITEMS = 500
MAX_HEIGHT = 32

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAX_TOLD = 20
_ONE = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_PATTERNS = ("pattern", "patternProperties")
_REFUSED = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveRef", "$vocabulary")

_TOO_HIGH = f"must have at most {MAX_HEIGHT} levels of subschemas with every $ref written out"
_TOO_WIDE = f"must have at most {MAX_EXPANDED_SUBSCHEMAS} subschemas with every $ref written out"

Subschemas = dict[Path, Mapping[str, Any]]


def output_schema_faults(schema: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with a schema, at most a few faults; the paths begin at the schema."""
    if fault := size_fault((), schema, MAX_SCHEMA_BYTES) or next(_array_faults((), schema), None):
        return [fault]
    subschemas = dict(islice(_subschemas(schema), MAX_SUBSCHEMAS + 1))
    if len(subschemas) > MAX_SUBSCHEMAS:
        return [Fault(path=(), detail=f"must have at most {MAX_SUBSCHEMAS} subschemas")]
    invalid = list(islice(_metaschema_faults(schema), _MAX_TOLD))
    rules = list(islice(_rule_faults(schema, subschemas), _MAX_TOLD))
    return invalid + rules or _expansion_faults(subschemas)


def _array_faults(path: Path, value: Any) -> Iterator[Fault]:
    # jsonschema compares the items of some arrays pair by pair.
    if isinstance(value, list):
        if len(value) > MAX_ARRAY_ITEMS:
            yield Fault(path=path, detail=f"must have at most {MAX_ARRAY_ITEMS} items")
        for index, item in enumerate(value):
            yield from _array_faults((*path, index), item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _array_faults((*path, key), item)


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    waiting: list[tuple[Path, Mapping[str, Any]]] = [((), schema)]
    while waiting:
        path, here = waiting.pop()
        yield path, here
        waiting.extend((path + step, child) for step, child in _children(here))


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for keyword, value in schema.items():
        if keyword in _ONE and isinstance(value, Mapping):
            yield (keyword,), value
        elif keyword in _SEVERAL and isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, Mapping):
                    yield (keyword, index), child
        elif keyword in _NAMED and isinstance(value, Mapping):
            for name, child in value.items():
                if isinstance(child, Mapping):
                    yield (keyword, name), child


def _metaschema_faults(schema: Mapping[str, Any]) -> Iterator[Fault]:
    validator = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    for error in validator.iter_errors(schema):
        detail = f"is not valid JSON Schema: {error.message[:200]}"
        yield Fault(path=tuple(error.absolute_path), detail=detail)


def _rule_faults(schema: Mapping[str, Any], subschemas: Subschemas) -> Iterator[Fault]:
    if schema.get("type") != "object":
        yield Fault(path=("type",), detail='must be "object" at the top of the schema')
    for path, here in subschemas.items():
        if here.get("$schema", _DIALECT) not in (_DIALECT, _DIALECT + "#"):
            yield Fault(path=(*path, "$schema"), detail=f"must be {_DIALECT}, or be left out")
        for keyword in _REFUSED:
            if keyword in here:
                yield Fault(path=(*path, keyword), detail="is not supported; use $ref with #/...")
        yield from _reference_faults(path, here, subschemas)
        yield from _pattern_faults(path, here)


def _reference_faults(
    path: Path, here: Mapping[str, Any], subschemas: Subschemas
) -> Iterator[Fault]:
    reference = here.get("$ref")
    if not isinstance(reference, str):
        return
    if not (reference == "#" or reference.startswith("#/")):
        yield Fault(path=(*path, "$ref"), detail="must stay inside this schema: # or #/...")
    elif _target(reference, subschemas) is None:
        yield Fault(
            path=(*path, "$ref"),
            detail="does not lead to a subschema of this schema that is an object",
        )


def _target(reference: str, subschemas: Subschemas) -> Path | None:
    """Return the path of the subschema a reference names, None when there is none."""
    wanted = path_of(unquote(reference[1:]))
    candidates = (path for path in subschemas if len(path) == len(wanted))
    return next((path for path in candidates if tuple(map(str, path)) == wanted), None)


def _pattern_faults(path: Path, here: Mapping[str, Any]) -> Iterator[Fault]:
    for keyword in _PATTERNS:
        if keyword in here:
            detail = "regular expressions are not supported: one may run without end on an answer"
            yield Fault(path=(*path, keyword), detail=detail)


def _expansion_faults(subschemas: Subschemas) -> list[Fault]:
    """Bound the schema with every `$ref` written out: twice-used parts inside twice-used parts."""
    try:
        extent = _extent((), subschemas, {}, ())
    except _Unbounded as exc:
        return [Fault(path=exc.path, detail=exc.detail)]
    if extent.height > MAX_HEIGHT:
        return [Fault(path=(), detail=_TOO_HIGH)]
    if extent.size > MAX_EXPANDED_SUBSCHEMAS:
        return [Fault(path=(), detail=_TOO_WIDE)]
    return []


@dataclass(frozen=True, slots=True)
class _Extent:
    """Subschemas in a schema and levels of them, with every `$ref` written out."""

    size: int
    height: int


class _Unbounded(Exception):
    """A subschema that contains itself, or too many levels of others."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(detail)
        self.path = path
        self.detail = detail


def _extent(
    path: Path, subschemas: Subschemas, known: dict[Path, _Extent], above: tuple[Path, ...]
) -> _Extent:
    if path in above:
        raise _Unbounded(path, "leads back to itself; recursive schemas are not supported")
    if len(above) >= MAX_HEIGHT:
        raise _Unbounded(path, _TOO_HIGH)
    if path not in known:
        parts = [
            _extent(part, subschemas, known, (*above, path)) for part in _parts(path, subschemas)
        ]
        known[path] = _Extent(
            size=1 + sum(part.size for part in parts),
            height=1 + max((part.height for part in parts), default=0),
        )
    return known[path]


def _parts(path: Path, subschemas: Subschemas) -> Iterator[Path]:
    """Yield what is evaluated as part of a subschema; definitions only where a `$ref` uses them."""
    here = subschemas[path]
    for step, _ in _children(here):
        if step[0] not in ("$defs", "definitions"):
            yield path + step
    reference = here.get("$ref")
    if isinstance(reference, str) and (target := _target(reference, subschemas)) is not None:
        yield target
