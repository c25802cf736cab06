"""Normal answers: a value that satisfies a JSON Schema, the same one for the same question.

Numbers are drawn from a digest of the request's key and the place in the schema, so two questions
differ and one question asked twice does not.
"""

import hashlib
import math
from collections.abc import Callable

from jsonschema import Draft202012Validator

from tests.stub.question import Json, JsonObject

# For requests that carry no schema: the shape of an answer to a rubric without criteria.
DEFAULT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 100},
    },
    "required": ["rationale", "score"],
    "additionalProperties": False,
}

_FORMATS = {
    "date": "2026-11-29",
    "date-time": "2026-11-29T12:00:00Z",
    "duration": "PT1H",
    "email": "stub@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEEP = 6  # from here on optional parts are left out, so that recursive schemas end


class UnsupportedSchemaError(ValueError):
    """No answer could be made for the schema: it is invalid, contradicts itself or is too rich."""


def drawn_fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on ``parts`` only."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def instance_for(schema: JsonObject, key: str) -> Json:
    """A value that satisfies ``schema``. Raises ``UnsupportedSchemaError`` when none was found."""
    try:
        value = _Maker(schema, key).make(schema, "$", 0)
        error = next(Draft202012Validator(schema).iter_errors(value), None)
    except Exception as exc:  # a broken schema fails in many ways, all of them its own fault
        raise UnsupportedSchemaError(f"the stub cannot answer this schema: {exc}") from exc
    if error is not None:
        raise UnsupportedSchemaError(f"the stub cannot answer this schema: {error.message}")
    return value


class _Maker:
    """Walks one schema; ``path`` names the place, ``depth`` counts the levels."""

    def __init__(self, root: JsonObject, key: str) -> None:
        self._root = root
        self._key = key

    def make(self, schema: Json, path: str, depth: int) -> Json:
        """The value for one schema."""
        schema = self._resolved(schema, path, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][int(self._draw(path) * len(schema["enum"]))]
        makers: dict[str, Callable[[], Json]] = {
            "object": lambda: self._object(schema, path, depth),
            "array": lambda: self._array(schema, path, depth),
            "integer": lambda: self._integer(schema, path),
            "number": lambda: self._number(schema, path),
            "boolean": lambda: self._draw(path) < 0.5,
            "null": lambda: None,
        }
        make = makers.get(_type_of(schema, depth), lambda: self._string(schema, path))
        return make()

    def _draw(self, path: str) -> float:
        return drawn_fraction(self._key, path)

    def _resolved(self, schema: Json, path: str, depth: int) -> JsonObject:
        """The schema with its reference, branch and parts folded in."""
        if depth > 4 * _DEEP:
            raise UnsupportedSchemaError(f"no end of recursion at {path}")
        if schema is True:
            return {"type": "null"}
        folded: JsonObject = dict(schema)
        if (reference := folded.pop("$ref", None)) is not None:
            folded = {**self._referenced(reference), **folded}
            return self._resolved(folded, path, depth + 1)
        for choice in ("anyOf", "oneOf"):
            if branches := folded.pop(choice, None):
                return self._resolved(_merged(folded, _branch(branches, depth)), path, depth + 1)
        if parts := folded.pop("allOf", None):
            for part in parts:
                folded = _merged(folded, self._resolved(part, path, depth + 1))
        return folded

    def _referenced(self, reference: str) -> JsonObject:
        target: Json = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        return dict(target)

    def _object(self, schema: JsonObject, path: str, depth: int) -> JsonObject:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        names = [name for name in properties if depth < _DEEP or name in required]
        names += [name for name in required if name not in properties]
        rest = schema.get("additionalProperties", True)
        return {
            name: self.make(properties.get(name, rest), f"{path}.{name}", depth + 1)
            for name in names
        }

    def _array(self, schema: JsonObject, path: str, depth: int) -> list[Json]:
        fixed = schema.get("prefixItems", [])
        least = max(schema.get("minItems", 0), len(fixed), 1 if depth < _DEEP else 0)
        count = min(least, schema.get("maxItems", least))
        schemas = [*fixed, *[schema.get("items", True)] * count][:count]
        return [self.make(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(schemas)]

    def _integer(self, schema: JsonObject, path: str) -> int:
        low, high = _bounds(schema, step=1)
        first, last = math.ceil(low), math.floor(high)
        unit = schema.get("multipleOf", 1)
        return int(_multiple(first, last, unit, self._draw(path)))

    def _number(self, schema: JsonObject, path: str) -> float:
        low, high = _bounds(schema, step=0)
        if "multipleOf" in schema:
            return _multiple(low, high, schema["multipleOf"], self._draw(path))
        exact = low + (high - low) * (0.05 + 0.9 * self._draw(path))
        rounded = round(exact, 2)
        return rounded if low < rounded < high else exact

    def _string(self, schema: JsonObject, path: str) -> str:
        if "format" in schema:
            return _FORMATS.get(schema["format"], "stub")
        text = f"Stub answer {self._key[:8]} for {path.removeprefix('$.')}."
        text = text.ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength", len(text))]


def _type_of(schema: JsonObject, depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        return str(_branch(declared, depth))
    if declared is None and "properties" in schema:
        return "object"
    return str(declared or "string")


def _branch(branches: list[Json], depth: int) -> Json:
    """The first branch that is not null; near the end of recursion null when there is one."""
    nulls = [branch for branch in branches if branch in ("null", {"type": "null"})]
    others = [branch for branch in branches if branch not in nulls]
    preferred = [*nulls, *others] if depth >= _DEEP else [*others, *nulls]
    return preferred[0]


def _merged(one: JsonObject, other: JsonObject) -> JsonObject:
    both: JsonObject = {**one, **other}
    both["properties"] = {**one.get("properties", {}), **other.get("properties", {})}
    both["required"] = [*one.get("required", []), *other.get("required", [])]
    return {name: value for name, value in both.items() if value or name in one or name in other}


def _bounds(schema: JsonObject, *, step: int) -> tuple[float, float]:
    """Least and greatest value; ``step`` is what an exclusive bound moves an integer by."""
    lows = [schema[n] + d for n, d in (("minimum", 0), ("exclusiveMinimum", step)) if n in schema]
    highs = [schema[n] - d for n, d in (("maximum", 0), ("exclusiveMaximum", step)) if n in schema]
    low = max(lows, default=None)
    high = min(highs, default=None)
    if low is None:
        low = 0 if high is None or high > 0 else high - 100
    return low, low + 100 if high is None else high


def _multiple(low: float, high: float, unit: float, fraction: float) -> float:
    first, last = math.ceil(low / unit), math.floor(high / unit)
    return (first + int(fraction * (last - first + 1))) * unit
