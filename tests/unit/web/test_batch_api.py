"""`POST /v1/jobs:batch`: every line gets what it would get as a request of its own.

Cases G04, G05, G07, G17, B02 and C01 of public reports are tested here as lines of a batch.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import httpx
import pytest

from functions.core.budgets import Caps
from functions.core.errors import LedgerUnavailable
from functions.core.identities import job_id
from functions.core.ports import Create, Write
from functions.tenant_caps import TenantCaps
from functions.web import batches
from tests.faults.world import TENANT, TOPIC, World
from tests.unit.web.door import Door

Json = Any

PATH = "/v1/jobs:batch"
SLOW_SECONDS = 5.0
NDJSON = {"Content-Type": "application/x-ndjson"}


def job(question: Json, **changes: Json) -> Json:
    """A job's body: one seat, one question."""
    return {
        "facts": {"question": question},
        "rubric": {"instructions": "Score it."},
        "seats": [{"provider": "fake", "model": "m0"}],
        **changes,
    }


def body_of(*lines: Json) -> bytes:
    """A batch's body; bytes are lines as they are."""
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return b"\n".join(texts) + b"\n"


async def send(door: Door, *lines: Json, **headers: str) -> httpx.Response:
    """Send the lines, whatever comes of it."""
    return await door.call("POST", PATH, content=body_of(*lines), headers={**NDJSON, **headers})


async def answered(door: Door, *lines: Json, **headers: str) -> list[Json]:
    """The answers to the lines: one each, in order."""
    answer = await send(door, *lines, **headers)
    assert answer.status_code == 200, answer.text
    answers = [json.loads(line) for line in answer.content.splitlines()]
    assert [each["line"] for each in answers] == list(range(1, len(lines) + 1))
    return answers


def statuses(answers: Sequence[Json]) -> list[int]:
    return [answer["status"] for answer in answers]


BAD_LINES: dict[str, bytes] = {
    "blank": b"",
    "prose": b"yes please",
    "cut": b'{"facts": {"x": 1}',
    "two values": b"{} {}",
    "NaN": b'{"facts": {"x": NaN}}',
    "a duplicate key": b'{"facts": {}, "facts": {}}',
    "a lone surrogate": b'{"facts": {"x": "\\ud800"}}',
    "not UTF-8": b'{"facts": {"x": "\xff"}}',
    "too deep": b'{"facts": ' + b"[" * 100 + b"]" * 100 + b"}",
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps(job("bom")).encode(),
    "a large integer": b'{"facts": {"x": 9007199254740993}}',
    "null": b"null",
    "an array": b"[]",
    "empty": b"{}",
    "an unknown field": json.dumps(job("u", force=True)).encode(),
    "an unknown provider": json.dumps(
        job("p", seats=[{"provider": "nobody", "model": "m"}])
    ).encode(),
    "no seats": json.dumps(job("s", seats=[])).encode(),
    "a refused webhook": json.dumps(job("w", notify={"url": "https://10.0.0.1/"})).encode(),
    "large facts": json.dumps(job("x" * 530_000)).encode(),
    "a cap without a price": json.dumps(job("c", policy={"max_cost_usd": 1})).encode(),
}


async def test_a_bad_line_is_told_what_a_single_request_is_told() -> None:
    """Status and problem are the same to the letter; the good line beside each is accepted."""
    world = World()
    door = Door(world)
    for what, line in BAD_LINES.items():
        alone = await door.call(
            "POST", "/v1/jobs", content=line, headers={"Content-Type": "application/json"}
        )
        before, bad, after = await answered(door, job(f"before {what}"), line, job(f"after {what}"))
        # Only the list of what is known has one field more.
        told = json.loads(json.dumps(bad["problem"]).replace(", idempotency_key", ""))
        assert (bad["status"], told) == (alone.status_code, alone.json()), what
        assert alone.status_code in (400, 422), what
        assert statuses([before, after]) == [202, 202], what
    assert len(world.jobs()) == 2 * len(BAD_LINES)


