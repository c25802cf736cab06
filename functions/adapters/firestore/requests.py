"""The messages that are sent: writes with preconditions, reads, and queries."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from google.cloud.firestore_v1.field_path import FieldPath
from google.cloud.firestore_v1.types import (
    BatchGetDocumentsRequest,
    CommitRequest,
    DocumentTransform,
    RunAggregationQueryRequest,
    RunQueryRequest,
    StructuredQuery,
)

from functions.adapters.firestore.encoding import encode_fields, encode_time, encode_value
from functions.adapters.values import normalize_document, normalize_value
from functions.core.ports import Create, Query, Sentinel, Write

_OPERATORS = {
    "==": StructuredQuery.FieldFilter.Operator.EQUAL,
    "<": StructuredQuery.FieldFilter.Operator.LESS_THAN,
    "<=": StructuredQuery.FieldFilter.Operator.LESS_THAN_OR_EQUAL,
    ">": StructuredQuery.FieldFilter.Operator.GREATER_THAN,
    ">=": StructuredQuery.FieldFilter.Operator.GREATER_THAN_OR_EQUAL,
    "array_contains": StructuredQuery.FieldFilter.Operator.ARRAY_CONTAINS,
}
_ID_FIELD = "__name__"
RESULT = "result"
_REQUEST_TIME = DocumentTransform.FieldTransform.ServerValue.REQUEST_TIME


def commit_request(database: str, writes: Sequence[Write]) -> Any:
    """Return one commit of all writes."""
    message = CommitRequest.pb()(database=database)
    for write in writes:
        _fill_write(message.writes.add(), f"{database}/documents", write)
    return message


def batch_get_request(database: str, paths: Iterable[str]) -> Any:
    """Return a read of documents."""
    return BatchGetDocumentsRequest.pb()(
        database=database, documents=[f"{database}/documents/{path}" for path in paths]
    )


def query_request(root: str, query: Query) -> Any:
    """Return the request for the documents of a query."""
    message = RunQueryRequest.pb()(parent=_parent(root, query))
    _fill_query(message.structured_query, root, query)
    return message


def count_request(root: str, query: Query) -> Any:
    """Return the request for the number of documents of a query."""
    message, aggregation = _aggregation(root, query)
    aggregation.count.SetInParent()
    return message


def total_request(root: str, query: Query, field: str) -> Any:
    """Return the request for the sum of a field of the documents of a query."""
    message, aggregation = _aggregation(root, query)
    aggregation.sum.field.field_path = _quoted(field)
    return message


def _aggregation(root: str, query: Query) -> tuple[Any, Any]:
    """Return a request and its one aggregation, whose result has the alias `RESULT`."""
    message = RunAggregationQueryRequest.pb()(parent=_parent(root, query))
    aggregated = message.structured_aggregation_query
    _fill_query(aggregated.structured_query, root, query)
    return message, aggregated.aggregations.add(alias=RESULT)


def _fill_write(message: Any, root: str, write: Write) -> None:
    message.update.name = f"{root}/{write.path}"
    if isinstance(write, Create):
        message.current_document.exists = False
        _fill_fields(message, write.data)
        return
    if write.if_updated_at is None:
        message.current_document.exists = True
    else:
        message.current_document.update_time.CopyFrom(encode_time(write.if_updated_at))
    _fill_mask(message, write.fields)
    _fill_fields(message, write.fields)


def _fill_mask(message: Any, fields: Mapping[str, Any]) -> None:
    """Name the fields to set or delete; a mask that is empty but there keeps all the others."""
    message.update_mask.SetInParent()
    message.update_mask.field_paths.extend(
        _quoted(name) for name, value in fields.items() if value is not Sentinel.SERVER_TIME
    )


def _fill_fields(message: Any, fields: Mapping[str, Any]) -> None:
    values = normalize_document(fields)
    plain = {name: value for name, value in values.items() if not isinstance(value, Sentinel)}
    encode_fields(message.update.fields, plain)
    for name, value in values.items():
        if value is Sentinel.SERVER_TIME:
            message.update_transforms.add(
                field_path=_quoted(name), set_to_server_value=_REQUEST_TIME
            )


@lru_cache(maxsize=256)  # the names of our fields, over and over
def _quoted(name: str) -> str:
    return FieldPath(name).to_api_repr()


def _parent(root: str, query: Query) -> str:
    return f"{root}/{query.collection}".rpartition("/")[0]


def _fill_query(message: Any, root: str, query: Query) -> None:
    message.from_.add(collection_id=query.collection.rpartition("/")[2])
    for field, operator, value in query.where:
        _fill_filter(message.where.composite_filter, field, operator, value)
    _fill_order(message, query)
    if query.limit is not None:
        message.limit.value = query.limit
    if query.after is not None:
        _fill_cursor(message.start_at, root, query, *query.after)


def _fill_filter(message: Any, field: str, operator: str, value: Any) -> None:
    message.op = StructuredQuery.CompositeFilter.Operator.AND
    clause = message.filters.add()
    if value is None and operator == "==":
        clause.unary_filter.field.field_path = _quoted(field)
        clause.unary_filter.op = StructuredQuery.UnaryFilter.Operator.IS_NULL
        return
    clause.field_filter.field.field_path = _quoted(field)
    clause.field_filter.op = _OPERATORS[operator]
    clause.field_filter.value.CopyFrom(encode_value(normalize_value(value, field)))


def _fill_order(message: Any, query: Query) -> None:
    direction = StructuredQuery.Direction
    chosen = direction.DESCENDING if query.descending else direction.ASCENDING
    names = [_ID_FIELD] if query.order_by is None else [_quoted(query.order_by), _ID_FIELD]
    for name in names:
        message.order_by.add(direction=chosen).field.field_path = name


def _fill_cursor(message: Any, root: str, query: Query, value: Any, document: str) -> None:
    if query.order_by is not None:
        message.values.add().CopyFrom(encode_value(normalize_value(value, query.order_by)))
    message.values.add(reference_value=f"{root}/{query.collection}/{document}")
    message.before = False  # start after the cursor
