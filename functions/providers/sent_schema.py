"""The schema a server is sent: the answer's schema, narrowed to what its vendor takes.

Narrowing only: whatever fits the sent schema must also fit the full one, except for bounds that the
vendor cannot express. Every answer is validated against the full schema afterwards.
"""

import math
from collections.abc import Mapping
from typing import Any

from functions.providers.base import Endpoint

# Below this many whole steps, integers would change the question: on a scale of 0 to 1 a model must
# be able to say 0.7.
MIN_INTEGER_STEPS = 4

# OpenAI's strict subset refuses these; a schema that uses them is sent as not strict.
_NOT_STRICT = frozenset(
    {
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
    }
)
_STRING_BOUNDS = frozenset({"minLength", "maxLength"})


def sent_schema(schema: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """Return the schema as this endpoint takes it."""
    return {key: _sent(key, value, endpoint) for key, value in _bounded(schema, endpoint).items()}


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether a schema lies within OpenAI's strict subset (objects closed, all keys required)."""
    return schema.get("type") == "object" and "anyOf" not in schema and _strict(schema)


def _bounded(schema: Mapping[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    result = dict(schema)
    if endpoint.integers and result.get("type") == "number":
        result = _integer(result)
    if result.get("type") == "string":
        limit = endpoint.max_string_characters
        bounds = {k: min(result.pop(k), limit or 0) for k in _STRING_BOUNDS if k in result}
        result |= bounds if limit else {}
    return result


def _integer(schema: dict[str, Any]) -> dict[str, Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or high is None or math.floor(high) - math.ceil(low) < MIN_INTEGER_STEPS:
        return schema
    narrowed = {"type": "integer", "minimum": math.ceil(low), "maximum": math.floor(high)}
    return schema | narrowed


def _sent(key: str, value: Any, endpoint: Endpoint) -> Any:
    if key in ("properties", "$defs") and isinstance(value, Mapping):
        return {name: _sent("", part, endpoint) for name, part in value.items()}
    if key in ("enum", "const", "default", "examples", "required"):
        return value
    if isinstance(value, Mapping):
        return sent_schema(value, endpoint)
    if isinstance(value, list):
        return [_sent("", item, endpoint) for item in value]
    return value


def _strict(node: Any) -> bool:
    if isinstance(node, list):
        return all(map(_strict, node))
    if not isinstance(node, Mapping):
        return True
    if node.get("type") == "object" or "properties" in node:
        closed = node.get("additionalProperties") is False
        complete = set(node.get("required", ())) == set(node.get("properties", {}))
        if not (closed and complete):
            return False
    children = {k: v for k, v in node.items() if k not in ("properties", "$defs")}
    named = [*node.get("properties", {}).values(), *node.get("$defs", {}).values()]
    return not _NOT_STRICT & children.keys() and all(map(_strict, [*children.values(), *named]))
