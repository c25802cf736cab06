"""Which documents a query finds, and in which order: Firestore's rules over plain dicts.

Values compare within their type only; types have a fixed order. Source: Firestore's documentation,
"Value type ordering".
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from functions.adapters.values import normalize_value
from functions.core.ports import Query

Documents = Mapping[str, Mapping[str, Any]]
Key = tuple[Any, ...]


def matching_paths(query: Query, documents: Documents) -> list[str]:
    """Return the paths of the documents that `query` finds, in its order."""
    where = [(field, op, sort_key(normalize_value(v, field))) for field, op, v in query.where]
    found = [
        path
        for path, data in documents.items()
        if path.rpartition("/")[0] == query.collection
        and (query.order_by is None or query.order_by in data)
        and all(_holds(data, *clause) for clause in where)
    ]
    found.sort(key=lambda path: _position(query, path, documents), reverse=query.descending)
    return _page(query, found, documents)


def sort_key(value: Any) -> Key:
    """Return a key that orders values as Firestore does: by type, then by value."""
    match value:
        case None:
            return (0,)
        case bool():
            return (1, value)
        case int() | float():
            return (2, value)
        case datetime():
            return (3, value)
        case str():
            return (4, value.encode())
        case bytes():
            return (5, value)
        case list():
            return (6, tuple(sort_key(item) for item in value))
    return (7, tuple(sorted((name, sort_key(item)) for name, item in value.items())))


def _page(query: Query, paths: list[str], documents: Documents) -> list[str]:
    if query.after is not None:
        value, document = query.after
        last = _cursor(query, value, document)
        paths = [p for p in paths if _is_past(query, _position(query, p, documents), last)]
    return paths[: query.limit]


def _is_past(query: Query, position: Key, last: Key) -> bool:
    return position < last if query.descending else position > last


def _position(query: Query, path: str, documents: Documents) -> Key:
    document = path.rpartition("/")[2]
    if query.order_by is None:
        return _cursor(query, None, document)
    return _cursor(query, documents[path][query.order_by], document)


def _cursor(query: Query, value: Any, document: str) -> Key:
    if query.order_by is None:
        return (document.encode(),)
    return (sort_key(normalize_value(value, query.order_by)), document.encode())


def _holds(data: Mapping[str, Any], field: str, operator: str, wanted: Key) -> bool:
    if field not in data:
        return False
    if operator == "array_contains":
        value = data[field]
        return isinstance(value, list) and wanted in map(sort_key, value)
    return _compares(sort_key(data[field]), operator, wanted)


def _compares(have: Key, operator: str, wanted: Key) -> bool:
    if have[0] != wanted[0]:
        return False
    match operator:
        case "==":
            return have == wanted
        case "<":
            return have < wanted
        case "<=":
            return have <= wanted
        case ">":
            return have > wanted
    return have >= wanted
