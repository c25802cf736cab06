"""The schema a server is sent: the answer's schema, narrowed or cut to what its vendor takes.

| vendor | sent | source |
|---|---|---|
| OpenAI, compatible servers | the strict subset; else all, not strict | OpenAI's guide |
| Anthropic | its subset, objects closed; else nothing | its SDK's transformer |
| Gemini | the keywords of `responseJsonSchema`; else nothing | the type in Google's SDK |

Anthropic and Gemini are told in descriptions which bounds of a value were left out.

Every answer is validated against the full schema afterwards, so a cut may be weaker. What narrows
is `integers` and `max_string_characters` of an endpoint, and Anthropic's closed objects.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from functions.providers.base import Endpoint
from functions.providers.schema_cut import cut
from functions.providers.schema_subsets import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    OPENAI_CHARACTERS,
    OPENAI_ENUM_VALUES,
    OPENAI_LEVELS,
    OPENAI_PROPERTIES,
)

# Below this many whole steps, integers would change the question: on a scale of 0 to 1 a model must
# be able to say 0.7.
MIN_INTEGER_STEPS = 4

_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples", "required", "dependentRequired"})
_NAMED_SCHEMAS = frozenset(
    {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}
)
_STRING_BOUNDS = frozenset({"minLength", "maxLength"})


class SentSchema(NamedTuple):
    """A schema as OpenAI is sent it; `strict` asks the server to enforce it."""

    schema: dict[str, Any]
    strict: bool


def openai_schema(schema: Mapping[str, Any], endpoint: Endpoint) -> SentSchema:
    """Return the schema as OpenAI or a compatible server takes it.

    What the strict subset cannot express is sent whole and not strict: it still guides the model.
    """
    narrowed = _narrowed(schema, endpoint)
    strings = _STRING_BOUNDS if endpoint.max_string_characters else frozenset[str]()
    strict = cut(narrowed, replace(OPENAI, bounds=OPENAI.bounds | strings))
    if strict is None or strict.get("type") != "object" or not _within_limits(strict):
        return SentSchema(narrowed, strict=False)
    return SentSchema(strict, strict=True)


def anthropic_schema(schema: Mapping[str, Any], *, integers: bool = False) -> dict[str, Any] | None:
    """Return the schema in Anthropic's subset, None when it cannot be expressed there.

    Args:
        schema: the answer's full schema.
        integers: whether bounded numbers are narrowed to integers, as `Endpoint.integers` says.
    """
    return cut(_with_integers(schema) if integers else schema, ANTHROPIC)


def gemini_schema(schema: Mapping[str, Any], *, integers: bool = False) -> dict[str, Any] | None:
    """Return the schema for `responseJsonSchema`, None when it cannot be expressed there.

    Args:
        schema: the answer's full schema.
        integers: whether bounded numbers are narrowed to integers, as `Endpoint.integers` says.
    """
    return cut(_with_integers(schema) if integers else schema, GEMINI)


def _within_limits(schema: Mapping[str, Any]) -> bool:
    parts = list(_parts(schema, 1))
    names = [name for part, _ in parts for name in part.get("properties", ())]
    enums = [value for part, _ in parts for value in part.get("enum", ())]
    listed = enums + [part["const"] for part, _ in parts if "const" in part]
    characters = sum(map(len, names)) + sum(len(str(value)) for value in listed)
    return (
        len(names) <= OPENAI_PROPERTIES
        and max(level for _, level in parts) <= OPENAI_LEVELS
        and characters <= OPENAI_CHARACTERS
        and len(enums) <= OPENAI_ENUM_VALUES
    )


def _parts(schema: Mapping[str, Any], level: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield a cut schema's subschemas, each with the number of levels down to it."""
    yield schema, level
    below = [*schema.get("properties", {}).values()]
    below += [schema["items"]] if "items" in schema else []
    for part in below:
        yield from _parts(part, level + 1)
    for part in schema.get("anyOf", ()):
        yield from _parts(part, level)


def _narrowed(schema: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    limit = endpoint.max_string_characters
    result = _with_integers(schema) if endpoint.integers else dict(schema)
    if limit is None:  # leaving bounds out here would be wrong within a `oneOf` or a `not`
        return result
    return _changed(result, lambda part: _with_string_bounds(part, limit))


def _with_integers(schema: Mapping[str, Any]) -> dict[str, Any]:
    return _changed(schema, _integer)


def _integer(schema: dict[str, Any]) -> dict[str, Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") != "number" or low is None or high is None:
        return schema
    if math.floor(high) - math.ceil(low) < MIN_INTEGER_STEPS:
        return schema
    narrowed = {"type": "integer", "minimum": math.ceil(low), "maximum": math.floor(high)}
    return schema | narrowed


def _with_string_bounds(schema: dict[str, Any], limit: int) -> dict[str, Any]:
    if schema.get("type") != "string":
        return schema
    return schema | {key: min(schema[key], limit) for key in _STRING_BOUNDS & schema.keys()}


def _changed(
    schema: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the schema with a change made to each of its subschemas."""
    return {key: _changed_below(key, value, change) for key, value in change(dict(schema)).items()}


def _changed_below(
    keyword: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Any:
    if keyword in _NOT_SCHEMAS:
        return value
    if keyword in _NAMED_SCHEMAS and isinstance(value, Mapping):
        return {name: _changed_below("", part, change) for name, part in value.items()}
    if isinstance(value, Mapping):
        return _changed(value, change)
    return [_changed_below("", one, change) for one in value] if isinstance(value, list) else value
