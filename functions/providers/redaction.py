"""Secrets out of foreign text, before it is cut, logged or stored.

Providers repeat keys in their error texts, whole or in part. A whole key is removed, and every
piece of one from `PART_CHARACTERS` on.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from functions.core.verdicts import preview

PART_CHARACTERS = 12
SCANNED_CHARACTERS = 65_536  # far beyond what a preview shows, so no cut secret can appear in it
MIN_SECRET_CHARACTERS = 4  # anything shorter ("x", "no") is a placeholder, and would garble texts
MASK = "[redacted]"

Redact = Callable[[str], str]


def unredacted(text: str) -> str:
    """Return `text` as it is: the redaction of an endpoint without a key."""
    return text


def redactor(secrets: Iterable[str | None]) -> Redact:
    """Return a function that removes these secrets and their parts from a text.

    Its time grows with the text alone: an access token has a thousand parts.
    """
    kept = {s for s in secrets if s and len(s) >= MIN_SECRET_CHARACTERS}
    searches = [_search(size, kept) for size in {_size(secret) for secret in kept}]
    if not searches:
        return unredacted

    def redact(text: str) -> str:
        return _mask(text, sorted(span for search in searches for span in search(text)))

    return redact


def safe_preview(text: str, redact: Redact) -> str:
    """Return a bounded, storable piece of foreign text without secrets."""
    return preview(redact(text[:SCANNED_CHARACTERS]))


def _size(secret: str) -> int:
    return min(PART_CHARACTERS, len(secret))


def _search(size: int, secrets: Iterable[str]) -> Callable[[str], Iterator[tuple[int, int]]]:
    """Return a search for the parts of all secrets that are cut to this size.

    A part is a run of the shortest length that gives a secret away. It can only stand in a run of
    the secrets' own characters, and prose has few of those.
    """
    parts = frozenset(
        secret[i : i + size]
        for secret in secrets
        if _size(secret) == size
        for i in range(len(secret) - size + 1)
    )
    alphabet = "".join(map(re.escape, sorted(set("".join(parts)))))
    runs = re.compile(f"[{alphabet}]{{{size},}}")

    def search(text: str) -> Iterator[tuple[int, int]]:
        for run in runs.finditer(text):
            for start in range(run.start(), run.end() - size + 1):
                if text[start : start + size] in parts:
                    yield start, start + size

    return search


def _mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return `text` with one mask for each stretch of spans that touch; they come in order."""
    pieces: list[str] = []
    kept_from = 0
    for start, end in spans:
        if start > kept_from or not pieces:
            pieces += [text[kept_from:start], MASK]
        kept_from = max(kept_from, end)
    return "".join([*pieces, text[kept_from:]])