async def test_a_good_line_is_told_what_a_single_request_is_told() -> None:
    """The same job, shown the same way, known by either door."""
    door = Door(World())
    [line] = await answered(door, job("one") | {"idempotency_key": "k"})
    assert line["status"] == 202
    alone = await door.call("POST", "/v1/jobs", json=job("one"), headers={"Idempotency-Key": "k"})
    assert alone.json() == line["job"]
    other = await door.call("POST", "/v1/jobs", json=job("two"))
    [known] = await answered(door, job("two"))
    assert known["job"] == other.json()


async def test_case_b02_every_seat_of_every_line_is_published() -> None:
    """A line that is told 202 has a message for each of its seats on the topic."""
    world = World()
    seats = [{"provider": "fake", "model": f"m{n}"} for n in range(3)]
    answers = await answered(Door(world), *(job(n, seats=seats) for n in range(40)))
    assert statuses(answers) == [202] * 40
    published = [(m.attributes["job"], m.attributes["seat"]) for m in world.topics.messages(TOPIC)]
    expected = [(a["job"]["id"], str(seat)) for a in answers for seat in range(3)]
    assert sorted(published) == sorted(expected)
    await world.finish()
    assert {job.state.value for job in world.jobs().values()} == {"succeeded"}


async def test_case_g04_lines_with_one_key_are_settled_in_their_order() -> None:
    """The first is accepted, the same again is known, another body under it conflicts."""
    world = World()
    first = job("a") | {"idempotency_key": "k"}
    other = job("b") | {"idempotency_key": "k"}
    answers = await answered(Door(world), first, other, first, job("b"), other, job("b"))
    assert statuses(answers) == [202, 422, 200, 202, 422, 200]
    for refused in (answers[1], answers[4]):
        assert refused["problem"]["type"] == "urn:empanel:problem:key-conflict"
        assert answers[0]["job"]["id"] in refused["problem"]["detail"]
    assert answers[2]["job"]["id"] == answers[0]["job"]["id"]
    assert answers[5]["job"]["id"] == answers[3]["job"]["id"]
    assert len(world.jobs()) == 2
    [again] = await answered(Door(world), other)
    assert again["status"] == 422


async def test_case_g04_the_first_line_wins_however_slow_its_commit_is() -> None:
    """Who is first under a key is decided by the order of the lines, not by the ledger."""
    world = World()
    answered_slowly = iter(["slow"])
    ledger = Unsteady(world, lambda path: next(answered_slowly, ""))
    lines = [job(name) | {"idempotency_key": "k"} for name in ("a", "b", "b", "a")]
    answers = await answered(Door(world, ledger=ledger), *lines)
    assert statuses(answers) == [202, 422, 422, 200]
    assert world.clock.monotonic() == SLOW_SECONDS


async def test_case_g05_lines_are_the_same_job_however_they_are_spelled() -> None:
    """Order of keys, white space and spelling of numbers and letters make no other job."""
    spellings = [
        b'{"facts":{"a":1,"b":"\xc3\xa9"},"rubric":{"instructions":"Score."},'
        b'"seats":[{"provider":"fake","model":"m0"}]}',
        b' {"rubric" : {"instructions":"Score."}, "seats":[{"model":"m0","provider":"fake"}],'
        b'"facts":{"b":"\\u00e9","a":1.0}}\t\r',
    ]
    world = World()
    answers = await answered(Door(world), *spellings, *spellings)
    assert statuses(answers) == [202, 200, 200, 200]
    assert len({answer["job"]["id"] for answer in answers}) == len(world.jobs()) == 1


async def test_a_thousand_equal_lines_are_one_job() -> None:
    """One is accepted, 999 are told of it; its seat has one message."""
    world = World()
    answers = await answered(Door(world), *[job("same")] * 1000)
    assert statuses(answers) == [202] + [200] * 999
    assert len(world.jobs()) == 1


