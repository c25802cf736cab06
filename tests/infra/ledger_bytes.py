"""How many bytes Firestore bills for a document and its index entries.

Rules: Firestore, "Storage size calculations" (sizes of names, fields, documents and entries) and
"Index types", "Automatic indexing": two entries for a field, for those of a map as well, and one
for each member of an array; none for an exempted field.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tests.infra.indexes import Composite, Declared

OVERHEAD_BYTES = 32  # of a document, of a map, of an index entry
NAME_BYTES = 16  # beside the parts of a document's name
MOST_INDEXED_BYTES = 1500  # of a value; the rest of a longer one is not in the index
AUTOMATIC = 2  # one entry each way


def stored_bytes(path: str, data: Mapping[str, Any], declared: Declared) -> int:
    """Return the size of a document with all its index entries."""
    collection = path.split("/")[-2]
    head = _name(path) + _name(path.rpartition("/")[0].rpartition("/")[0]) + OVERHEAD_BYTES
    document = _name(path) + _map(data)
    automatic = sum(head + indexed for indexed in _automatic(collection, data, declared.exempt))
    composite = sum(
        head + values
        for index in declared.composites
        if index.collection == collection
        for values in _composite(index, data)
    )
    return document + automatic + composite


def _automatic(
    collection: str, data: Mapping[str, Any], exempt: frozenset[tuple[str, str]]
) -> Iterator[int]:
    """Yield for each entry of the indexes that every field has the size of name and value."""
    for name, value in data.items():
        if (collection, name) not in exempt:
            yield from _entries(name, value)


def _entries(name: str, value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        for inner, member in value.items():
            yield from _entries(f"{name}.{inner}", member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield _text(name) + _indexed(member)
    else:
        yield from [_text(name) + _indexed(value)] * AUTOMATIC


def _composite(index: Composite, data: Mapping[str, Any]) -> Iterator[int]:
    """Yield the size of the values of each entry; none when the document lacks a field."""
    if not all(name in data for name, _ in index.fields):
        return
    plain = sum(_indexed(data[name]) for name, mode in index.fields if mode != "CONTAINS")
    listed = [data[name] for name, mode in index.fields if mode == "CONTAINS"]
    if not listed:
        yield plain
    for members in listed:
        for member in members:
            yield plain + _indexed(member)


def _indexed(value: Any) -> int:
    return min(_size(value), MOST_INDEXED_BYTES)


def _size(value: Any) -> int:
    match value:
        case None | bool():
            return 1
        case str():
            return _text(value)
        case bytes():
            return len(value)
        case int() | float() | datetime():
            return 8
        case list() | tuple():
            return sum(map(_size, value))
        case Mapping():
            return _map(value)
        case _:
            raise TypeError(f"no size is known of {type(value).__name__}")


def _map(data: Mapping[str, Any]) -> int:
    return OVERHEAD_BYTES + sum(_text(name) + _size(value) for name, value in data.items())


def _name(path: str) -> int:
    return NAME_BYTES + sum(map(_text, path.split("/"))) if path else NAME_BYTES


def _text(text: str) -> int:
    return len(text.encode()) + 1
