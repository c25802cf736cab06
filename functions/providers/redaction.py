"""Secrets out of foreign text, before it is cut, logged or stored.

Providers repeat keys in their error texts, whole or in part. A whole key is removed, and every
piece of one from `PART_CHARACTERS` on.
"""

from collections.abc import Callable, Iterable

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
    """Return a function that removes these secrets and their parts from a text."""
    kept = sorted({s for s in secrets if s and len(s) >= MIN_SECRET_CHARACTERS}, key=len)
    parts = frozenset(part for secret in kept for part in _parts(secret))
    sizes = sorted({len(part) for part in parts})
    if not parts:
        return unredacted

    def redact(text: str) -> str:
        if not any(part in text for part in parts):
            return text
        return _mask(text, _covered(text, parts, sizes))

    return redact


def safe_preview(text: str, redact: Redact) -> str:
    """Return a bounded, storable piece of foreign text without secrets."""
    return preview(redact(text[:SCANNED_CHARACTERS]))


def _parts(secret: str) -> Iterable[str]:
    """Yield the pieces whose presence gives a secret away: every run of the shortest length."""
    size = min(PART_CHARACTERS, len(secret))
    return (secret[i : i + size] for i in range(len(secret) - size + 1))


def _covered(text: str, parts: frozenset[str], sizes: Iterable[int]) -> list[bool]:
    covered = [False] * len(text)
    for size in sizes:
        for start in range(len(text) - size + 1):
            if text[start : start + size] in parts:
                covered[start : start + size] = [True] * size
    return covered


def _mask(text: str, covered: list[bool]) -> str:
    pieces: list[str] = []
    for index, character in enumerate(text):
        if not covered[index]:
            pieces.append(character)
        elif index == 0 or not covered[index - 1]:
            pieces.append(MASK)
    return "".join(pieces)
