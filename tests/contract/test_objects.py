"""What every bucket promises: objects are created once, described exactly, and never replaced."""

import asyncio

import pytest

from functions.core.errors import ObjectMissing
from functions.core.ports import Objects, StoredObject

NAME = "outputs/tenant/2026-11-29T12/0123abcd/0.json"


async def create(
    objects: Objects, data: bytes, name: str = NAME, **metadata: str
) -> StoredObject | None:
    """Create an object of JSON."""
    return await objects.create(name, data, content_type="application/json", metadata=metadata)


async def test_an_object_is_described_as_it_was_created(objects: Objects) -> None:
    """Create and stat agree on name, generation, size and metadata; read gives the bytes."""
    created = await create(objects, b'{"x": 1}', sha256="ab", attempt="3", note="grün")
    assert created is not None
    assert (created.name, created.size) == (NAME, 8)
    assert created.metadata == {"sha256": "ab", "attempt": "3", "note": "grün"}
    assert created.generation > 0
    assert await objects.stat(NAME) == created
    assert await objects.read(NAME) == b'{"x": 1}'
    assert await objects.read(NAME, created.generation) == b'{"x": 1}'


async def test_an_object_is_never_replaced(objects: Objects) -> None:
    """A second create returns None and leaves bytes, metadata and generation alone."""
    first = await create(objects, b"first", writer="1")
    assert await create(objects, b"second", writer="2") is None
    assert await objects.stat(NAME) == first
    assert await objects.read(NAME) == b"first"


async def test_racing_creates_have_one_winner(objects: Objects) -> None:
    """Of 20 concurrent creates one wins, and its bytes and generation are what is stored."""
    made = await asyncio.gather(*(create(objects, b"%d" % n, n=str(n)) for n in range(20)))
    winners = [(n, stored) for n, stored in enumerate(made) if stored is not None]
    assert len(winners) == 1
    [(n, stored)] = winners
    assert await objects.stat(NAME) == stored
    assert await objects.read(NAME) == b"%d" % n


async def test_generations_tell_objects_apart(objects: Objects) -> None:
    """A generation that is not the object's is missing, even though the name exists."""
    created = await create(objects, b"x")
    assert created is not None
    with pytest.raises(ObjectMissing):
        await objects.read(NAME, created.generation + 1)


async def test_what_is_not_there_is_missing(objects: Objects) -> None:
    """Stat returns None and read raises ObjectMissing for a name that was never created."""
    await create(objects, b"x")
    assert await objects.stat(NAME + "x") is None
    with pytest.raises(ObjectMissing):
        await objects.read(NAME + "x")


@pytest.mark.parametrize("name", ["a b/ü#?%2F&=.json", "inputs/t/" + "0" * 64])
async def test_names_are_taken_literally(objects: Objects, name: str) -> None:
    """A name with characters that mean something in addresses is one object."""
    created = await create(objects, b"x", name)
    assert created is not None
    assert created.name == name
    assert await objects.read(name) == b"x"


async def test_an_empty_object_exists(objects: Objects) -> None:
    """An object without bytes and metadata is an object."""
    created = await create(objects, b"")
    assert created is not None
    assert (created.size, created.metadata) == (0, {})
    assert await objects.read(NAME) == b""


async def test_a_large_object_is_created_once_too(objects: Objects) -> None:
    """The largest object allowed keeps the precondition; a larger one is refused."""
    data = bytes(8 * 1024 * 1024)
    assert await create(objects, data) is not None
    assert await create(objects, data) is None
    with pytest.raises(ValueError, match="over 8 MiB"):
        await create(objects, data + b"x", NAME + "x")
    assert await objects.stat(NAME + "x") is None


async def test_the_uri_names_bucket_and_object(objects: Objects, project: str) -> None:
    """The URI is `gs://bucket/name`."""
    assert objects.uri(NAME) == f"gs://{project}/{NAME}"


async def test_a_listing_shows_every_object_under_a_prefix(objects: Objects) -> None:
    """All pages together hold the objects of the prefix, in order, each as it was created."""
    made = [
        await create(objects, b"x", f"outputs/t/w/{n:02}.json", sha256=str(n)) for n in range(7)
    ]
    await create(objects, b"y", "outputs/t/x/0.json")
    found: list[StoredObject] = []
    page = None
    while True:
        shown = await objects.list_page("outputs/t/w/", page=page)
        found += shown.objects
        page = shown.next_page
        if page is None:
            break
    assert found == made


async def test_an_empty_listing_is_empty(objects: Objects) -> None:
    """A prefix without objects lists nothing."""
    listing = await objects.list_page("nothing/here/")
    assert (listing.objects, listing.next_page) == ((), None)


async def test_a_delete_names_its_generation(objects: Objects) -> None:
    """Another generation is left alone; the right one goes, and only once."""
    created = await create(objects, b"x")
    assert created is not None
    assert not await objects.delete(NAME, created.generation + 1)
    assert await objects.stat(NAME) == created
    assert await objects.delete(NAME, created.generation)
    assert await objects.stat(NAME) is None
    assert not await objects.delete(NAME, created.generation)
