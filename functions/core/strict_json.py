"""Strict JSON: what a standard parser accepts and a document store can hold, nothing more.

Python's `json` lets through duplicate keys, NaN, numbers that overflow to infinity, lone surrogates
and any nesting. Each of these has turned into a wrong or unreadable record somewhere, so they are
refused here in what providers answer. Requests have a reader of their own, which tells the caller
each place that is wrong (`functions.web.strict_json`).
"""

import json
import math
import re
from typing import Any, NoReturn

MAX_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1  # beyond it a double, and canonical JSON, cannot tell neighbours apart
MAX_INTEGER_DIGITS = 400  # more digits overflow a double in any case

# Strings are skipped whole, closed or not. The quantifiers are possessive: a hostile text of quotes
# and backslashes must not make the scan quadratic.
_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|([\[{])|([\]}])', re.DOTALL)


class StrictJsonError(ValueError):
    """The text is no strict JSON; the message says which rule it breaks."""


def parse(text: str) -> Any:
    """Return the JSON value of `text`.

    Raises:
        StrictJsonError: not JSON, or JSON that breaks one of the rules above.
    """
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except json.JSONDecodeError as exc:
        raise StrictJsonError(f"not JSON: {exc.msg} at character {exc.pos}") from exc
    _check_text(value)
    return value


def unsafe_integer(value: Any) -> int | None:
    """Return an integer beyond ±(2^53 - 1) found anywhere in a parsed value, or None."""
    if isinstance(value, dict):
        return next((n for v in value.values() if (n := unsafe_integer(v)) is not None), None)
    if isinstance(value, list):
        return next((n for v in value if (n := unsafe_integer(v)) is not None), None)
    if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER:
        return value
    return None


def is_deeper_than(text: str, levels: int) -> bool:
    """Whether a JSON text nests deeper, told without parsing it."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        if depth > levels:
            return True
    return False


def _check_depth(text: str) -> None:
    if is_deeper_than(text, MAX_DEPTH):
        raise StrictJsonError(f"nested deeper than {MAX_DEPTH}")


def _check_text(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as exc:
        raise StrictJsonError("a lone surrogate in a string") from exc


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise StrictJsonError("a duplicate key in an object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise StrictJsonError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StrictJsonError("a number that overflows")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise StrictJsonError("a number that overflows")
    return int(text)