@pytest.mark.parametrize("key", ["", "k" * 256, "schl\u00fcssel", "a\nb", 5, None, ["k"]])
async def test_a_lines_key_has_the_headers_rule(key: Json) -> None:
    """1 to 255 printable ASCII characters; a fault is told with the others of its line."""
    world = World()
    line = job("x", labels={"": "x"}) | {"idempotency_key": key}
    [answer] = await answered(Door(world), line)
    assert answer["status"] == 422
    pointers = {error["pointer"] for error in answer["problem"]["errors"]}
    assert "/idempotency_key" in pointers
    assert len(pointers) == 2
    assert world.jobs() == {}


async def test_a_lines_key_may_be_as_long_as_the_headers() -> None:
    """255 characters, and a blank is one of them."""
    answers = await answered(
        Door(World()), *(job("x") | {"idempotency_key": key} for key in ("k" * 255, " ", "~"))
    )
    assert statuses(answers) == [202, 202, 202]


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (400, {"Idempotency-Key": "k"}),
        (415, {"Content-Type": "application/json"}),
        (415, {"Content-Type": "application/x-ndjson; charset=latin-1"}),
        (415, {"Content-Encoding": "gzip"}),
    ],
)
async def test_a_batch_is_refused_as_a_whole_for_its_headers(
    status: int, change: dict[str, str]
) -> None:
    """A key for all, another media type, a compressed body: nothing is looked at."""
    world = World()
    answer = await send(Door(world), job("x"), **change)
    assert answer.status_code == status
    assert world.jobs() == {}


async def test_a_batch_is_bounded_as_any_body() -> None:
    """1 MiB with all its lines and no byte more; no line, and a line too many, are refused."""
    world = World()
    door = Door(world)
    full = body_of(job("x"))
    full += b" " * (1024 * 1024 - len(full))
    for content, status in (
        (full + b" ", 413),
        (b"", 400),
        (b"\r\n\r\n", 400),
        (body_of(*[b"{}"] * 1001), 422),
    ):
        answer = await door.call("POST", PATH, content=content, headers=NDJSON)
        assert answer.status_code == status
    assert world.jobs() == {}
    assert (await door.call("POST", PATH, content=full, headers=NDJSON)).status_code == 200
    assert len(world.jobs()) == 1


async def test_lines_may_end_as_on_windows() -> None:
    """CRLF, a last line without an end, and blanks after it."""
    world = World()
    content = b"\r\n".join(json.dumps(job(n)).encode() for n in range(3)) + b"\r\n\r\n"
    answer = await Door(world).call("POST", PATH, content=content, headers=NDJSON)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert len(answer.content.splitlines()) == len(world.jobs()) == 3


class Unsteady:
    """A ledger before the world's in which commits that create chosen jobs go wrong, or slowly."""

    def __init__(self, world: World, spoil: Callable[[str], str]) -> None:
        self._clock = world.clock
        self._inner = world.ledger
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, *writes: Write) -> datetime:
        """Commit; `lost` does not apply it, `unheard` does and has no answer."""
        paths = [write.path for write in writes if isinstance(write, Create)]
        created = [path.partition("/")[2] for path in paths if path.startswith("jobs/")]
        kind = next((k for path in created if (k := self._spoil(path))), "")
        if kind == "slow":
            await self._clock.sleep(SLOW_SECONDS)
        if kind == "lost":
            raise LedgerUnavailable("no answer")
        if kind == "bug":
            raise RuntimeError("secret")
        committed = await self._inner.commit(*writes)
        if kind == "unheard":
            raise LedgerUnavailable("the answer was lost")
        return committed


def unsteady(world: World, **kinds: str) -> Door:
    """A door whose ledger goes wrong for the jobs of these keys."""
    by_job = {
        job_id(TENANT, idempotency_key=k, request_digest=""): kind for k, kind in kinds.items()
    }
    return Door(world, ledger=Unsteady(world, lambda path: by_job.get(path, "")))


async def test_case_g17_what_goes_wrong_for_one_line_costs_no_other_line() -> None:
    """The ledger without an answer is 503 with a hint, a bug is 500 without its text."""
    world = World()
    lines = [job(n) | {"idempotency_key": f"k{n}"} for n in range(9)]
    door = unsteady(world, k3="lost", k5="bug")
    answers = await answered(door, *lines)
    assert statuses(answers) == [202, 202, 202, 503, 202, 500, 202, 202, 202]
    assert answers[3]["problem"]["retry_after_seconds"] == 5
    assert "secret" not in json.dumps(answers)
    assert len(world.jobs()) == 7
    world.clock.advance(1.0)
    again = await answered(Door(world), *lines)
    assert statuses(again) == [200, 200, 200, 202, 200, 202, 200, 200, 200]
    assert len(world.jobs()) == 9


