"""The bucket in memory: create-only objects with generations and metadata."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from functions.adapters.values import check_object_size
from functions.core.errors import ObjectMissing
from functions.core.ports import ObjectPage, StoredObject


@dataclass(frozen=True, slots=True)
class _Object:
    stored: StoredObject
    data: bytes
    content_type: str


class MemoryObjects:
    """An `Objects` of one process. No write path replaces an object."""

    def __init__(self, bucket: str = "empanel-memory", *, page_size: int = 1000) -> None:
        self.page_size = page_size
        self._bucket = bucket
        self._objects: dict[str, _Object] = {}
        self._generation = 0

    def uri(self, name: str) -> str:
        """Return the public name of an object, `gs://bucket/name`."""
        return f"gs://{self._bucket}/{name}"

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Create an object; None when one is there already.

        Raises:
            ValueError: more than 8 MiB.
        """
        check_object_size(name, data)
        await asyncio.sleep(0)
        if name in self._objects:
            return None
        self._generation += 1
        stored = StoredObject(
            name=name, generation=self._generation, size=len(data), metadata=dict(metadata)
        )
        self._objects[name] = _Object(stored, bytes(data), content_type)
        return _copy(stored)

    async def stat(self, name: str) -> StoredObject | None:
        """Return the object's description, or None when it does not exist."""
        await asyncio.sleep(0)
        found = self._objects.get(name)
        return None if found is None else _copy(found.stored)

    async def read(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectMissing: the object, or that generation of it, does not exist.
        """
        await asyncio.sleep(0)
        found = self._objects.get(name)
        if found is None or generation not in (None, found.stored.generation):
            raise ObjectMissing(self.uri(name))
        return found.data

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        """Return the objects whose names begin with `prefix`, at most `page_size` a page."""
        await asyncio.sleep(0)
        names = [n for n in self.names() if n.startswith(prefix) and (page is None or n > page)]
        shown = names[: self.page_size]
        found = tuple(_copy(self._objects[name].stored) for name in shown)
        return ObjectPage(objects=found, next_page=shown[-1] if len(names) > len(shown) else None)

    async def delete(self, name: str, generation: int) -> bool:
        """Delete one generation of an object; False when it is not there any more."""
        await asyncio.sleep(0)
        found = self._objects.get(name)
        if found is None or found.stored.generation != generation:
            return False
        del self._objects[name]
        return True

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    def names(self) -> list[str]:
        """Return the names of all objects, sorted: for assertions over the whole bucket."""
        return sorted(self._objects)

    def lose(self, name: str) -> None:
        """Remove an object, as a lifecycle rule or an operator could."""
        del self._objects[name]


def _copy(stored: StoredObject) -> StoredObject:
    return StoredObject(
        name=stored.name,
        generation=stored.generation,
        size=stored.size,
        metadata=dict(stored.metadata),
    )
