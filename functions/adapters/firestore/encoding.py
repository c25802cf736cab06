"""Plain values to Firestore's messages and back, on the protobuf classes themselves.

The generated wrappers (proto-plus) and the library's `encode_value` cost about twice the CPU for
the same bytes; their `pb()` gives the classes underneath. Values must be normalized before
(`functions.adapters.values`), so that everything that cannot be stored has been refused.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.cloud.firestore_v1.types import Value as _WrappedValue
from google.protobuf.struct_pb2 import NULL_VALUE
from google.protobuf.timestamp_pb2 import Timestamp

Value = _WrappedValue.pb()


def encode_time(value: datetime) -> Timestamp:
    """Return a timestamp, with the nanoseconds of a time that was read from the server."""
    if isinstance(value, DatetimeWithNanoseconds):
        precise: Timestamp = value.timestamp_pb()  # type: ignore[no-untyped-call]
        return precise
    timestamp = Timestamp()
    timestamp.FromDatetime(value)
    return timestamp


def decode_time(timestamp: Timestamp) -> datetime:
    """Return aware UTC; a subclass of `datetime` only when microseconds cannot hold the time."""
    if timestamp.nanos % 1000:
        precise: datetime = DatetimeWithNanoseconds.from_timestamp_pb(timestamp)  # type: ignore[no-untyped-call]
        return precise
    return timestamp.ToDatetime(tzinfo=UTC)


def encode_value(value: Any) -> Any:
    """Return the message of one normalized value."""
    message = Value()
    _fill(message, value)
    return message


def encode_fields(target: Any, fields: Mapping[str, Any]) -> None:
    """Write normalized fields into a message's map of fields."""
    for name, value in fields.items():
        _fill(target[name], value)


def decode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a message's map of fields."""
    return {name: _decode(value) for name, value in fields.items()}


def _fill(message: Any, value: Any) -> None:
    match value:
        case None:
            message.null_value = NULL_VALUE
        case bool():
            message.boolean_value = value
        case int():
            message.integer_value = value
        case str():
            message.string_value = value
        case float():
            message.double_value = value
        case datetime():
            message.timestamp_value.CopyFrom(encode_time(value))
        case bytes():
            message.bytes_value = value
        case dict():
            message.map_value.SetInParent()  # an empty map is a value too
            encode_fields(message.map_value.fields, value)
        case list():
            _fill_array(message, value)
        case _:
            raise AssertionError(f"not normalized: {type(value).__name__}")


def _fill_array(message: Any, items: list[Any]) -> None:
    message.array_value.SetInParent()
    for item in items:
        _fill(message.array_value.values.add(), item)


def _decode(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    match kind:
        case "null_value":
            return None
        case "timestamp_value":
            return decode_time(value.timestamp_value)
        case "map_value":
            return decode_fields(value.map_value.fields)
        case "array_value":
            return [_decode(item) for item in value.array_value.values]
        case None:
            raise AssertionError("a value without a type")
    return getattr(value, kind)
