"""What the code asked the ledger for and wrote into it, noted for the whole test session.

A `Query`, `Create` or `Update` that a module of `functions/` makes is noted where it is made, by
wrapping the constructors from outside; so it counts whatever ledger a test uses, and queries that
tests make themselves do not count. Processes that a test starts are not seen: the call sites show
whether anything was missed.
"""

import ast
import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from functions.core.ports import SERVER_TIME, Create, Query, Update
from tests.infra.indexes import Shape, shape_of

REPOSITORY = Path(__file__).resolve().parents[2]
FUNCTIONS = REPOSITORY / "functions"
ROOT = f"{REPOSITORY}/"
OURS = f"{FUNCTIONS}/"

Site = tuple[str, int]  # file below the repository, line


@dataclass(kw_only=True)
class Recorded:
    """What was seen; every shape with a place that asked for it."""

    shapes: dict[Shape, Site] = field(default_factory=dict)
    sites: set[Site] = field(default_factory=set)
    created: dict[str, set[str]] = field(default_factory=dict)
    times: set[tuple[str, str]] = field(default_factory=set)

    def note_query(self, query: Query, site: Site) -> None:
        """Note a query of the code's own."""
        self.shapes.setdefault(shape_of(query), site)
        self.sites.add(site)

    def note_create(self, write: Create, site: Site) -> None:
        """Note which fields a collection's documents are created with."""
        collection = write.path.split("/")[-2]
        self.created.setdefault(collection, set()).update(write.data)
        self._note_times(collection, write.data)

    def note_update(self, write: Update, site: Site) -> None:
        """Note which fields are times."""
        self._note_times(write.path.split("/")[-2], write.fields)

    def _note_times(self, collection: str, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            if isinstance(value, datetime) or value is SERVER_TIME:
                self.times.add((collection, name))


RECORDED = Recorded()


def start() -> None:
    """Note everything from now on. Called once, before any test."""
    _wrap(Query, RECORDED.note_query)
    _wrap(Create, RECORDED.note_create)
    _wrap(Update, RECORDED.note_update)


def query_sites() -> dict[Site, str]:
    """Every place in `functions/` that makes a `Query`, with its source line."""
    sites = {}
    for path in sorted(FUNCTIONS.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Query":
                line = source.splitlines()[node.lineno - 1].strip()
                sites[str(path.relative_to(REPOSITORY)), node.lineno] = line
    return sites


def _wrap(kind: type[Any], note: Callable[[Any, Site], None]) -> None:
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        maker = sys._getframe(1)
        file = maker.f_code.co_filename
        if file.startswith(OURS):  # hot: some tests write a hundred thousand documents
            note(self, (file.removeprefix(ROOT), maker.f_lineno))

    kind.__init__ = init
