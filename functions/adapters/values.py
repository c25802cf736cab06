"""What a document may hold, and how large an object may be: checked before anything is sent.

The real adapters and those in memory use it, so a value that one refuses is refused by the other in
the same words, and a wrong document is a `ValueError` at once instead of an error of the server.
Source of the rules: Firestore's documentation, "Quotas and limits" and "Supported data types".
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from functions.core.ports import Create, Query, Sentinel, Update, Write

DOCUMENT_LIMIT_BYTES = 1024 * 1024
OPERATORS = frozenset({"==", "<=", "<", ">=", ">", "array_contains"})
OBJECT_LIMIT_BYTES = 8 * 1024 * 1024  # above it the client library uploads in several requests
_DEEPEST_LEVEL = 20
_RESERVED = re.compile(r"__.*__")


def normalize_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of `fields` as the ledger gives them back; sentinels stay at the top.

    Tuples become lists, `StrEnum` members plain strings, times UTC.

    Raises:
        ValueError: a value that a document cannot hold; the text names the field.
    """
    return {
        _name(name, name): value if isinstance(value, Sentinel) else _normalize(value, name, 1)
        for name, value in fields.items()
    }


def normalize_value(value: Any, where: str) -> Any:
    """Return one value as the ledger gives it back.

    Raises:
        ValueError: as for `normalize_document`; `where` names the value.
    """
    return _normalize(value, where, 1)


def check_writes(writes: Sequence[Write]) -> None:
    """Refuse what no ledger can apply as one commit.

    Raises:
        ValueError: no write at all, a path that is no document's, two writes of one document, an
            update without fields, a time without zone, or a `DELETE` in a new document.
    """
    if not writes:
        raise ValueError("a commit needs a write: without one the server tells no time")
    paths = [check_document_path(write.path) for write in writes]
    if len(set(paths)) != len(paths):
        raise ValueError(f"a commit writes a document once only: {sorted(paths)}")
    for write in writes:
        _check_write(write)


def check_document_path(path: str) -> str:
    """Return `path` when it names a document: collection and ID in turn, none empty or reserved.

    Raises:
        ValueError: it does not.
    """
    parts = path.split("/")
    if len(parts) % 2 or any(not _is_id(part) for part in parts):
        raise ValueError(f"not a document's path: {path!r}")
    return path


def check_query(query: Query) -> None:
    """Refuse what Firestore cannot answer from one index, or what would need a guess.

    Raises:
        ValueError: an unknown operator, a range over another field than the order's, a descending
            order of document IDs alone, or a limit below 1.
    """
    unknown = {operator for _, operator, _ in query.where} - OPERATORS
    if unknown:
        raise ValueError(f"unknown operators: {sorted(unknown)}")
    ranges = {name for name, operator, _ in query.where if operator[0] in "<>"}
    if query.order_by is None and ranges:
        raise ValueError(f"a range over {sorted(ranges)} needs `order_by` that field")
    if ranges - {query.order_by}:
        raise ValueError(f"a range over {sorted(ranges)} cannot be ordered by {query.order_by!r}")
    if query.descending and query.order_by is None:
        raise ValueError("document IDs alone cannot be read in descending order")
    if query.limit is not None and query.limit < 1:
        raise ValueError(f"limit {query.limit} is not positive")


def summed_field(query: Query) -> str:
    """Return the field whose sum a query is for: the one that it is ordered by.

    Raises:
        ValueError: there is none, or the query is one that Firestore would refuse.
    """
    check_query(query)
    if query.order_by is None:
        raise ValueError("a sum needs `order_by` its field")
    return query.order_by


def size_bytes(value: Any) -> int:
    """Return roughly what Firestore counts for a normalized value (no index entries)."""
    if isinstance(value, str):
        return len(value.encode()) + 1
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(size_bytes(name) + size_bytes(item) for name, item in value.items())
    if isinstance(value, list):
        return sum(size_bytes(item) for item in value)
    return 1 if value is None or isinstance(value, bool) else 8


def check_size(path: str, data: Mapping[str, Any]) -> None:
    """Refuse a document over 1 MiB.

    Raises:
        ValueError: it is larger.
    """
    size = size_bytes(dict(data)) + size_bytes(path) + 32
    if size > DOCUMENT_LIMIT_BYTES:
        raise ValueError(f"{path}: a document of about {size} bytes is over 1 MiB")


def check_object_size(name: str, data: bytes) -> None:
    """Refuse an object that would not be created by one request.

    Raises:
        ValueError: it is over 8 MiB.
    """
    if len(data) > OBJECT_LIMIT_BYTES:
        raise ValueError(f"{name}: an object of {len(data)} bytes is over 8 MiB")


def _check_write(write: Write) -> None:
    match write:
        case Create(data=data) if any(value is Sentinel.DELETE for value in data.values()):
            raise ValueError(f"{write.path}: a new document has no field to delete")
        case Update(fields=fields) if not fields:
            raise ValueError(f"{write.path}: an update must name a field")
        case Update(if_updated_at=datetime(tzinfo=None)):
            raise ValueError(f"{write.path}: `if_updated_at` has no time zone")


def _is_id(part: str) -> bool:
    return part not in {"", ".", ".."} and not _RESERVED.fullmatch(part)


def _normalize(value: Any, where: str, level: int) -> Any:
    if value is None or isinstance(value, (bool, float, bytes)):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        return _integer(value, where)
    if isinstance(value, datetime):
        return _time(value, where)
    if level > _DEEPEST_LEVEL:
        raise ValueError(f"{where}: nested deeper than {_DEEPEST_LEVEL} levels")
    if isinstance(value, Mapping):
        return {_name(k, where): _normalize(v, f"{where}.{k}", level + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_item(item, f"{where}[{i}]", level + 1) for i, item in enumerate(value)]
    raise ValueError(f"{where}: a document cannot hold {type(value).__name__}")


def _item(value: Any, where: str, level: int) -> Any:
    if isinstance(value, (list, tuple)):
        raise ValueError(f"{where}: an array directly in an array")
    return _normalize(value, where, level)


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name or _RESERVED.fullmatch(name):
        raise ValueError(f"{where}: {name!r} cannot name a field")
    return _text(name, where)


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise ValueError(f"{where}: text that is not valid Unicode") from exc
    return value.value if isinstance(value, StrEnum) else value


def _integer(value: int, where: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{where}: an integer beyond 64 bits")
    return int(value)


def _time(value: datetime, where: str) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"{where}: a time without a time zone")
    return value if value.tzinfo is UTC else value.astimezone(UTC)
