"""Log lines: one JSON object each, with the trace, whatever the values hold."""

import json
import logging

import pytest

from functions import telemetry
from functions.telemetry import JsonFormatter

TRACE = "00-105445aa7843bc8bf206b12000100000-00f067aa0ba902b7-01"


def line(message: str, *, project: str = "", **fields: object) -> dict[str, object]:
    record = logging.LogRecord("empanel", logging.INFO, __file__, 1, message, None, None)
    record.fields = fields
    text = JsonFormatter(project).format(record)
    assert "\n" not in text
    entry = json.loads(text)
    assert isinstance(entry, dict)
    return entry


def test_no_value_can_forge_a_second_line() -> None:
    """Newlines and terminal codes stay inside the JSON string."""
    entry = line("event", job='x\n{"severity": "ERROR"}\x1b[31m')
    assert entry["severity"] == "INFO"
    assert entry["job"] == 'x\n{"severity": "ERROR"}\x1b[31m'


def test_a_stack_is_one_field() -> None:
    """An exception's stack goes into one field of the same line."""
    try:
        raise ValueError("line1\nline2")
    except ValueError as exc:
        info = (type(exc), exc, exc.__traceback__)
    record = logging.LogRecord("empanel", logging.ERROR, __file__, 1, "failed", None, info)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "ValueError: line1\nline2" in json.loads(text)["stack"]


async def test_events_carry_the_trace_they_belong_to() -> None:
    """Once a task follows a trace, its lines name it."""
    telemetry.follow(TRACE)
    assert line("event")["traceparent"] == TRACE


TRACE_ID = "105445aa7843bc8bf206b12000100000"
OWN = f"00-{'a' * 32}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("headers", "followed", "trace"),
    [
        ({"x-cloud-trace-context": f"{TRACE_ID}/1;o=1"}, None, TRACE_ID),
        ({"x-cloud-trace-context": TRACE_ID.upper()}, None, TRACE_ID),
        ({"traceparent": TRACE}, None, TRACE_ID),
        ({"x-cloud-trace-context": f"{TRACE_ID}/1;o=1", "traceparent": OWN}, OWN, TRACE_ID),
        ({}, TRACE, TRACE_ID),
        ({}, None, None),
        ({"x-cloud-trace-context": "../../x"}, None, None),
        ({"x-cloud-trace-context": f"{TRACE_ID}\\n", "traceparent": "00-x-y-01"}, "zz", None),
    ],
)
async def test_a_line_names_its_trace_as_the_platform_does(
    headers: dict[str, str], followed: str | None, trace: str | None
) -> None:
    """The request's own trace first, else the job's; what is no trace is left out."""
    telemetry.begin(headers)
    telemetry.follow(followed)
    expected = None if trace is None else f"projects/p/traces/{trace}"
    assert line("event", project="p").get(telemetry.TRACE) == expected


async def test_identities_gather_until_the_next_request() -> None:
    """What a request is about stands in each of its lines; an event's own fields win."""
    telemetry.begin({})
    telemetry.about(message_id="m1", job=None)
    telemetry.about(job="j1")
    assert line("event").items() >= {"message_id": "m1", "job": "j1"}.items()
    assert line("event", job="j2")["job"] == "j2"
    telemetry.begin({})
    assert not line("event").keys() & {"message_id", "job"}
