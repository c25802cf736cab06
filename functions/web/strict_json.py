"""Bytes to a JSON value, refusing whatever two JSON readers may understand differently.

400, because it is not interoperable JSON (RFC 8259, RFC 7493): bytes that are not UTF-8, a byte
order mark (RFC 8259 forbids senders to add one), NaN and Infinity, numbers that overflow a double,
duplicate keys, lone surrogates, nesting over `MAX_DEPTH`.
422, because it is JSON that breaks a rule: integers beyond ±(2^53 - 1), as RFC 8785 has no exact
form for them.

A number has one representation, whatever its spelling: `1`, `1.0` and `1e0` are the int 1, `-0.0`
is 0, and the rule on integers looks at the value. Doubles from 1e21 on are kept when written with
an exponent, as canonical JSON writes them. So the canonical form of every accepted value is
accepted again and means the same.
"""

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from functions.web import problems
from functions.web.faults import MAX_FAULTS, Fault, Path

MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1

_MAX_INTEGER_CHARACTERS = len(str(-MAX_INTEGER))
_EXPONENT_FROM = 1e21  # ECMA-262 Number::toString, which RFC 8785 uses, writes 1e21 as "1e+21"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONTAINERS = (dict, list)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_TOO_BIG = (
    f"must lie within ±{MAX_INTEGER}: beyond it JSON readers lose digits; send it as a string, or"
    " in a larger unit"
)


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Stands in the parsed tree for a number that cannot be used, until its place is known."""

    detail: str
    breaks_rule: bool = False


class _Repeating(dict[str, Any]):
    """An object that named a key more than once."""

    repeated: tuple[str, ...] = ()


def parse(data: bytes) -> Any:
    """Return the value of a JSON text; objects keep the order of their keys.

    Raises:
        Problem: 400 or 422 as the module says, with a pointer to each place, at most `MAX_FAULTS`.
    """
    text = _decoded(data)
    value = _loaded(text)
    malformed: list[Fault] = []
    unruly: list[Fault] = []
    for fault, breaks_rule in _inspect(value, _SURROGATE_ESCAPE.search(text) is not None):
        (unruly if breaks_rule else malformed).append(fault)
        if len(malformed) + len(unruly) == MAX_FAULTS:
            break
    if malformed:
        first = malformed[0]
        raise problems.not_json(f"{first.pointer or 'the body'} {first.detail}", malformed)
    if unruly:
        raise problems.unprocessable(unruly)
    return value


def _decoded(data: bytes) -> str:
    if data.startswith(_BYTE_ORDER_MARK):
        raise problems.not_json("the body starts with a byte order mark; send plain UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise problems.not_json(f"the body is not UTF-8 at byte {exc.start}") from exc


def _loaded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno} column {exc.colno}"
        raise problems.not_json(f"the body is not JSON: {exc.msg} at {where}") from exc
    except RecursionError as exc:
        # Hundreds of levels: the walk that knows the place comes too late for these.
        raise problems.not_json(f"the body {_TOO_DEEP}") from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    repeating = _Repeating(plain)
    counts = Counter(key for key, _ in pairs)
    repeating.repeated = tuple(key for key, count in counts.items() if count > 1)
    return repeating


def _integer(digits: str) -> int | _Unusable:
    # The length goes first: int() of a megabyte of digits is quadratic, or refused.
    if len(digits) > _MAX_INTEGER_CHARACTERS:
        return _Unusable(_TOO_BIG, breaks_rule=True)
    value = int(digits)
    return value if abs(value) <= MAX_INTEGER else _Unusable(_TOO_BIG, breaks_rule=True)


def _double(digits: str) -> int | float | _Unusable:
    value = float(digits)
    if math.isinf(value):
        return _Unusable("is a number that overflows a double")
    if abs(value) >= _EXPONENT_FROM or not value.is_integer():
        return value
    return int(value) if abs(value) <= MAX_INTEGER else _Unusable(_TOO_BIG, breaks_rule=True)


def _constant(name: str) -> _Unusable:
    return _Unusable(f"is {name}, which is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_double,
    parse_constant=_constant,
)


def _inspect(root: Any, may_hold_surrogates: bool) -> Iterator[tuple[Fault, bool]]:
    """Yield each fault of the parsed tree, and whether it breaks a rule (422) or JSON (400)."""
    suspects = (_Unusable, str) if may_hold_surrogates else (_Unusable,)
    yield from _leaf_faults((), root)
    waiting: deque[tuple[Path, Any]] = deque([((), root)])
    while waiting:
        path, container = waiting.popleft()
        if may_hold_surrogates or isinstance(container, _Repeating):
            yield from _key_faults(path, container)
        for key, child in _children(container):
            # A body holds up to half a million leaves: only suspects get a path and a closer look.
            if isinstance(child, suspects):
                yield from _leaf_faults((*path, key), child)
            elif isinstance(child, _CONTAINERS):
                if len(path) + 2 > MAX_DEPTH:
                    yield Fault(path=(*path, key), detail=_TOO_DEEP), False
                elif child:
                    waiting.append(((*path, key), child))


def _children(container: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(container, dict):
        return container.items()
    return enumerate(container) if isinstance(container, list) else ()


def _leaf_faults(path: Path, leaf: Any) -> Iterator[tuple[Fault, bool]]:
    if isinstance(leaf, _Unusable):
        yield Fault(path=path, detail=leaf.detail), leaf.breaks_rule
    elif isinstance(leaf, str) and _SURROGATE.search(leaf):
        yield Fault(path=path, detail="holds half of a surrogate pair"), False


def _key_faults(path: Path, container: Any) -> Iterator[tuple[Fault, bool]]:
    if isinstance(container, _Repeating):
        for key in container.repeated:
            yield Fault(path=(*path, key), detail="is given more than once"), False
    if isinstance(container, dict):
        for key in container:
            if _SURROGATE.search(key):
                yield (
                    Fault(path=(*path, key), detail="is a key with half of a surrogate pair"),
                    False,
                )
