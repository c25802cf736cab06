"""JSON Schema (Draft 2020-12) for answers: our own shape, or the caller's `output_schema`.

No reference is ever fetched: a `$ref` leads inside the schema or nowhere.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

Schema = Mapping[str, Any]


def schema_problem(schema: Schema) -> str | None:
    """Return why `schema` cannot describe an answer, or None when it can."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return f"{exc.json_path}: {exc.message}"
    for key, value in _texts(schema):
        if key in ("$ref", "$dynamicRef") and not value.startswith("#"):
            return f"{key} {value!r} leaves the schema"
        if key == "pattern" and not _compiles(value):
            return f"pattern {value!r} is no regular expression"
    return None


def answer_problem(answer: Any, schema: Schema) -> str | None:
    """Return the most telling way in which `answer` breaks `schema`, or None when it fits.

    `schema` must be one without a `schema_problem`.
    An integer may be written `1.0`, as the draft says; `true` is no number.
    """
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(answer))
    except Unresolvable as exc:
        return f"the schema's reference {exc.ref!r} leads nowhere"
    except RecursionError:
        return "the schema refers to itself without end"
    return None if error is None else f"{error.json_path}: {error.message}"


def _texts(node: Any) -> Iterator[tuple[str, str]]:
    """Yield every keyword with a text, and the patterns that name properties."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if isinstance(value, str):
                yield key, value
            if key == "patternProperties" and isinstance(value, Mapping):
                yield from (("pattern", name) for name in value)
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _texts(item)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
