"""What an audit of a window found: counts that add up, and a list for each kind of gap. Pure.

The interface shows the first hundred of each list (`view`); the full report in the bucket keeps
`KEPT` of each, beside what the next audit needs to look only at what was not in order.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from functions.core.errors import EmpanelError
from functions.core.money import usd
from functions.core.versions import REPORT
from functions.core.windows import no_counts

SHOWN = 100
KEPT = 20_000

LISTS = (
    "missing_terminal",
    "missing_output",
    "missing_failure",
    "digest_mismatch",
    "orphan_outputs",
    "undelivered_notifications",
    "malformed",
    "off_window",
    "aged",
    "repairs",
    "errors",
)
READ_ANEW = ("repairs", "errors")  # every audit makes these lists from nothing
GAPS = (
    "missing_terminal",
    "missing_output",
    "missing_failure",
    "digest_mismatch",
    "orphan_outputs",
    "lost_notifications",
    "malformed",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRun:
    """A run without a terminal record, and the state it was counted in."""

    job: str
    run: int
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Lines of ended runs, as an object."""

    name: str
    generation: int
    sha256: str
    lines: int


@dataclass(kw_only=True)
class Findings:
    """What is known of a window's runs; grows while the window is looked at."""

    counts: dict[str, int] = field(default_factory=no_counts)
    missing_terminal: list[str] = field(default_factory=list)
    missing_output: list[dict[str, Any]] = field(default_factory=list)
    missing_failure: list[dict[str, Any]] = field(default_factory=list)
    digest_mismatch: list[dict[str, Any]] = field(default_factory=list)
    orphan_outputs: list[str] = field(default_factory=list)
    undelivered_notifications: list[str] = field(default_factory=list)
    lost_notifications: list[str] = field(default_factory=list)  # given up, or never made
    malformed: list[str] = field(default_factory=list)
    off_window: list[str] = field(default_factory=list)
    purged: int = 0
    aged: list[dict[str, Any]] = field(default_factory=list)
    repairs: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0
    known_usd: float = 0.0
    unknown_costs: int = 0  # runs of whose attempts at least one has an unknown cost
    errors: list[str] = field(default_factory=list)
    open: list[OpenRun] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def population(self) -> int:
        """How many runs were accepted in the window: the denominator."""
        return sum(self.counts.values())

    @property
    def complete(self) -> bool:
        """Whether everything was looked at, gaps or not."""
        return not self.errors

    @property
    def gaps(self) -> int:
        """How many gaps of all kinds there are."""
        return sum(len(getattr(self, name)) for name in GAPS)

    @property
    def is_base(self) -> bool:
        """Whether a later audit may look only at what these findings, as stored, list."""
        lists = [getattr(self, name) for name in LISTS if name not in READ_ANEW]
        return not (self.malformed or self.errors or any(len(items) >= KEPT for items in lists))

    def full(self) -> dict[str, Any]:
        """Return everything, for the report in the bucket."""
        content = asdict(self)
        return content | {name: content[name][:KEPT] for name in LISTS} | {"v": REPORT.written}

    def view(self) -> dict[str, Any]:
        """Return what the interface shows; `truncated` counts what the lists leave out."""
        lists = {name: getattr(self, name) for name in LISTS}
        return {
            "population": self.population,
            "complete": self.complete,
            "counts": dict(self.counts),
            **{name: items[:SHOWN] for name, items in lists.items()},
            "truncated": {
                n: len(items) - SHOWN for n, items in lists.items() if len(items) > SHOWN
            },
            "purged": self.purged,
            "attempts": self.attempts,
            "cost_usd": None if self.unknown_costs else usd(self.known_usd),
            "known_cost_usd": usd(self.known_usd),
            "unknown_costs": self.unknown_costs,
        }


def error_text(exc: EmpanelError) -> str:
    """Return an error as a report lists it."""
    return f"{type(exc).__name__}: {exc}"[:500]


def read_findings(content: Any, name: str) -> Findings:
    """Return the findings of a full report; `name` is its object's.

    Raises:
        UnknownVersion: the report is another release's.
        KeyError, TypeError: it is none of its version.
    """
    if not isinstance(content, dict):
        raise TypeError("a report is an object")
    values = REPORT.read(content, name)
    del values["v"]
    values["open"] = [OpenRun(**run) for run in values["open"]]
    values["chunks"] = [Chunk(**chunk) for chunk in values["chunks"]]
    return Findings(**values)
