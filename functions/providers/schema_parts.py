"""What one subschema says, read without its surroundings: types, listed values, choices."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_TOLD_CHARACTERS = 200  # of one bound that is told in a description

_KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
ANNOTATIONS = frozenset(
    {
        "$comment",
        "$defs",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)


def own(schema: Mapping[str, Any]) -> set[str]:
    """Return the keywords that say something about values."""
    return schema.keys() - ANNOTATIONS


def joined(target: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """Return `target`, described by what stood beside it; rules beside it go into its `allOf`."""
    texts = {key: beside[key] for key in ("description",) if key in beside}
    rules = {key: value for key, value in beside.items() if key not in ANNOTATIONS}
    more = [*target.get("allOf", ()), rules] if rules else None
    return {**target, **texts} | ({"allOf": more} if more else {})


def branches(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the alternatives where a schema is nothing else but a choice, else None."""
    words = {"anyOf", "oneOf"} & schema.keys()
    if len(words) != 1 or own(schema) - {"anyOf", "oneOf", "type"}:
        return None
    alternatives: list[Any] = schema[words.pop()]
    if "type" not in schema:
        return alternatives
    return [_with_type(one, schema["type"]) for one in alternatives]


def _with_type(schema: Any, shared: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    shaped = {"type", "$ref", "anyOf", "oneOf", "allOf"} & schema.keys()
    return schema if shaped else {"type": shared, **schema}


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types a schema allows, from its values where it names none."""
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    values = listed(schema) or ()
    kinds = named or [kind for kind in _KINDS if any(_kind(value) == kind for value in values)]
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds]


def sayable(schema: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[str]:
    """Yield the types for which the listed values, if there are any, leave something."""
    values = listed(schema)
    for kind in kinds:
        if values is None or any(is_one_of(value, (kind,)) for value in values):
            yield kind


def listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of a `const` or `enum`, None where the values are not listed."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def is_one_of(value: Any, kinds: Sequence[str] | frozenset[str]) -> bool:
    """Whether a value has one of these types; whole numbers are numbers as well."""
    kind = _kind(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def lateness(part: Mapping[str, Any]) -> int:
    """Return where a property belongs: free text 0, what is made of parts 1, decided values 2."""
    if "enum" in part or "const" in part:
        return 2
    if "anyOf" in part:
        return max(map(lateness, part["anyOf"]))
    named = part["type"]
    kinds = {named} if isinstance(named, str) else set(named)
    if kinds == {"null"}:
        return 0
    if kinds & {"number", "integer", "boolean"}:
        return 2
    return 1 if kinds & {"array", "object"} else 0


def integers(schema: Mapping[str, Any], at_most: int) -> list[int] | None:
    """Return all integers within a schema's bounds, None without bounds or when there are many."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or high is None or math.floor(high) - math.ceil(low) >= at_most:
        return None
    return list(range(math.ceil(low), math.floor(high) + 1))


def described(
    schema: Mapping[str, Any], result: dict[str, Any], told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return `result` with the schema's description and the bounds that were left out."""
    texts = [schema["description"]] if isinstance(schema.get("description"), str) else []
    pairs = (f"{name} {json.dumps(value)}" for name, value in (told or {}).items())
    bounds = [pair[:MAX_TOLD_CHARACTERS] for pair in pairs]
    texts += [f"({', '.join(bounds)})"] if bounds else []
    return result | ({"description": " ".join(texts)} if texts else {})
