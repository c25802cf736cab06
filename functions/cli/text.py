"""Small pieces of text for people: times, costs, states. Nothing here can move the cursor."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from functions.cli.answers import Problem, Seat

UNKNOWN = "unknown"
NONE = "-"


def printable(text: str) -> str:
    """The text without what would steer a terminal: it may come from a model or a stranger.

    Control characters, bidirectional overrides and lone surrogates become U+FFFD; a line break
    stays.
    """
    return "".join("\N{REPLACEMENT CHARACTER}" if _steers(char) else char for char in text)


def _steers(char: str) -> bool:
    if char == "\n":
        return False
    return unicodedata.category(char) in ("Cc", "Cs") or unicodedata.bidirectional(char) in (
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    )  # fmt: skip


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return NONE if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def cost(usd: float | None) -> str:
    """A cost in US dollars; one that is not known is said to be unknown, never zero."""
    if usd is None:
        return UNKNOWN
    return "under $0.000001" if 0 < usd < 1e-6 else f"${usd:.6f}"


def number(value: float | None) -> str:
    """A count or a statistic, without digits that mean nothing."""
    return NONE if value is None else f"{value:.6g}"


def elapsed(start: datetime | None, end: datetime | None) -> str:
    """Seconds between two times."""
    return NONE if start is None or end is None else f"{(end - start).total_seconds():.1f} s"


def seat_state(seat: Seat) -> str:
    """What the seat is doing now; a waiting seat says until when."""
    if seat.state == "waiting" and seat.due_at is not None:
        return f"waiting until {moment(seat.due_at)}"
    return printable(seat.state)


def seat_note(seat: Seat) -> str:
    """Why the seat is where it is."""
    if seat.error is not None:
        message = f": {seat.error.message}" if seat.error.message else ""
        return printable(f"{seat.error.code}{message}")
    return "reused, no request" if seat.reused else ""


def problem_note(problem: Problem) -> str:
    """Why the API refused, with each broken rule that the detail does not name."""
    rules = [f"{error.pointer or '/'}: {error.detail}" for error in problem.errors]
    parts = rules if len(rules) > 1 else [problem.detail] if problem.detail else rules
    return printable("; ".join([problem.title, *parts]))


def seat_attempts(seat: Seat) -> str:
    """Attempts used, of those allowed."""
    if seat.max_attempts is None:
        return str(seat.attempts)
    return f"{seat.attempts} of {seat.max_attempts}"


def states_counted(seats: Iterable[Seat]) -> str:
    """How many seats stand in each state: `2 running, 1 queued`."""
    counted = Counter(seat.state for seat in seats)
    return ", ".join(f"{count} {printable(state)}" for state, count in counted.most_common())


def labels_listed(labels: Mapping[str, str]) -> str:
    """Labels as `key:value`, the form `jobs --label` takes."""
    return printable(", ".join(f"{key}:{value}" for key, value in labels.items()))
