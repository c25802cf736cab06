"""What pydantic found, as faults: a pointer, the rule, and the value when it is short enough."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from functions.web.faults import Fault, Path

RULE = "rule"  # the error type of rules that are written here and not in pydantic

_EACH = "*"
_MAX_SHOWN_CHARACTERS = 60
_MAX_SHOWN_NUMBER = 2**53
_TEXTS = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:,}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} item(s)",
    "too_long": "must have at most {max_length} items",
}
_WITHOUT_VALUE = ("missing", "too_short", "too_long", RULE)


def refuse(detail: str) -> PydanticCustomError:
    """Return the error for a field that breaks a rule of ours; to be raised in a validator."""
    return PydanticCustomError(RULE, "{detail}", {"detail": detail})


def refuse_parts(faults: Sequence[Fault]) -> ValidationError:
    """Return the error for a field with several faults inside; paths begin at the field."""
    lines = [
        InitErrorDetails(type=refuse(fault.detail), loc=fault.path, input=None) for fault in faults
    ]
    return ValidationError.from_exception_data("request", lines)


def faults_of(error: ValidationError, models: Mapping[Path, type[BaseModel]]) -> Iterator[Fault]:
    """Yield the faults in an error; `models` tells by path which names an unknown field misses.

    In the paths of `models`, `*` stands for every position of an array.
    """
    for line in error.errors(include_url=False):
        yield Fault(path=line["loc"], detail=_detail(line, models))


def _detail(line: ErrorDetails, models: Mapping[Path, type[BaseModel]]) -> str:
    if line["type"] == "extra_forbidden":
        return _unknown(line["loc"], models)
    template = _TEXTS.get(line["type"])
    text = template.format(**line.get("ctx", {})) if template else line["msg"]
    return text if line["type"] in _WITHOUT_VALUE else f"{text}, not {_shown(line['input'])}"


def _unknown(path: Path, models: Mapping[Path, type[BaseModel]]) -> str:
    *parent, name = path
    model = models[tuple(_EACH if isinstance(part, int) else part for part in parent)]
    kind = "parameter" if parent and parent[-1] == "parameters" else "field"
    return f"{_shown(name)} is not a known {kind}; known: {', '.join(model.model_fields)}"


def _shown(value: Any) -> str:
    """Return a short value as JSON, and of any other only what kind of value it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str) and len(value) > _MAX_SHOWN_CHARACTERS:
        return f"a string of {len(value)} characters"
    if isinstance(value, int | float) and abs(value) > _MAX_SHOWN_NUMBER:
        return "a number of another size"
    return json.dumps(value, ensure_ascii=False)
