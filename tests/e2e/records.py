"""The ledger and the bucket as they are on the servers, read past every line of the functions.

Firestore through the emulator's REST interface, objects through that of the bucket's server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

_OWNER = {"Authorization": "Bearer owner"}  # the emulator's word for: skip the rules


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document; the times are the server's own, as RFC 3339 text."""

    path: str
    data: Mapping[str, Any]
    create_time: str
    update_time: str


class LedgerReader:
    """Reads and prepares documents of one project."""

    def __init__(self, client: httpx.AsyncClient, host: str, project: str) -> None:
        self._client = client
        self._root = f"projects/{project}/databases/(default)/documents"
        self._url = f"http://{host}/v1/{self._root}"

    async def group(self, collection: str) -> list[Document]:
        """All documents in collections of that name, at whatever depth; of all without a name."""
        named = {"collectionId": collection} if collection else {}
        query = {"from": [{**named, "allDescendants": True}]}
        response = await self._client.post(
            f"{self._url}:runQuery", headers=_OWNER, json={"structuredQuery": query}
        )
        rows = response.raise_for_status().json()
        return [self._document(row["document"]) for row in rows if "document" in row]

    async def everything(self) -> list[Document]:
        """All documents of the database."""
        response = await self._client.post(
            f"{self._url}:runQuery",
            headers=_OWNER,
            json={"structuredQuery": {"from": [{"allDescendants": True}]}},
        )
        rows = response.raise_for_status().json()
        return [self._document(row["document"]) for row in rows if "document" in row]

    async def get(self, path: str) -> Document:
        """One document that exists."""
        response = await self._client.get(f"{self._url}/{path}", headers=_OWNER)
        return self._document(response.raise_for_status().json())

    async def create(self, collection: str, name: str, texts: Mapping[str, str]) -> None:
        """Create a document of text fields and the version that records carry."""
        fields: dict[str, Any] = {key: {"stringValue": text} for key, text in texts.items()}
        response = await self._client.post(
            f"{self._url}/{collection}",
            params={"documentId": name},
            headers=_OWNER,
            json={"fields": {"v": {"integerValue": "1"}, **fields}},
        )
        response.raise_for_status()

    def _document(self, raw: Mapping[str, Any]) -> Document:
        return Document(
            path=raw["name"].removeprefix(f"{self._root}/"),
            data=_fields(raw.get("fields", {})),
            create_time=raw["createTime"],
            update_time=raw["updateTime"],
        )


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in raw.items()}


def _value(raw: Mapping[str, Any]) -> Any:
    """The plain value of a typed one; timestamps stay text, which is enough to compare them."""
    [(kind, value)] = raw.items()
    if kind == "mapValue":
        return _fields(value.get("fields", {}))
    if kind == "arrayValue":
        return [_value(item) for item in value.get("values", [])]
    return int(value) if kind == "integerValue" else value


class BucketReader:
    """Reads the objects of one bucket."""

    def __init__(self, client: httpx.AsyncClient, storage: str, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._url = f"{storage}/storage/v1/b/{bucket}/o"

    async def names(self, prefix: str = "") -> set[str]:
        """The names of all objects below a prefix."""
        response = await self._client.get(self._url, params={"prefix": prefix})
        return {item["name"] for item in response.raise_for_status().json().get("items", [])}

    async def created(self, prefix: str = "") -> dict[str, str]:
        """When each object below a prefix was created, as RFC 3339 text."""
        response = await self._client.get(self._url, params={"prefix": prefix})
        items = response.raise_for_status().json().get("items", [])
        return {item["name"]: item["timeCreated"] for item in items}

    async def read(self, uri: str) -> bytes:
        """The bytes of the object that a `gs://` address names."""
        name = uri.removeprefix(f"gs://{self._bucket}/")
        response = await self._client.get(
            f"{self._url}/{quote(name, safe='')}", params={"alt": "media"}
        )
        return response.raise_for_status().content
