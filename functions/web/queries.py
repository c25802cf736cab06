"""Query parameters, read strictly: an unknown one or a bad value is an error that names it."""

from collections.abc import Mapping
from datetime import datetime

from starlette.datastructures import QueryParams

from functions.core.identities import window_of
from functions.core.jobs import JobState
from functions.web import problems
from functions.web.request_models import MAX_OWNER_CHARACTERS, MAX_PAIR_CHARACTERS

DEFAULT_LIMIT, MAX_LIMIT = 50, 200


def only(query: Mapping[str, str], known: frozenset[str] | set[str]) -> None:
    """Refuse parameters that the route does not know, and those that are there twice.

    Raises:
        Problem: 400.
    """
    twice = query.multi_items() if isinstance(query, QueryParams) else []
    if len(twice) > len(query):
        raise problems.bad_request("each query parameter may be there once only")
    for name in query:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise problems.bad_request(f"the query parameter {name!r} is unknown; known: {names}")


def flag(query: Mapping[str, str], name: str) -> bool:
    """Return a parameter that is true or false, false when it is absent.

    Raises:
        Problem: 400.
    """
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise problems.bad_request(f"the query parameter {name!r} must be 'true' or 'false'")
    return text == "true"


def state(text: str | None) -> str | None:
    """Return a state of a job.

    Raises:
        Problem: 400.
    """
    if text is not None and text not in set(JobState):
        states = ", ".join(JobState)
        raise problems.bad_request(f"the query parameter 'state' must be one of {states}")
    return text


def window(text: str | None, name: str = "window") -> str | None:
    """Return a window's name.

    Raises:
        Problem: 400.
    """
    if text is not None and not is_window(text):
        raise problems.bad_request(f"the query parameter {name!r} must be an hour: 2026-11-29T12")
    return text


def is_window(text: str) -> bool:
    """Whether a text names a window."""
    try:
        return window_of(datetime.fromisoformat(f"{text}:00+00:00")) == text
    except ValueError:
        return False


def owner(text: str | None) -> str | None:
    """Return an owner's name.

    Raises:
        Problem: 400.
    """
    return _bounded(text, "owner", MAX_OWNER_CHARACTERS)


def label(text: str | None) -> str | None:
    """Return a label as `key:value`.

    Raises:
        Problem: 400.
    """
    if text is not None and not text.partition(":")[1]:
        raise problems.bad_request("the query parameter 'label' must be 'key:value'")
    return _bounded(text, "label", MAX_PAIR_CHARACTERS)


def _bounded(text: str | None, name: str, most: int) -> str | None:
    """Refuse what no job can have: Firestore refuses queries for more than it indexes of a text."""
    if text is not None and len(text) > most:
        raise problems.bad_request(
            f"the query parameter {name!r} must have at most {most} characters, not {len(text)}"
        )
    return text


def limit(text: str | None) -> int:
    """Return how many items a page may hold.

    Raises:
        Problem: 400.
    """
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_LIMIT):
        raise problems.bad_request(
            f"the query parameter 'limit' must be a whole number from 1 to {MAX_LIMIT}"
        )
    return int(text)
