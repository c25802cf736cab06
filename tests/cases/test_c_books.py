"""C10, C12, D03: an audit that cannot see everything says so, and calls nothing missing.

| case | where else it is shown |
|---|---|
| C12 | a query without its index on the wire: `tests/contract/test_ledger_ambiguity.py` |
| D03 | every status of the bucket: `tests/contract/test_gcs_requests.py` |
"""

import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest

from functions.adapters.gcs import GcsObjects
from functions.adapters.memory import MemoryObjects
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable
from functions.core.jobs import Job, JobState
from functions.core.ports import ObjectPage, Query, StoredObject
from functions.reports import build_report
from functions.statuses import read_status
from functions.web.push import answer_reconcile
from tests.cases.bucket import Gate
from tests.cases.scenes import messages, total_sent
from tests.faults.world import TENANT, World, _application, request, submission
from tests.infra.indexes import read_declared, shape_of

WINDOW = f"windows/{TENANT}.2026-11-29T12"


async def audited(world: World) -> tuple[int, dict[str, Any]]:
    """Call `reconcile` as the scheduler does: the status, and the answer."""
    answer = await answer_reconcile(
        _application(world.reconciler), request(b"", query="mode=audit")
    )
    return answer.status_code, json.loads(bytes(answer.body))


def report(world: World) -> Mapping[str, Any]:
    """Return the window's report as the interface shows it."""
    view: Mapping[str, Any] = world.ledger.stored()[WINDOW]["view"]
    return view


async def ended(count: int, world: World | None = None) -> World:
    """Return a world whose jobs have succeeded and been told of."""
    world = world or World()
    for number in range(count):
        await world.submit(submission(question=f"q{number}", key=f"k{number}"))
    await world.finish()
    for path, data in world.ledger.stored().items():
        if path.startswith("notifications/"):
            data |= {"state": "delivered", "delivered": True}
            data.pop("next_at", None)
    return world


def damage(world: World, path: str, field: str, value: object = None) -> None:
    """Take a field out of a document, or set it to another value than any code of ours writes."""
    data = world.ledger.stored()[path]
    del data[field]
    if value is not None:
        data[field] = None if value == "null" else value


@pytest.mark.parametrize("value", [None, "null", {"x": 1}], ids=["absent", "null", "a map"])
@pytest.mark.parametrize("field", ["tenant", "window", "submitted_at", "state", "run", "seats"])
async def test_c10_a_job_that_lacks_a_field_is_counted_or_named(field: str, value: object) -> None:
    """No order and no filter leaves it out in silence: it is in the population, or it is named."""
    world = await ended(3)
    broken_job, *_ = world.jobs()
    damage(world, f"jobs/{broken_job}", field, value)
    status, answer = await audited(world)
    view = report(world)
    if value is None and field in ("state", "run"):  # what a first run has, unless it says more
        assert (view["population"], view["counts"]["succeeded"], view["malformed"]) == (3, 3, [])
        return
    if field in ("tenant", "window"):
        assert (status, answer["complete"]) == (503, False)
        assert answer["malformed"] == [f"jobs/{broken_job}"]
        assert view["population"] == 2
    else:
        assert view["population"] == sum(view["counts"].values()) == 3
        assert view["malformed"] == [f"jobs/{broken_job}"]
    assert {incident["kind"] for incident in world.incidents()} >= {"malformed_record"}
    assert not world.ledger.stored()[WINDOW]["sealed"]


@pytest.mark.parametrize("value", [None, "null"], ids=["absent", "null"])
@pytest.mark.parametrize("field", ["delivered", "tenant", "window"])
async def test_c10_a_notification_that_lacks_a_field_is_no_delivered_one(
    field: str, value: object
) -> None:
    """The query for undelivered ones cannot see it; the counts can, and the window stays open."""
    world = await ended(3)
    [path, *_] = [p for p in world.ledger.stored() if p.startswith("notifications/")]
    damage(world, path, field, value)
    world.clock.advance(7200.0)
    await audited(world)
    assert report(world)["malformed"] == [path]
    assert not world.ledger.stored()[WINDOW]["sealed"]


