"""How much a seat logs, and what stands in each line."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from functions.telemetry import JsonFormatter
from tests.cases.scenes import replies
from tests.faults.fakes import failure
from tests.faults.notifying import NotifyingWorld
from tests.unit.web.door import Door

LINES_PER_SEAT = 3
SECRET = "7af0-planted"


class Lines(logging.Handler):
    """Keeps the lines that a function process would print."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(JsonFormatter("p"))
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.entries.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of this test, from every logger of ours."""
    handler, logger = Lines(), logging.getLogger("empanel")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


async def played(seats: int, *first: Any, notify: bool = True) -> NotifyingWorld:
    """Submit a job over the interface and let it and its notification end."""
    world = NotifyingWorld()
    world.provider.seconds = 1.0
    replies(world, *first)
    body: dict[str, Any] = {
        "facts": {"question": SECRET},
        "rubric": {"instructions": SECRET},
        "seats": [{"provider": "fake", "model": f"m{n}"} for n in range(seats)],
        "owner": "team",
    }
    if notify:
        body["notify"] = {"url": "https://example.com/hook"}
    answer = await Door(world).call("POST", "/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    await world.deliver_all(at_once=True)
    await world.deliver_notifications()
    return world


@pytest.mark.parametrize("seats", [1, 2, 8, 50])
async def test_a_seat_logs_at_most_three_lines(lines: Lines, seats: int) -> None:
    """Acceptance, attempts, close and notification together; model names are noted once each."""
    world = await played(seats)
    [job] = world.jobs().values()
    assert job.state.is_terminal
    told = [e for e in lines.entries if e["message"] != "model name sighted"]
    assert len(told) == 2 + seats
    assert len(told) / seats <= LINES_PER_SEAT


async def test_a_retried_attempt_is_one_line_more(lines: Lines) -> None:
    """Each attempt ends once; waiting for the next one says nothing."""
    await played(1, failure("overloaded", http_status=529))
    ended = [e for e in lines.entries if e["message"] == "attempt ended"]
    assert [(e["attempt"], e["code"]) for e in ended] == [(1, "overloaded"), (2, None)]
    told = [e for e in lines.entries if e["message"] != "model name sighted"]
    assert len(told) == 4


async def test_every_line_says_whom_it_is_about(lines: Lines) -> None:
    """Severity and owner always; job, run, seat, attempt and holder wherever there is one."""
    world = await played(2, failure("overloaded", http_status=529))
    [job] = world.jobs().values()
    told = [e for e in lines.entries if e["message"] != "model name sighted"]
    for entry in told:
        fields = {"severity": "INFO", "job": job.id, "run": 1, "owner": "team"}
        assert entry.items() >= fields.items(), entry
    for entry in told:
        if entry["message"] == "attempt ended":
            assert entry["seat"] in {"fake/m0", "fake/m1"}
            assert entry["attempt"] in {1, 2}
            assert entry["holder"].startswith("evaluate-")


async def test_no_line_holds_a_question_or_an_answer(lines: Lines) -> None:
    """Neither the facts nor what a provider's error quotes of them."""
    quoting = failure("overloaded", http_status=529)
    await played(2, type(quoting)(code="overloaded", message=SECRET, http_status=529))
    assert lines.entries
    assert SECRET not in json.dumps(lines.entries)
