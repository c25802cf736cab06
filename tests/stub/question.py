"""What a request asks: its model and messages, the key that names it, and its label.

Two requests with equal model, messages and sampling parameters have the same key; the fields in
``NOT_PART_OF_THE_KEY`` do not change what a model would say, or are how the answer is delivered.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = Any  # a decoded JSON value
JsonObject = dict[str, Json]

NOT_PART_OF_THE_KEY = frozenset(
    {"metadata", "response_format", "service_tier", "store", "stream", "stream_options", "user"}
)

# The marker may sit in plain text, or as a field of JSON that was itself put into a JSON string.
_LABEL = re.compile(r'stub-key[\\"]*\s*:\s*[\\"]*([A-Za-z0-9](?:[A-Za-z0-9._/@-]*[A-Za-z0-9])?)')
_NUMERIC_SUFFIX = re.compile(r"(\d+)$")


class UnreadableError(ValueError):
    """The body is not a chat completion request; ``param`` names the field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request's body, read: ``key`` is 32 hex digits, ``label`` is None without a marker."""

    body: JsonObject
    key: str
    label: str | None
    model: str

    @property
    def label_number(self) -> int | None:
        """The number at the end of the label, ``item-15`` → 15."""
        suffix = _NUMERIC_SUFFIX.search(self.label or "")
        return int(suffix.group()) if suffix else None


def read_question(payload: bytes) -> Question:
    """Read a request body. Raises ``UnreadableError`` where the real API would answer 400."""
    body = _json_object(payload)
    model, messages = body.get("model"), body.get("messages")
    if not isinstance(model, str) or not model:
        raise UnreadableError("you must provide a model parameter", "model")
    if not isinstance(messages, list) or not messages:
        raise UnreadableError("messages must be a list with at least one message", "messages")
    if not all(isinstance(message, dict) for message in messages):
        raise UnreadableError("each message must be an object", "messages")
    if body.get("stream"):
        raise UnreadableError("this stub does not stream", "stream")
    return Question(body=body, key=_key(body), label=_label(messages), model=model)


def _json_object(payload: bytes) -> JsonObject:
    try:
        body = json.loads(payload)
    except ValueError as exc:
        raise UnreadableError(f"the body is not JSON: {exc}") from exc
    if not isinstance(body, dict):
        raise UnreadableError("the body is not a JSON object")
    return body


def _key(body: JsonObject) -> str:
    identity = {name: value for name, value in body.items() if name not in NOT_PART_OF_THE_KEY}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _label(messages: list[JsonObject]) -> str | None:
    for text in _user_texts(messages):
        if marker := _LABEL.search(text):
            return marker.group(1)
    return None


def _user_texts(messages: list[JsonObject]) -> Iterator[str]:
    """Texts of the user's messages: a string, or a list of parts with ``text``."""
    for message in messages:
        content = message.get("content")
        if message.get("role") != "user":
            continue
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (str(part["text"]) for part in content if _has_text(part))


def _has_text(part: object) -> bool:
    return isinstance(part, dict) and "text" in part
