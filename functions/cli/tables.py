"""The API's answers as tables for people."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from functions.cli import text
from functions.cli.answers import (
    Attempt,
    Job,
    JobPage,
    LineAnswer,
    MissingSeat,
    PanelWarning,
    Problem,
    Report,
    ReportSeat,
    Usage,
)


def job_view(job: Job) -> RenderableType:
    """One job: how it stands, its seats, what it used."""
    facts = [
        f"run {job.run}",
        f"submitted {text.moment(job.submitted_at)}",
        f"deadline {text.moment(job.deadline_at)}",
    ]
    if job.owner:
        facts.append(f"owner {job.owner}")
    lines: list[RenderableType] = [
        line(f"job {job.id}", style="bold"),
        line(f"{job.state}{_reason(job)}: {text.states_counted(job.seats) or 'no seats'}"),
        line(", ".join(facts)),
    ]
    if job.labels:
        lines.append(line(f"labels {text.labels_listed(job.labels)}"))
    return Group(*lines, seat_table(job), line(usage_line(job.usage)))


def seat_table(job: Job) -> Table:
    """The job's seats, a row each."""
    rows = (
        (
            seat.seat,
            f"{seat.provider}/{seat.model}",
            text.seat_state(seat),
            text.seat_attempts(seat),
            text.seat_note(seat),
        )
        for seat in job.seats
    )
    return table(("seat", "model", "state", "attempts", "note"), rows)


def usage_line(usage: Usage) -> str:
    """What the job used, in one line."""
    return (
        f"requests {text.number(usage.requests)}, "
        f"input tokens {text.number(usage.input_tokens)}, "
        f"output tokens {text.number(usage.output_tokens)}, "
        f"cost {text.cost(usage.cost_usd)}"
    )


def report_view(report: Report) -> RenderableType:
    """The panel's scores, the missing seats by name, and each rationale in full."""
    summary = report.summary
    parts: list[RenderableType] = [
        line(f"job {report.job_id}, run {report.run}", style="bold"),
        score_table(report.seats),
        line(
            f"{summary.n} of {summary.of} scored: mean {text.number(summary.mean)}, "
            f"median {text.number(summary.median)}, min {text.number(summary.min)}, "
            f"max {text.number(summary.max)}, stdev {text.number(summary.stdev)}"
        ),
    ]
    parts += [line(_warning(warning), style="yellow") for warning in report.warnings]
    if not report.complete:
        parts.append(missing_view(report.missing))
    parts += [line(f"{seat.seat}: {seat.rationale}") for seat in report.seats if seat.rationale]
    return Group(*parts)


def _warning(warning: PanelWarning) -> str:
    return f"warning {warning.code}: {warning.detail} ({', '.join(warning.seats)})"


def score_table(seats: Sequence[ReportSeat]) -> Table:
    """Scores per seat and criterion."""
    criteria = list(dict.fromkeys(name for seat in seats for name in seat.criteria or ()))
    rows = (
        (
            seat.seat,
            seat.model_returned or text.NONE,
            text.number(seat.score),
            *(text.number((seat.criteria or {}).get(name)) for name in criteria),
            text.cost(seat.cost_usd),
        )
        for seat in seats
    )
    return table(("seat", "model", "score", *criteria, "cost"), rows)


def missing_view(missing: Iterable[MissingSeat]) -> RenderableType:
    """The seats without an answer, and why."""
    rows = (
        (
            seat.seat,
            seat.state or text.NONE,
            seat.code or text.NONE,
            text.moment(seat.due_at),
            seat.reason or "",
        )
        for seat in missing
    )
    return Group(
        line("The report is not complete. Missing:"),
        table(("seat", "state", "code", "due", "reason"), rows),
    )


def attempt_table(attempts: Sequence[Attempt]) -> RenderableType:
    """Every provider request of a job, a row each."""
    if not attempts:
        return line("No attempts: no request was made for this job.")
    header = (
        "seat", "run", "no.", "outcome", "http", "code", "started", "took",
        "tokens in", "tokens out", "cost", "provider's request",
    )  # fmt: skip
    return table(header, map(_attempt_row, attempts))


def _attempt_row(attempt: Attempt) -> Sequence[str]:
    usage = attempt.usage
    return (
        attempt.seat,
        str(attempt.run),
        str(attempt.number),
        attempt.outcome,
        text.number(attempt.http_status),
        attempt.code or text.NONE,
        text.moment(attempt.started_at),
        text.elapsed(attempt.started_at, attempt.ended_at),
        text.number(usage.input_tokens if usage else None),
        text.number(usage.output_tokens if usage else None),
        text.cost(attempt.cost_usd),
        attempt.provider_request_id or text.NONE,
    )


def job_table(page: JobPage) -> RenderableType:
    """A page of jobs, newest first, and how to get the next page."""
    rows = (
        (
            job.id,
            job.state,
            str(job.run),
            str(len(job.seats)),
            text.moment(job.submitted_at),
            job.owner or text.NONE,
            text.labels_listed(job.labels),
        )
        for job in page.jobs
    )
    listed = table(("job", "state", "run", "seats", "submitted", "owner", "labels"), rows)
    below = [line(f"Cannot be read: {job}", style="red") for job in page.unreadable]
    if page.next_cursor is not None:
        below.append(line(f"More: --cursor {page.next_cursor}"))
    if not page.jobs and not below:
        return line("No jobs.")
    return Group(listed, *below) if below else listed


def problem_view(problem: Problem, status: int) -> Text:
    """Why the API refused: title, detail, and each broken rule with its pointer."""
    lines = [line(f"Refused ({status}): {problem.title}", style="bold red")]
    if problem.detail:
        lines.append(line(problem.detail))
    lines += [line(f"  {error.pointer or '/'}: {error.detail}") for error in problem.errors]
    return paragraphs(lines)


def line_table(answers: Sequence[LineAnswer]) -> Table:
    """The lines of a batch: the job of each, or why it was refused."""
    return table(("line", "status", "job", "state"), map(_line_row, answers))


def _line_row(answer: LineAnswer) -> Sequence[str]:
    head = (str(answer.line), str(answer.status))
    if answer.job is not None:
        return (*head, answer.job.id, answer.job.state)
    problem = answer.problem
    return (*head, text.NONE, text.problem_note(problem) if problem else "")


def line(content: str, *, style: str = "") -> Text:
    """One paragraph, shown as it is: no markup, no control characters."""
    return Text(text.printable(content), style=style, overflow="fold")


def paragraphs(lines: Iterable[Text]) -> Text:
    """The lines as one text: rich cuts those of a `Group` at the screen's edge without wrapping."""
    return Text("\n").join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table whose long cells fold: an identity must be copyable in full."""
    built = Table(box=box.SIMPLE, pad_edge=False)
    for title in header:
        built.add_column(line(title), overflow="fold")
    for row in rows:
        built.add_row(*map(line, row))
    return built


def _reason(job: Job) -> str:
    reason = job.terminal.reason if job.terminal else None
    return f" ({reason})" if reason and reason != job.state else ""
