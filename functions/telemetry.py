"""One JSON line per event on standard output, in the form Cloud Logging reads.

Lines carry identities and codes, never facts, answers or keys. Newlines in values stay inside the
JSON string, so no value can forge a second entry.
"""

import json
import logging
import sys
from contextvars import ContextVar
from typing import Any

_LOGGER = logging.getLogger("empanel")
_traceparent: ContextVar[str | None] = ContextVar("traceparent", default=None)


def follow(traceparent: str | None) -> None:
    """Log the W3C trace context with every event of the task that calls this, and of its tasks."""
    _traceparent.set(traceparent)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; an exception's stack goes into the field `stack`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        entry: dict[str, Any] = {
            "severity": "WARNING" if record.levelname == "WARN" else record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
        }
        entry |= getattr(record, "fields", {})
        if (traceparent := _traceparent.get()) is not None:
            entry["traceparent"] = traceparent
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=True)


def configure() -> None:
    """Send every log record of the process through the JSON formatter, at INFO and above."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
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