@pytest.mark.parametrize("value", [None, "null"], ids=["absent", "null"])
@pytest.mark.parametrize("field", ["sealed", "tenant", "window"])
async def test_c10_a_window_that_lacks_a_field_is_not_taken_for_sealed(
    field: str, value: object
) -> None:
    """An audit that never looked at it is not complete, and names it."""
    world = await ended(1)
    damage(world, WINDOW, field, value)
    status, answer = await audited(world)
    assert (status, answer["complete"]) == (503, False)
    assert WINDOW in json.dumps(answer)


@pytest.mark.parametrize("value", [None, "null"], ids=["absent", "null"])
async def test_c10_a_terminal_record_that_lacks_a_field_is_counted_as_malformed(
    value: object,
) -> None:
    """A run whose end cannot be read is in the population, and no success is made of it."""
    world = await ended(2)
    job, *_ = world.jobs()
    damage(world, f"jobs/{job}/terminals/1", "completed_at", value)
    await audited(world)
    view = report(world)
    assert view["population"] == 2
    assert view["malformed"] == [f"jobs/{job}/terminals/1"]


Call = Callable[..., Awaitable[Any]]
LEDGER_READS = ("get", "query", "count")
NO_INDEX = "400 The query requires an index. That index is currently building"
DENIED = "Cloud Storage: HTTP 403: denied on resource (or it may not exist)"


def failing(answer: Call, at: int, error: Exception, seen: list[int]) -> Call:
    """Return a call that fails at one of its turns, counted from 1; 0 fails never."""

    async def call(*args: Any, **options: Any) -> Any:
        seen.append(len(seen) + 1)
        if len(seen) == at:
            raise error
        return await answer(*args, **options)

    return call


async def with_gap() -> World:
    """Return a world after the hour: two jobs in order, one without its object, one orphan."""
    world = await ended(3)
    [name, *_] = world.objects.names()
    world.objects.lose(name)
    orphan = f"outputs/{TENANT}/2026-11-29T12/{'0' * 64}/0.json"
    await world.objects.create(orphan, b"{}", content_type="application/json", metadata={})
    world.clock.advance(7200.0)
    return world


@pytest.mark.parametrize(
    ("port", "name", "error"),
    [
        *(("ledger", name, LedgerUnavailable(NO_INDEX)) for name in LEDGER_READS),
        *(("objects", name, ObjectsUnavailable(DENIED)) for name in ("list_page", "create")),
    ],
)
async def test_c12_d03_whatever_an_audit_cannot_read_it_is_not_complete(
    port: str, name: str, error: Exception
) -> None:
    """Each read fails once, in turn: 503, `complete: false`, no seal, and the cause in `errors`."""
    world = await with_gap()
    target = getattr(world, port)
    answering = getattr(target, name)
    for at in itertools.count(1):
        seen: list[int] = []
        setattr(target, name, failing(answering, at, error, seen))
        status, answer = await audited(world)
        if len(seen) < at:
            break
        assert (status, answer["complete"]) == (503, False), f"{name} {at}"
        assert str(error) in json.dumps(answer), f"{name} {at}"
        assert not world.ledger.stored()[WINDOW]["sealed"]
    assert at > 1
    assert (status, answer["complete"]) == (200, True)
    assert [len(report(world)[kind]) for kind in ("missing_output", "orphan_outputs")] == [1, 1]


async def test_c12_a_missing_index_stops_no_audit_for_good() -> None:
    """Once the index is there, the next audit finds what the one before could not look at."""
    world = await with_gap()
    once = failing(world.ledger.query, 1, LedgerUnavailable(NO_INDEX), [])
    setattr(world.ledger, "query", once)  # noqa: B010 - mypy knows methods
    assert (await audited(world))[0] == 503
    status, _ = await audited(world)
    assert status == 200
    view = report(world)
    assert [len(view[kind]) for kind in ("missing_output", "orphan_outputs")] == [1, 1]


