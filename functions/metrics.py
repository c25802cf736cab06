"""What is counted and timed, as OpenTelemetry metrics; silent until an exporter is configured.

Counted is what the ledger holds: each count stands behind the write that it counts, where that
write has won. Attributes are words of ours with few values, and the names of configured providers:
never a job, a seat, an owner, a tenant (there may be any number of them) or a text of anybody's.
The model stands only in the two metrics of the generative AI conventions; callers name it, so the
SDK's limit of 2,000 attribute sets an instrument is what bounds it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.metrics import Histogram, Meter, NoOpMeter

from functions.core.audits import GAPS, Findings
from functions.core.jobs import Attempt, Outcome, SeatRecord, Usage
from functions.core.windows import no_counts

SCOPE = "empanel"
ERROR_TYPE = "error.type"
# Of the generative AI conventions, seconds; the longest provider deadline is 540 s.
CALL_SECONDS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64),
    *(1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68),
)
CALL_TOKENS = tuple(4.0**power for power in range(14))
WAIT_SECONDS = (0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


@dataclass(kw_only=True)
class Tally:
    """What an audit found in all windows that it looked at: runs by state, gaps by kind."""

    runs: Counter[str] = field(default_factory=lambda: Counter(no_counts()))
    gaps: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys((*GAPS, "aged"), 0)))

    def add(self, findings: Findings) -> None:
        """Add one window."""
        self.runs.update(findings.counts)
        self.gaps.update({kind: len(getattr(findings, kind)) for kind in tuple(self.gaps)})


class Metrics:
    """The instruments of one process, each with the method that says what happened."""

    def __init__(self, meter: Meter | None = None) -> None:
        """Make the instruments; without a meter nothing is kept of what they are told."""
        self.live = meter is not None
        made = meter or NoOpMeter(SCOPE)
        count = made.create_counter
        self._accepted = count("empanel.runs.accepted", "{run}", "Runs on record.")
        self._runs = count("empanel.runs.ended", "{run}", "Runs with their terminal record.")
        self._seats = count("empanel.seats.ended", "{seat}", "Seats with their record.")
        self._attempts = count("empanel.attempts.ended", "{attempt}", "Attempts that ended.")
        self._lost = count("empanel.leases.lost", "{lease}", "Leases that could not be kept.")
        self._refusals = count(
            "empanel.budget.refusals", "{refusal}", "Work a cap had no room for."
        )
        self._repairs = count("empanel.repairs", "{repair}", "Lost work that was brought back.")
        self._tries = count("empanel.notifications.tries", "{try}", "Tries of notifications.")
        self._windows = count("empanel.audit.windows", "{window}", "Windows that were audited.")
        self._audited = made.create_gauge(
            "empanel.audit.runs", "{run}", "Runs in the windows that the last audit looked at."
        )
        self._gaps = made.create_gauge(
            "empanel.audit.gaps", "{gap}", "Gaps in the windows that the last audit looked at."
        )
        self._queue = _seconds(made, "empanel.queue.wait", "From publish to a seat's first claim.")
        self._slot = _seconds(made, "empanel.slot.wait", "For a free call of the provider.")
        self._calls = made.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=CALL_SECONDS,
        )
        self._tokens = made.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=CALL_TOKENS,
        )

    def run_accepted(self, *, replay: bool) -> None:
        """Count a run that is on record: what the audit of its window has to find."""
        self._accepted.add(1, {"empanel.replay": replay})

    def run_ended(self, state: str) -> None:
        """Count a run whose terminal record was created by this process."""
        self._runs.add(1, {"empanel.state": state})

    def seat_ended(self, record: SeatRecord) -> None:
        """Count a seat whose record was created by this process."""
        code = record.error.code if record.error is not None else None
        named = {"empanel.state": record.state.value, "empanel.reused": record.reused}
        self._seats.add(1, {**named, **_error(code)})

    def attempts_ended(
        self, before: Sequence[Attempt], after: Sequence[Attempt], provider: str
    ) -> None:
        """Count the attempts that a write ended: open or unknown before it, ended after it."""
        if not self.live:
            return
        ended = {a.token for a in before if a.outcome is not Outcome.RUNNING}
        for attempt in after:
            if attempt.outcome is not Outcome.RUNNING and attempt.token not in ended:
                named = {"empanel.provider": provider, "empanel.outcome": attempt.outcome.value}
                self._attempts.add(1, named | _error(attempt.code))

    def lease_lost(self) -> None:
        """Count a lease that another holder has, or that ran out unrenewed."""
        self._lost.add(1)

    def budget_refused(self, cap: str) -> None:
        """Count work that a cap had no room for: run, cost, tenant_day, open_seats."""
        self._refusals.add(1, {"empanel.cap": cap})

    def repaired(self, counts: Mapping[str, int]) -> None:
        """Count the lost work, by kind, that a look of repair sent back through the normal door."""
        for kind, number in counts.items():
            self._repairs.add(number, {"empanel.kind": kind})

    def notification_tried(self, outcome: str) -> None:
        """Count a try of a notification that is on record."""
        self._tries.add(1, {"empanel.outcome": outcome})

    def window_audited(self, findings: Findings, *, sealed: bool) -> None:
        """Count a window that an audit has looked at."""
        seen = "sealed" if sealed else "open" if findings.complete else "incomplete"
        self._windows.add(1, {"empanel.result": seen})

    def audited(self, tally: Tally) -> None:
        """Show what an audit found; a gap that is mended is shown as 0."""
        for state, number in tally.runs.items():
            self._audited.set(number, {"empanel.state": state})
        for kind, number in tally.gaps.items():
            self._gaps.set(number, {"empanel.kind": kind})

    def queue_waited(self, seconds: float) -> None:
        """Time a seat's message from its publish to the claim that it led to."""
        self._queue.record(max(0.0, seconds))

    def slot_waited(self, seconds: float, provider: str, *, free: bool) -> None:
        """Time a delivery in the queue for a provider's slot; `free` says whether it got one."""
        self._slot.record(seconds, {"empanel.provider": provider, "empanel.free": free})

    def called(
        self, seconds: float, attributes: Mapping[str, str | int], usage: Usage | None
    ) -> None:
        """Time a provider request, and count what it says it used."""
        if not self.live:
            return
        self._calls.record(seconds, attributes)
        if usage is not None:
            named = {name: value for name, value in attributes.items() if name != ERROR_TYPE}
            for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                self._tokens.record(tokens, named | {"gen_ai.token.type": kind})


def _seconds(meter: Meter, name: str, about: str) -> Histogram:
    return meter.create_histogram(
        name, "s", about, explicit_bucket_boundaries_advisory=WAIT_SECONDS
    )


def _error(code: str | None) -> dict[str, str]:
    return {ERROR_TYPE: code} if code is not None else {}
