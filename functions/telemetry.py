"""One JSON line per event on standard output, in the form Cloud Logging reads.

Lines carry identities and codes, never facts, answers or keys. Newlines in values stay inside the
JSON string, so no value can forge a second entry.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

TRACE = "logging.googleapis.com/trace"
_LOGGER = logging.getLogger("empanel")
_NOTHING: Mapping[str, Any] = {}
_traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)
_cloud_trace: ContextVar[str | None] = ContextVar("cloud_trace", default=None)
_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default=_NOTHING)
# Google's own header, TRACE/SPAN;o=1, and W3C's; of both only the trace is read.
_CLOUD = re.compile(r"([0-9a-f]{32})(?:/.*)?", re.ASCII | re.IGNORECASE)
_W3C = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.ASCII)


def begin(headers: Mapping[str, str]) -> None:
    """Begin a request: log the trace that the platform gave it, and nothing of the one before.

    That trace ties a line to the platform's own line about the request; `follow` names the trace of
    the job that the request is for, which may be another one.
    """
    _cloud_trace.set(
        _trace_in(_CLOUD, headers.get("x-cloud-trace-context"))
        or _trace_in(_W3C, headers.get("traceparent"))
    )
    _traceparent.set(None)
    _about.set(_NOTHING)


def follow(traceparent: str | None) -> None:
    """Log the W3C trace context with every event of the task that calls this, and of its tasks."""
    _traceparent.set(traceparent)


def about(**fields: Any) -> None:
    """Log these identities too with every event of the task that calls this, and of its tasks."""
    known = {name: value for name, value in fields.items() if value is not None}
    _about.set({**_about.get(), **known})


def _trace_in(form: re.Pattern[str], text: str | None) -> str | None:
    found = form.fullmatch(text or "")
    return found[1].lower() if found else None


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; an exception's stack goes into the field `stack`.

    `project` completes the trace's name; without it the bare trace is logged.
    """

    def __init__(self, project: str = "") -> None:
        super().__init__()
        self._traces = f"projects/{project}/traces/" if project else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "severity": "WARNING" if record.levelname == "WARN" else record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
        }
        entry |= {**_about.get(), **getattr(record, "fields", {})}
        if (traceparent := _traceparent.get()) is not None:
            entry["traceparent"] = traceparent
        if (trace := _cloud_trace.get() or _trace_in(_W3C, traceparent)) is not None:
            entry[TRACE] = f"{self._traces}{trace}"
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=True)


def configure(project: str = "") -> None:
    """Send every log record of the process through the JSON formatter, at INFO and above."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(project))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for noisy in ("uvicorn.access", "httpx", "google", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def event(name: str, **fields: Any) -> None:
    """Log one event at INFO."""
    _LOGGER.info(name, extra={"fields": fields})


def warning(name: str, **fields: Any) -> None:
    """Log one event at WARNING."""
    _LOGGER.warning(name, extra={"fields": fields})


def error(name: str, *, exc: BaseException | None = None, **fields: Any) -> None:
    """Log one event at ERROR, with the exception's stack when there is one."""
    info = (type(exc), exc, exc.__traceback__) if exc is not None else None
    _LOGGER.error(name, extra={"fields": fields}, exc_info=info)
