"""Paragraphs and tables in Markdown, and amounts as they stand in them."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

WIDTH = 100


def prose(text: str) -> str:
    """Return a paragraph as one that is filled to the width."""
    words = re.sub(r"\s+", " ", text).strip()
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


def across(what: str, values: Mapping[float, str]) -> str:
    """Return a table of one row: what a million seats cost by the values of one thing."""
    return table((what, *(f"{value:g}" for value in values)), [("US$", *values.values())])


def dollars(amount: float) -> str:
    """Return an amount to the cent."""
    return f"{amount:,.2f}"
