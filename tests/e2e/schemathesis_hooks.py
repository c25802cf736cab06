"""How the maker of requests writes and reads NDJSON, and what it leaves undone."""

import json
from typing import Any

import hypothesis
import schemathesis

NDJSON = "application/x-ndjson"

# The maker leads Hypothesis towards requests that are accepted. Comparing the candidates took two
# fifths of all its time; the requests that follow the document's links are accepted anyhow.
hypothesis.target = lambda *_, **__: 0.0


@schemathesis.serializer(NDJSON)
def to_lines(_: Any, value: Any) -> bytes:
    """Return a value as a body; what is no array is one line."""
    items = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@schemathesis.deserializer(NDJSON)
def from_lines(_: Any, response: Any) -> Any:
    """Return an answer's lines as an array."""
    return [json.loads(line) for line in response.content.splitlines()]
