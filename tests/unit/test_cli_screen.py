"""What commands print on a narrow screen: long lines go on, and nothing is cut."""

import io
from typing import Any

from rich.console import Console

from functions.cli.answers import Problem, ProblemError
from functions.cli.drill_tables import drill_view
from functions.cli.exits import Misused, Refused
from functions.cli.screen import Screen

NARROW = 80
LONG = "the start of it, " + "and more of it, " * 12 + "and its very end"


def narrow() -> Console:
    """A console of 80 columns that keeps what is printed."""
    return Console(file=io.StringIO(), width=NARROW, highlight=False)


def printed(console: Console) -> str:
    """What was printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def screen() -> Screen:
    """A narrow screen for people."""
    return Screen(out=narrow(), err=narrow(), json_only=False, watched=False)


def test_a_refusal_is_shown_in_full() -> None:
    """Title, detail and every broken rule keep their ends, each on a line of its own."""
    errors = (ProblemError(pointer="/seats/0", detail=LONG), ProblemError(detail=LONG))
    problem = Problem(title=f"Title: {LONG}", detail=f"Detail: {LONG}", errors=errors)
    shown = screen()
    shown.fail(Refused(problem, status=422, raw=b"{}", retry_after_seconds=None))
    assert printed(shown.err).splitlines() == [
        f"Refused (422): Title: {LONG}",
        f"Detail: {LONG}",
        f"  /seats/0: {LONG}",
        f"  /: {LONG}",
    ]


def test_lines_of_a_command_are_shown_in_full() -> None:
    """What is said on the way, and why a command failed."""
    shown = screen()
    shown.say(LONG)
    shown.fail(Misused(LONG))
    assert (printed(shown.out), printed(shown.err)) == (f"{LONG}\n", f"{LONG}\n")


def test_the_account_of_a_drill_is_shown_in_full() -> None:
    """Findings, repairs, incidents and broken promises keep their ends."""
    window = {"window": LONG, "population": 1, "complete": True}
    incident = {"id": LONG, "kind": "k", "owner": "o", "status": "open"}
    view: dict[str, Any] = {
        "drill": "lost-upload",
        "accounted": False,
        "injected": LONG,
        "error": LONG,
        "windows": [window],
        "found": [LONG],
        "repaired": [{"kind": "k", "job_id": "j", "reason": LONG}],
        "open": {"gaps": [LONG], "incidents": [incident]},
        "resolved": [LONG],
        "checks": [{"promise": LONG, "seen": LONG, "kept": False}],
    }
    shown = screen()
    shown.show_in_full(drill_view(view))
    assert printed(shown.out).count(LONG) == 10
