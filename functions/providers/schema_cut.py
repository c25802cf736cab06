"""A JSON Schema cut to what one vendor accepts: the steps that all vendors share.

What is left out makes the sent schema weaker, never wrong: every answer that fits the full schema
and has only properties that it names fits the cut one, and answers are validated against the full
schema afterwards. Closing open objects, for a vendor that takes no others, is the one narrowing
here. A schema that cannot be said in a vendor's words has no cut; the prompt names the full one in
any case.

References are written out, since what they lead to may be left out. Accepted schemas do not refer
to themselves (`functions.web.output_schemas`).

Properties are put in an order in which reasons come before what they lead to: models write keys in
the schema's order, and a caller's own order is lost where a job is stored as canonical JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from functions.providers.schema_parts import (
    ANNOTATIONS,
    branches,
    described,
    integers,
    is_one_of,
    joined,
    kinds_of,
    lateness,
    listed,
    own,
    sayable,
)
from functions.providers.schema_subsets import BOUNDS, Subset

MAX_DEPTH = 64
MAX_SUBSCHEMAS = 5000  # no vendor takes more

_HANDLED = frozenset(
    {
        "additionalProperties",
        "const",
        "enum",
        "items",
        "prefixItems",
        "properties",
        "required",
        "type",
    }
)


class _Bounds(NamedTuple):
    kept: dict[str, Any]
    left_out: dict[str, Any]


class _Inexpressible(Exception):
    """The schema has a part for which the vendor has no words."""


def cut(schema: Mapping[str, Any], subset: Subset) -> dict[str, Any] | None:
    """Return the schema in a vendor's words, None when it cannot be said in them."""
    cutter = _Cutter(schema, subset)
    try:
        result = cutter.node(schema, 0)
    except _Inexpressible:
        return None
    # A rule that was left out may demand a property that a closed object no longer allows.
    return None if cutter.closed_one and cutter.left_one_out else result


