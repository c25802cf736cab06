"""JSON Schema (Draft 2020-12) for answers: our own shape, or the caller's `output_schema`.

No reference is ever fetched: a `$ref` leads inside the schema or nowhere.
"""

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

Schema = Mapping[str, Any]


def answer_problem(answer: Any, schema: Schema) -> str | None:
    """Return the most telling way in which `answer` breaks `schema`, or None when it fits.

    The text repeats no words of the answer.

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
    return None if error is None else f"{_place(error, schema)}: {_rule(error)}"


def _rule(error: ValidationError) -> str:
    """Say which rule is broken, in the schema's words; of the answer only a number is shown."""
    if error.validator == "required" or isinstance(error.instance, int | float | None):
        return error.message
    if error.validator == "type":
        return f"is not of type {error.validator_value!r}"
    return f"breaks the rule {error.validator!r}"


def _place(error: ValidationError, schema: Schema) -> str:
    """Return where in the answer, with `*` for names that are not the schema's own."""
    named = json.dumps(schema, default=str)
    path = [
        f"[{part}]" if isinstance(part, int) else f".{part}" if json.dumps(part) in named else ".*"
        for part in error.absolute_path
    ]
    return "".join(["$", *path])