async def test_c12_a_repair_that_lacks_an_index_is_no_clean_repair() -> None:
    """`reconcile?mode=repair` answers 503, and the next one repairs."""
    world = World()
    await world.submit(submission())
    world.drop_messages()
    world.clock.advance(61.0)
    repair = partial(answer_reconcile, _application(world.reconciler))
    once = failing(world.ledger.query, 2, LedgerUnavailable(NO_INDEX), [])
    setattr(world.ledger, "query", once)  # noqa: B010 - mypy knows methods
    assert (await repair(request(b"", query="mode=repair"))).status_code == 503
    answer = await repair(request(b"", query="mode=repair"))
    assert answer.status_code == 200
    await world.finish()
    assert [job.state for job in world.jobs().values()] == [JobState.SUCCEEDED]


async def test_c12_every_query_of_repair_and_audit_has_its_index() -> None:
    """The deployment declares what they need; `tests/infra` holds all other queries against it."""
    world = await with_gap()
    declared, asked = read_declared(), list[Query]()

    def noted(answer: Call) -> Call:
        async def call(query: Query) -> Any:
            asked.append(query)
            return await answer(query)

        return call

    for name in ("query", "count"):
        setattr(world.ledger, name, noted(getattr(world.ledger, name)))
    await world.repair()
    await audited(world)
    assert asked
    assert not [
        str(shape_of(query)) for query in asked if declared.used_by(shape_of(query)) is None
    ]


class GuardedObjects(MemoryObjects):
    """A bucket whose permission can be taken away: then a real adapter meets a 403 each time."""

    def __init__(self, denied: GcsObjects) -> None:
        super().__init__("guarded")
        self.denied: GcsObjects | None = None
        self._real = denied

    def deny(self) -> None:
        """Take the permission away."""
        self.denied = self._real

    async def stat(self, name: str) -> StoredObject | None:
        stat = self.denied.stat if self.denied else super().stat
        return await stat(name)

    async def read(self, name: str, generation: int | None = None) -> bytes:
        read = self.denied.read if self.denied else super().read
        return await read(name, generation)

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        list_page = self.denied.list_page if self.denied else super().list_page
        return await list_page(prefix, page=page)

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        create = self.denied.create if self.denied else super().create
        return await create(name, data, content_type=content_type, metadata=metadata)


async def test_d03_a_bucket_that_denies_everything_is_not_an_empty_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """100 succeeded jobs and 403 to all: no missing output, no incident, nothing bought again."""
    async with Gate(refusal=403).open() as gate:
        real = GcsObjects("guarded", emulator_host=gate.url)
        objects = GuardedObjects(real)
        world = await ended(100, World(objects=objects))
        sent = total_sent(world)
        objects.deny()
        world.clock.advance(7200.0)
        status, answer = await audited(world)
        assert (status, answer["complete"]) == (503, False)
        view = report(world)
        assert (view["complete"], view["missing_output"], view["orphan_outputs"]) == (False, [], [])
        assert "403" in json.dumps(view["errors"])
        assert any(
            r.levelname == "ERROR" and "403" in (r.exc_text or str(r.exc_info))
            for r in caplog.records
        )
        await world.submit(submission(question="q7", key="again"))
        [message] = messages(world)
        assert not await world.deliver(message)
        assert (total_sent(world), world.incidents()) == (sent, [])
        with pytest.raises(ObjectsUnavailable, match="403"):
            await build_report(
                world.api.services, await read_status(world.api.services, first(world))
            )
        objects.denied = None
        while not await world.deliver(message):
            world.clock.advance(10.0)
        await world.finish()
        assert total_sent(world) == sent
        await audited(world)
        assert (await audited(world))[1]["complete"]
        assert world.incidents() == []
        await real.aclose()


def first(world: World) -> Job:
    """Return the first job."""
    return next(iter(world.jobs().values()))
