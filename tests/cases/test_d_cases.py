"""D05, D06, D08: what may delete an object, what creates it once, and how a result is handed out.

| case | where else it is shown |
|---|---|
| D06 | every promise of a bucket, ours and the emulator's: `tests/contract/test_objects.py` |
"""

import ast
import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import google.auth
import httpx
import pytest
from google.auth.credentials import Credentials
from google.auth.transport.requests import Request

import functions
from functions.adapters.gcs import GcsObjects, connection
from functions.core.errors import ObjectsUnavailable
from functions.core.jobs import SeatState
from infra.local.storage import create_bucket
from tests.cases.bucket import Gate
from tests.cases.scenes import messages, strike_next
from tests.cases.wire import shown
from tests.faults.invariants import broken
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, seat_of, submission

ROOT = Path(functions.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
NAME = "outputs/tenant/2026-11-29T12/0123abcd/0.json"


@pytest.fixture
async def gate(storage_url: str, project: str) -> AsyncIterator[Gate]:
    """A gate before the emulator's server, and an empty bucket behind it."""
    await create_bucket(storage_url, project, project)
    async with Gate(target=storage_url).open() as opened:
        yield opened


@pytest.fixture
async def objects(gate: Gate, project: str) -> AsyncIterator[GcsObjects]:
    """The product's own adapter, behind the gate."""
    made = GcsObjects(project, emulator_host=gate.url)
    yield made
    await made.aclose()


async def create(objects: GcsObjects, data: bytes) -> object:
    """Create the object; None when one is there."""
    return await objects.create(NAME, data, content_type="application/json", metadata={})


def deletes() -> Iterator[tuple[str, int]]:
    """Yield where the product asks the bucket to delete, and with how many arguments."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and called.endswith("objects.delete"):
                yield path.relative_to(ROOT).as_posix(), len(node.args)


def test_d05_only_a_purge_and_a_drill_delete_objects_and_always_by_generation() -> None:
    """No other module asks the bucket to delete; every call names a generation beside the name."""
    asked = list(deletes())
    assert {module for module, _ in asked} <= {"purging.py", "drill/site.py"}
    assert {arguments for _, arguments in asked} == {2}


async def test_d05_a_delete_says_which_generation_and_under_which_condition(
    objects: GcsObjects, gate: Gate
) -> None:
    """On the wire: `generation` and `ifGenerationMatch`, both that of the object itself."""
    created = await objects.create(NAME, b"{}", content_type="application/json", metadata={})
    assert created is not None
    assert not await objects.delete(NAME, created.generation + 1)
    assert gate.of("DELETE") == []
    assert await objects.delete(NAME, created.generation)
    [asked] = gate.of("DELETE")
    wanted = str(created.generation)
    assert (asked.query["generation"], asked.query["ifGenerationMatch"]) == (wanted, wanted)


@pytest.mark.parametrize("status", [400, 403, 412, 500, 503])
async def test_d05_a_late_upload_that_fails_deletes_nothing(
    objects: GcsObjects, gate: Gate, status: int
) -> None:
    """Bytes damaged on the way (400), or any other end: no DELETE, and generation 1 survives."""
    first = await create(objects, b'{"score": 1}')
    gate.refusal = status
    if status == 412:
        assert await create(objects, b'{"score": 2}') is None
    else:
        with pytest.raises(ObjectsUnavailable):
            await create(objects, b'{"score": 2}')
    gate.refusal = None
    assert gate.of("DELETE") == []
    assert await objects.stat(NAME) == first
    assert await objects.read(NAME) == b'{"score": 1}'


async def test_d05_a_late_writer_that_fails_leaves_the_first_generation() -> None:
    """After a late writer's upload breaks, the object is still the settled seat's."""
    world = World()
    job = await world.submit(submission())
    [message] = messages(world)
    strike_next(world, "evaluate: create object", Strike(fate=Fate.FREEZE, moment=Moment.BEFORE))
    await world.deliver(message)
    world.clock.advance(40.0)
    await world.deliver_all()
    await world.deliver(message)
    before = {name: await world.objects.read(name) for name in world.objects.names()}
    failing = Strike(fate=Fate.FAIL, moment=Moment.BEFORE)
    strike_next(world, "evaluate: create object", failing, times=5)
    await world.finish()
    assert {name: await world.objects.read(name) for name in world.objects.names()} == before
    assert seat_of(world, job).state is SeatState.SUCCEEDED
    assert broken(world) == {}


SIZES = {"empty": b"", "small": b'{"score": 1}', "the largest": bytes(8 * 1024 * 1024)}


@pytest.mark.parametrize("data", SIZES.values(), ids=SIZES.keys())
async def test_d06_the_emulator_creates_once_through_our_own_path(
    objects: GcsObjects, gate: Gate, data: bytes
) -> None:
    """The tests' bucket keeps the precondition that ours depends on: 200 and then 412."""
    first = await create(objects, data)
    assert first is not None
    assert await create(objects, b"another") is None
    assert [asked.status for asked in gate.of("POST")] == [200, 412]
    assert await objects.stat(NAME) == first
    assert await objects.read(NAME) == data


async def test_d06_of_twenty_at_once_one_creates(objects: GcsObjects, gate: Gate) -> None:
    """Also when they come together: one 200, nineteen 412."""
    made = await asyncio.gather(*(create(objects, b"%d" % number) for number in range(20)))
    assert sum(stored is not None for stored in made) == 1
    assert sorted(asked.status for asked in gate.of("POST")) == [200] + [412] * 19


async def test_d06_each_upload_says_that_nothing_may_be_there(
    objects: GcsObjects, gate: Gate
) -> None:
    """`ifGenerationMatch=0` stands in the query of every upload, whatever its size."""
    for data in SIZES.values():
        await create(objects, data)
    uploads = gate.of("POST")
    assert len(uploads) == len(SIZES)
    assert {asked.query["ifGenerationMatch"] for asked in uploads} == {"0"}
    assert all(asked.path.startswith("/upload/") for asked in uploads)


async def test_d06_a_bucket_that_ignores_the_condition_would_be_noticed(
    gate: Gate, storage_url: str, project: str
) -> None:
    """The self-test can fail: without the condition this server does overwrite."""
    url = f"{storage_url}/upload/storage/v1/b/{project}/o"
    async with httpx.AsyncClient(trust_env=False) as client:
        query = {"uploadType": "media", "name": NAME}
        statuses = [
            (await client.post(url, params=query, content=content)).status_code
            for content in (b"1", b"2")
        ]
    assert statuses == [200, 200]


class TokenOnly(Credentials):
    """What Cloud Run gives: a token, and no key that could sign."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = "of-the-service"

    def refresh(self, request: Request) -> None:
        """Keep the token."""


async def test_d08_results_are_read_with_a_token_that_cannot_sign(
    gate: Gate, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored and read back through the service, by credentials without `sign_bytes`."""
    monkeypatch.setattr(google.auth, "default", lambda scopes: (TokenOnly(), project))
    monkeypatch.setattr(connection, "GOOGLE_URL", gate.url)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    assert not hasattr(TokenOnly(), "sign_bytes")
    objects = GcsObjects(project)
    assert await create(objects, b'{"score": 1}') is not None
    assert await objects.read(NAME) == b'{"score": 1}'
    await objects.aclose()


async def test_d08_no_answer_of_ours_holds_a_link_that_must_be_signed() -> None:
    """The report carries the answers themselves; an output is named by its `gs://` address."""
    world = World()
    job = await world.submit(submission(["m0", "m1"]))
    await world.finish()
    everything = await shown(world, job)
    seats = everything["report"]["seats"]
    assert [seat["answer"]["score"] for seat in seats] == [seat["score"] for seat in seats]
    assert all(seat["output"]["uri"].startswith("gs://") for seat in seats)
    text = json.dumps(everything)
    assert "https://" not in text
    assert "Signature" not in text


def test_d08_nothing_asks_for_a_signature() -> None:
    """No code of ours signs an address, with a key or through IAM."""
    words = ("sign_bytes", "signBlob", "sign_blob", "generate_signed_url")
    found = [p.name for p in SOURCES if any(w in p.read_text(encoding="utf-8") for w in words)]
    assert found == []
