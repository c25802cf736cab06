"""JSON Schema (Draft 2020-12) for answers: our own shape, or the caller's `output_schema`.

No reference is ever fetched: a `$ref` leads inside the schema or nowhere.
"""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

Schema = Mapping[str, Any]


def answer_problem(answer: Any, schema: Schema) -> str | None:
    """Return the most telling way in which `answer` breaks `schema`, or None when it fits.

    A caller's schema was checked when its job was accepted (`functions.web.output_schemas`). An
    integer may be written `1.0`, as the draft says; `true` is no number.
    """
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(answer))
    except Unresolvable as exc:
        return f"the schema's reference {exc.ref!r} leads nowhere"
    except RecursionError:
        return "the schema refers to itself without end"
    return None if error is None else f"{error.json_path}: {error.message}"