class _Cutter:
    """One cut in progress, and what it has done so far that must not come together."""

    def __init__(self, root: Mapping[str, Any], subset: Subset) -> None:
        self._root = root
        self._subset = subset
        self._subschemas = 0
        self.closed_one = False
        self.left_one_out = False

    def node(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return one subschema in the vendor's words."""
        self._subschemas += 1
        if self._subschemas > MAX_SUBSCHEMAS or depth > MAX_DEPTH:
            raise _Inexpressible
        if not isinstance(schema, Mapping):
            raise _Inexpressible  # `true` and `false` have no form that all vendors take
        whole = self._written_out(schema)
        if (choices := branches(whole)) is not None:
            return described(whole, {"anyOf": [self.node(one, depth + 1) for one in choices]})
        kinds = kinds_of(whole)
        if not kinds:
            raise _Inexpressible
        if not self._subset.types_literals and (values := self._values(whole, kinds)) is not None:
            return described(whole, values)
        if len(kinds) > 1 and not self._subset.lists_types:
            parts = [self._typed(whole, [kind], depth) for kind in sayable(whole, kinds)]
            return {"anyOf": parts}
        return self._typed(whole, kinds, depth)

    def _written_out(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow `$ref` and an `allOf` of one; what stands beside them becomes a rule beside."""
        for _ in range(MAX_DEPTH):
            only = schema.get("allOf")
            if "$ref" in schema:
                target = self._target(str(schema["$ref"]))
                beside = {key: value for key, value in schema.items() if key != "$ref"}
            elif isinstance(only, list) and len(only) == 1 and not own(schema) - {"allOf"}:
                target = only[0]
                beside = {key: value for key, value in schema.items() if key != "allOf"}
            else:
                return schema
            if not isinstance(target, Mapping):
                raise _Inexpressible
            schema = joined(target, beside)
        raise _Inexpressible

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            raise _Inexpressible
        here: Any = self._root
        for step in unquote(reference[2:]).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and name in here:
                here = here[name]
            elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
                here = here[int(name)]
            else:
                raise _Inexpressible
        return here

    def _typed(self, schema: Mapping[str, Any], kinds: Sequence[str], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else list(kinds)}
        if (values := self._values(schema, kinds)) is not None:
            return described(schema, result | values if self._subset.types_literals else values)
        if "object" in kinds:
            result |= self._object(schema, depth)
        if "array" in kinds:
            result |= self._array(schema, depth)
        self.left_one_out |= not schema.keys() <= _HANDLED | ANNOTATIONS | BOUNDS.keys()
        kept, told = self._bounds(schema, kinds)
        return described(schema, result | kept, told if self._subset.tells_bounds else {})

    def _bounds(self, schema: Mapping[str, Any], kinds: Sequence[str]) -> _Bounds:
        kept, left_out = {}, {}
        for keyword, value in schema.items():
            if not any(kind in kinds for kind in BOUNDS.get(keyword, ())):
                continue
            weaker = self._weaker(keyword, value)
            if weaker is not None:
                kept[keyword] = weaker
            if weaker != value:
                left_out[keyword] = value
        return _Bounds(kept, left_out)

    def _weaker(self, keyword: str, value: Any) -> Any:
        """Return a bound as far as the vendor takes it, None when it does not."""
        if keyword not in self._subset.bounds:
            return None
        if keyword == "format":
            return value if value in self._subset.formats else None
        largest = self._subset.largest_min_items
        return value if keyword != "minItems" or largest is None else min(value, largest)

    def _values(self, schema: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any] | None:
        """Return the `enum` or `const` that lists all values, None when none can be listed."""
        values = listed(schema)
        if values is None:
            span = integers(schema, self._subset.enumerated_integers)
            return {"enum": span} if span and list(kinds) == ["integer"] else None
        fitting = [value for value in values if is_one_of(value, kinds)]
        if not fitting:
            raise _Inexpressible
        if not all(is_one_of(value, self._subset.enum_kinds) for value in fitting):
            self.left_one_out = True
            return None
        if "const" in schema and self._subset.has_const:
            return {"const": schema["const"]}
        return {"enum": fitting}

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        rest = schema.get("additionalProperties", True)
        if not schema.get("properties") and not (rest and isinstance(rest, Mapping)):
            raise _Inexpressible  # a grammar for any object is often one for `{}`
        if schema.get("patternProperties") and rest is not True:
            raise _Inexpressible  # without the patterns, the rest would be more
        properties = self._properties(schema.get("properties", {}), depth)
        result: dict[str, Any] = {"properties": properties}
        if required := [name for name in properties if name in schema.get("required", ())]:
            result["required"] = required
        if self._subset.orders_properties:
            result["propertyOrdering"] = list(properties)
        if self._subset.objects == "any":
            return result | self._rest(rest, depth)
        self._check_closed(schema, required)
        return result | {"additionalProperties": False}

    def _properties(self, properties: Mapping[str, Any], depth: int) -> dict[str, Any]:
        parts = [(name, self.node(part, depth + 1)) for name, part in properties.items()]
        return dict(sorted(parts, key=lambda part: lateness(part[1])))

    def _rest(self, rest: Any, depth: int) -> dict[str, Any]:
        if rest is True or rest == {}:
            return {}
        return {"additionalProperties": rest if rest is False else self.node(rest, depth + 1)}

    def _check_closed(self, schema: Mapping[str, Any], required: Sequence[str]) -> None:
        """Refuse an object that cannot be closed, or not without losing what it is there for."""
        if set(required) != set(schema.get("required", ())):
            raise _Inexpressible
        closed = schema.get("additionalProperties", True)
        if closed is False:
            complete = len(required) == len(schema.get("properties", {}))
            if self._subset.objects == "closed" and not complete:
                raise _Inexpressible
        elif closed in (True, {}) and self._subset.objects == "closing":
            self.closed_one = True
        else:
            raise _Inexpressible

    def _array(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if "prefixItems" in schema:
            if not self._subset.has_prefix_items:
                raise _Inexpressible  # `items` alone would mean all of them
            result["prefixItems"] = [self.node(one, depth + 1) for one in schema["prefixItems"]]
        elif "items" not in schema:
            raise _Inexpressible
        if isinstance(schema.get("items"), Mapping):
            result["items"] = self.node(schema["items"], depth + 1)
        elif not result:
            raise _Inexpressible
        return result