async def test_case_c01_a_line_whose_commit_was_applied_is_accepted() -> None:
    """A commit that times out and was applied is read back: 202 once, one message a seat."""
    world = World()
    [answer] = await answered(unsteady(world, k="unheard"), job("x") | {"idempotency_key": "k"})
    assert answer["status"] == 202
    assert len(world.jobs()) == len(world.topics.messages(TOPIC)) == 1


async def test_case_g07_lines_at_once_do_not_pass_a_tenants_day() -> None:
    """Forty lines, a day for ten requests: ten are accepted, the others told until when."""
    world = World(tenant_caps=TenantCaps(everyone=Caps(requests=10)))
    lines = [job(n, policy={"max_attempts": 1, "max_requests": 1}) for n in range(40)]
    answers = await answered(Door(world), *lines)
    found = statuses(answers)
    assert (found.count(202), found.count(429)) == (10, 30)
    assert len(world.jobs()) == 10
    for answer in answers:
        if answer["status"] == 429:
            assert 0 < answer["problem"]["retry_after_seconds"] <= 24 * 3600
    world.clock.advance(1.0)
    again = statuses(await answered(Door(world), *lines))
    assert (again.count(200), again.count(429)) == (10, 30)


async def test_lines_do_not_pass_a_tenants_open_seats() -> None:
    """Four places for seats: what does not fit now is 429, what never fits is 422."""
    world = World(tenant_caps=TenantCaps(everyones_open_seats=4))
    many = [{"provider": "fake", "model": f"m{n}"} for n in range(5)]
    answers = await answered(Door(world), job("never", seats=many), *map(job, range(8)))
    assert statuses(answers)[0] == 422
    assert sorted(statuses(answers)[1:]) == [202] * 4 + [429] * 4
    assert {a["problem"]["retry_after_seconds"] for a in answers if a["status"] == 429} == {5}
    assert len(world.jobs()) == 4


async def test_each_line_counts_as_a_request_of_the_key() -> None:
    """A batch is taken as a whole, and the next request waits until its lines are made up for."""
    door = Door(World(), requests_per_minute=60)
    assert statuses(await answered(door, *map(job, range(90)))) == [202] * 90
    refused = await door.call("GET", "/v1/jobs")
    assert refused.status_code == 429
    assert 29 <= int(refused.headers["retry-after"]) <= 31


async def test_the_callers_trace_is_every_lines() -> None:
    """`traceparent` of the request goes into each job."""
    world = World()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await answered(Door(world), job(1), job(2), traceparent=trace)
    assert [job.traceparent for job in world.jobs().values()] == [trace, trace]


def faulty(place: str, count: int) -> bytes:
    """A line that breaks the same rule many times, at places with a long name."""
    return json.dumps({place: ["NaN"] * count}).replace('"NaN"', "NaN").encode()


@pytest.mark.parametrize("letter", ["a", "~", "\u00e9", "\u0001"])
async def test_a_batch_of_faults_is_answered_within_bounds(letter: str) -> None:
    """Few faults of a line are all told; of a hundred at long places as many as have room."""
    door = Door(World())
    lines = [faulty(letter * 500, 200)] * 300
    while len(b"\n".join(lines)) > 1024 * 1024:
        lines.pop()
    answer = await send(door, *lines)
    assert len(answer.content) <= len(lines) * (batches.MAX_ERRORS_BYTES + 16 * 1024)
    for line in map(json.loads, answer.content.splitlines()):
        assert line["status"] == 400
        assert "at least 100" in line["problem"]["detail"] or line["problem"]["errors"]
    [few] = await answered(door, faulty("a" * 20, 100))
    assert len(few["problem"]["errors"]) == 100
