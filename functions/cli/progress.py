"""What is happening now, as facts: seats by state, and how many of them have ended.

A person at a terminal sees it in place; anything else gets one plain line per change.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from functions.cli import text
from functions.cli.answers import Job, Seat
from functions.cli.tables import line, seat_table

Show = Callable[[str, Job], None]
"""Takes a job's name for people, and the job as it was just read."""


@contextmanager
def showing(console: Console, *, live: bool) -> Iterator[Show]:
    """Show jobs while they work: in place when `live`, else a line per change."""
    if not live:
        yield PlainProgress(console).show
        return
    # Without its refresh thread, Live writes only from our own task, never between two reads.
    with Live(console=console, auto_refresh=False, transient=True) as display:
        yield LiveProgress(display).show


class PlainProgress:
    """One line for each change of a job or a seat."""

    def __init__(
        self, console: Console, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._console = console
        self._now = now
        self._shown: dict[tuple[str, str | None], str] = {}

    def show(self, name: str, job: Job) -> None:
        """Print what differs from the job's last state."""
        for seat in job.seats:
            self._print((name, seat.seat), f"{name}: seat {seat.seat} {_seat_line(seat)}")
        counted = f"{job.seats_ended} of {len(job.seats)} seats ended"
        self._print((name, None), f"{name}: {job.state}, {counted}")

    def _print(self, key: tuple[str, str | None], content: str) -> None:
        if self._shown.get(key) == content:
            return
        self._shown[key] = content
        clock = self._now().strftime("%H:%M:%SZ")
        self._console.print(line(f"{clock} {content}"), soft_wrap=True)


class LiveProgress:
    """All jobs in one picture that is redrawn after each read."""

    def __init__(self, display: Live) -> None:
        self._display = display
        self._jobs: dict[str, Job] = {}

    def show(self, name: str, job: Job) -> None:
        """Redraw with the job's latest state."""
        self._jobs[name] = job
        self._display.update(picture(self._jobs), refresh=True)


def picture(jobs: dict[str, Job]) -> RenderableType:
    """Jobs by name: state, seats by state, seats ended as a bar; the open jobs' seats below."""
    overview = Table.grid(padding=(0, 2))
    for name, job in jobs.items():
        total = len(job.seats)
        overview.add_row(
            line(name, style="bold"),
            line(job.state),
            ProgressBar(total=max(total, 1), completed=job.seats_ended, width=20),
            line(f"{job.seats_ended} of {total} seats ended"),
            line(text.states_counted(job.seats)),
        )
    seats = [
        part
        for name, job in jobs.items()
        if not job.ended
        for part in (line(name, style="bold"), seat_table(job))
    ]
    return Group(overview, *seats)


def _seat_line(seat: Seat) -> str:
    note = text.seat_note(seat)
    return (
        f"{text.seat_state(seat)}{f' ({note})' if note else ''}"
        f", attempts {text.seat_attempts(seat)}"
    )
