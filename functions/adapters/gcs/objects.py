"""The bucket on Cloud Storage: create-only uploads, certain answers or none.

    200                                  what was asked for
    404, but not for the bucket          there is no such object
    412                                  another object, or another generation, is there
    everything else, and no answer       ObjectsUnavailable: 403 never means missing

A cancelled upload may still create the object. That is safe, because nothing is ever replaced and
the object's name says which answer it holds.
Source: Cloud Storage JSON API, "Uploads and downloads" and "Request preconditions".
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from functions.adapters.gcs.connection import Answer, Connection
from functions.adapters.values import check_object_size
from functions.core.errors import ObjectMissing, ObjectsUnavailable
from functions.core.ports import ObjectPage, StoredObject

_OK, _NO_CONTENT, _NOT_FOUND, _PRECONDITION_FAILED = 200, 204, 404, 412
_PAGE_SIZE = 1000
_LIST_FIELDS = "items(name,generation,size,metadata),nextPageToken"


class GcsObjects:
    """An `Objects` on a Cloud Storage bucket. Every call ends within `timeout_seconds`."""

    def __init__(
        self, bucket: str, *, emulator_host: str | None = None, timeout_seconds: float = 10.0
    ) -> None:
        self._bucket = bucket
        self._connection = Connection(bucket, emulator_host, timeout_seconds)

    def uri(self, name: str) -> str:
        """Return the public name of an object, `gs://bucket/name`."""
        return f"gs://{self._bucket}/{name}"

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Create an object under `ifGenerationMatch=0`; None when one is there already.

        Raises:
            ObjectsUnavailable: no certain answer: the object may or may not have been created.
            ValueError: more than 8 MiB, which is too much for one request.
        """
        check_object_size(name, data)
        boundary = secrets.token_hex(16)
        answer = await self._connection.upload(
            _multipart(boundary, _description(name, data, metadata), data, content_type),
            f"multipart/related; boundary={boundary}",
            {"uploadType": "multipart", "ifGenerationMatch": 0},
        )
        if answer.status == _PRECONDITION_FAILED:
            return None
        return _stored(_json(answer))

    async def stat(self, name: str) -> StoredObject | None:
        """Return the object's description, or None when it certainly does not exist.

        Raises:
            ObjectsUnavailable: no certain answer; without permission to list, a missing object
                answers 403, which is not certain.
        """
        answer = await self._connection.about("GET", name, {"alt": "json"})
        return None if _is_missing(answer) else _stored(_json(answer))

    async def read(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectMissing: the object, or that generation of it, does not exist.
            ObjectsUnavailable: no certain answer.
        """
        chosen = {} if generation is None else {"generation": generation}
        answer = await self._connection.about("GET", name, {"alt": "media", **chosen})
        if _is_missing(answer):
            raise ObjectMissing(f"{self.uri(name)}#{generation or 'live'}")
        return _body(answer)

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        """Return the objects whose names begin with `prefix`, at most 1,000 a page.

        Raises:
            ObjectsUnavailable: no certain answer, a missing permission among them.
        """
        query: dict[str, str | int] = {"prefix": prefix, "maxResults": _PAGE_SIZE}
        query["fields"] = _LIST_FIELDS
        if page is not None:
            query["pageToken"] = page
        answer = await self._connection.list(query)
        found = _json(answer)
        objects = tuple(_stored(item) for item in found.get("items", ()))
        return ObjectPage(objects=objects, next_page=found.get("nextPageToken") or None)

    async def delete(self, name: str, generation: int) -> bool:
        """Delete one generation of an object; False when it is not there any more.

        The generation is named twice: to delete that one only, and only while it is the live one.

        Raises:
            ObjectsUnavailable: no certain answer: it may or may not have been deleted.
        """
        stored = await self.stat(name)
        if stored is None or stored.generation != generation:
            return False
        chosen = {"generation": generation, "ifGenerationMatch": generation}
        answer = await self._connection.about("DELETE", name, chosen)
        if _is_missing(answer) or answer.status == _PRECONDITION_FAILED:
            return False
        _body(answer)
        return True

    async def aclose(self) -> None:
        """Close the connections; calls in flight must have ended."""
        await self._connection.aclose()


def _description(name: str, data: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return the object's description; by its digest the server refuses damaged bytes."""
    md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
    return json.dumps({"name": name, "metadata": dict(metadata), "md5Hash": md5}).encode()


def _multipart(boundary: str, description: bytes, data: bytes, content_type: str) -> bytes:
    """Return an upload's body; the boundary is random, so it stands in neither part."""
    return b"".join(
        (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode(),
            description,
            f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\n\r\n".encode(),
            data,
            f"\r\n--{boundary}--\r\n".encode(),
        )
    )


def _is_missing(answer: Answer) -> bool:
    """Whether the object is missing; a missing bucket, also 404, says nothing about an object."""
    return answer.status == _NOT_FOUND and b"bucket does not exist" not in answer.body


def _body(answer: Answer) -> bytes:
    """Return the body of a success.

    Raises:
        ObjectsUnavailable: it is none.
    """
    if answer.status not in (_OK, _NO_CONTENT):
        text = answer.body[:300].decode("utf-8", "replace")
        raise ObjectsUnavailable(f"Cloud Storage: HTTP {answer.status}: {text}")
    return answer.body


def _json(answer: Answer) -> dict[str, Any]:
    """Return the object in a success.

    Raises:
        ObjectsUnavailable: it is none, or something else than Cloud Storage has answered.
    """
    try:
        found = json.loads(_body(answer))
    except ValueError as exc:
        raise ObjectsUnavailable("Cloud Storage: an answer that is not JSON") from exc
    if not isinstance(found, dict):
        raise ObjectsUnavailable("Cloud Storage: an answer that is no JSON object")
    return found


def _stored(found: Mapping[str, Any]) -> StoredObject:
    try:
        return StoredObject(
            name=found["name"],
            generation=int(found["generation"]),
            size=int(found["size"]),
            metadata=dict(found.get("metadata") or {}),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise ObjectsUnavailable("Cloud Storage: an answer that describes no object") from exc
