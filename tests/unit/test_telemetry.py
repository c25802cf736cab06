"""Log lines: one JSON object each, with the trace, whatever the values hold."""

import json
import logging

from functions import telemetry
from functions.telemetry import JsonFormatter

TRACE = "00-105445aa7843bc8bf206b12000100000-00f067aa0ba902b7-01"


def line(message: str, **fields: object) -> dict[str, object]:
    record = logging.LogRecord("empanel", logging.INFO, __file__, 1, message, None, None)
    record.fields = fields
    text = JsonFormatter().format(record)
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
