"""The lines of a batch by themselves: how a body is cut, and how many are worked on until when."""

import asyncio
import json

import pytest

from functions.web import batches
from functions.web.batches import answer_all, read_lines, refused, shown
from functions.web.problems import Problem, rate_limited
from tests.faults.world import World

SLOW_SECONDS = 10.0


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"{}", [b"{}"]),
        (b"{}\n", [b"{}"]),
        (b"1\n2\n3", [b"1", b"2", b"3"]),
        (b"1\n2\n\n \n\t\r\n", [b"1", b"2"]),
        (b"1\n\n2", [b"1", b"", b"2"]),
        (b"\n1", [b"", b"1"]),
        ('"\u2028\x85"\n1'.encode(), ['"\u2028\x85"'.encode(), b"1"]),
    ],
)
def test_lines_end_at_line_feeds_only(body: bytes, lines: list[bytes]) -> None:
    """What is empty at the end is no line, what is empty before is one; no other sign ends one."""
    assert read_lines(body) == lines


def test_a_carriage_return_belongs_to_the_end() -> None:
    """CRLF reads as LF: JSON takes the rest of it for white space."""
    assert [json.loads(line) for line in read_lines(b'{"a":1}\r\n2\r\n')] == [{"a": 1}, 2]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t\n", b"\n" * 1_000_000])
def test_a_body_without_lines_is_refused(body: bytes) -> None:
    """400, as an empty body of a single job."""
    with pytest.raises(Problem) as caught:
        read_lines(body)
    assert caught.value.status == 400
    assert "no line" in caught.value.detail


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"1\n" * 1001, "1,001"),
        (b"1\n" + b"\n" * 999 + b"1", "1,001"),
        (b"\n" * 1_000_000 + b"1", "1,000,001"),
    ],
)
def test_more_than_a_thousand_lines_are_refused(body: bytes, count: str) -> None:
    """422 with the count; blank lines count, as they are answered."""
    with pytest.raises(Problem) as caught:
        read_lines(body)
    assert caught.value.status == 422
    assert f"at most 1,000 lines, not {count}" in caught.value.detail


def test_a_thousand_lines_are_not_too_many() -> None:
    """Whether the last one ends or not."""
    assert len(read_lines(b"1\n" * 1000)) == len(read_lines(b"1\n" * 999 + b"1")) == 1000


def test_an_answer_is_one_line_for_every_reader() -> None:
    """No character in an answer ends a line for readers that break at more than line feeds."""
    answer = shown(3, 202, {"owner": "a\u2028b\x85c\nd"})
    assert len(answer.decode().splitlines()) == 1
    assert json.loads(answer) == {"line": 3, "status": 202, "job": {"owner": "a\u2028b\x85c\nd"}}


def test_a_refusal_tells_when_to_ask_again() -> None:
    """The problem is that of a single request, and `Retry-After` stands in it."""
    answer = json.loads(refused(7, rate_limited("full", 4.2)))
    assert (answer["line"], answer["status"]) == (7, 429)
    assert answer["problem"]["retry_after_seconds"] == 5
    assert answer["problem"]["status"] == 429


def lines(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


async def test_few_lines_are_worked_on_at_once_and_answers_keep_the_order() -> None:
    """Lines that are done first are answered in their place; never more than `AT_ONCE` run."""
    services = World().api.services
    running, most, ended = 0, 0, []

    async def answer(number: int, line: bytes) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await services.clock.sleep(1.0 / number)
        running -= 1
        ended.append(number)
        return line

    answers = await answer_all(services, lines(60), answer)
    assert answers == lines(60)
    assert most == batches.AT_ONCE
    assert ended != sorted(ended)


async def test_a_batch_is_answered_in_time_whatever_its_lines_do() -> None:
    """A line that never ends and lines that nobody got to are told 503; the others keep theirs."""
    services = World().api.services
    began = services.clock.monotonic()
    cut = []

    async def answer(number: int, line: bytes) -> bytes:
        try:
            if number == 2:
                await asyncio.Event().wait()
            await services.clock.sleep(SLOW_SECONDS)
        except asyncio.CancelledError:
            cut.append(number)
            raise
        return line

    answers = await answer_all(services, lines(1000), answer)
    assert services.clock.monotonic() - began == batches.BATCH_SECONDS
    assert len(answers) == 1000
    done = [n for n, answer in enumerate(answers, start=1) if answer == b"%d" % n]
    assert len(done) >= 4 * (batches.AT_ONCE - 1)
    assert 2 in cut
    assert 2 not in done
    for number in set(range(1, 1001)) - set(done):
        told = json.loads(answers[number - 1])
        assert (told["line"], told["status"]) == (number, 503)
        assert "the time for a batch is over" in told["problem"]["detail"]


async def test_a_shorter_deadline_of_handlers_holds_for_batches() -> None:
    """What an operator sets for deliveries bounds this too."""
    services = World(handler_deadline_seconds=20.0).api.services

    async def answer(number: int, line: bytes) -> bytes:
        await asyncio.Event().wait()
        return line

    [told] = await answer_all(services, lines(1), answer)
    assert json.loads(told)["status"] == 503
    assert services.clock.monotonic() == 20.0


async def test_a_shutdown_begins_no_line_and_leaves_time_to_those_that_began() -> None:
    """Lines in work end and are answered; the rest is told to be sent again, and nothing hangs."""
    services = World().api.services

    async def answer(number: int, line: bytes) -> bytes:
        if number == batches.AT_ONCE:
            services.inflight.ending.set()
        await services.clock.sleep(0.5 * services.settings.grace_seconds)
        return line

    answers = await answer_all(services, lines(100), answer)
    assert answers[: batches.AT_ONCE] == lines(batches.AT_ONCE)
    assert {json.loads(answer)["status"] for answer in answers[batches.AT_ONCE :]} == {503}
    assert services.clock.monotonic() == 0.5 * services.settings.grace_seconds
    assert "shut down" in json.loads(answers[99])["problem"]["detail"]


async def test_a_shutdown_cuts_lines_at_the_end_of_the_grace_time() -> None:
    """The answer is out before the server is killed."""
    services = World().api.services

    async def answer(number: int, line: bytes) -> bytes:
        services.inflight.ending.set()
        await asyncio.Event().wait()
        return line

    answers = await answer_all(services, lines(3), answer)
    assert [json.loads(answer)["status"] for answer in answers] == [503, 503, 503]
    assert services.clock.monotonic() == services.settings.grace_seconds


async def test_the_end_of_the_request_ends_its_lines() -> None:
    """A cancelled handler leaves no task behind."""
    services = World().api.services
    began = asyncio.Event()
    cut: list[int] = []

    async def answer(number: int, line: bytes) -> bytes:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(number)
            raise
        return line

    handler = asyncio.create_task(answer_all(services, lines(3), answer))
    await began.wait()
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert 1 in cut
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in left if "batch" in name]
