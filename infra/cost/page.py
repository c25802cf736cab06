"""COST.md: the same numbers for people, every one of them computed."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infra.cost.markdown import WIDTH, across, dollars, prose, table
from infra.cost.model import (
    BASES,
    MONTH_SECONDS,
    Counts,
    Line,
    Price,
    idle,
    in_flight,
    instance_seconds,
    keeping,
    running,
    total,
    with_assumed,
)

SEATS = 4  # of the job that the bill is for
MOST_USD = 30.0  # for running a million seats at concurrency 80
GROUPS = {
    "run": "Cloud Run",
    "ledger": "Firestore",
    "bucket": "Cloud Storage",
    "messages": "Pub/Sub",
    "logs": "Cloud Logging",
    "network": "Network",
}
MILLION = 1_000_000


def page(counts: Counts, prices: Mapping[str, Price]) -> str:
    """Return the text of COST.md."""
    parts = (_short, _bill, _sources, _kept, _idle, _moves, _left_out, _prices)
    blocks = [block for part in parts for block in part(counts, prices)]
    return "\n\n".join(blocks) + "\n"


def _short(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    assumed = counts.assumed
    sums = (
        (
            "**running a million seats**, from acceptance to the audit",
            running(counts, prices, SEATS),
        ),
        (f"keeping them for {assumed.retention_days} days", keeping(counts, prices, SEATS)),
        ("a month in which nothing is asked", idle(counts, prices)),
    )
    yield "# What it costs"
    yield prose(
        """
        Computed by `python -m infra.cost --write` from `infra/cost/counts.toml` (what one job does)
        and `infra/cost/prices.toml` (list prices, as far as they could be found: see
        [Prices](#prices)). Not edited by hand: a test compares this page with the program, and
        another the counts with what the code does.
        """
    )
    yield table(("what", "US$"), [(what, dollars(total(lines))) for what, lines in sums])
    yield prose(
        f"""
        At {SEATS} seats a job, concurrency {assumed.concurrency}, {assumed.seat_seconds:g} s a seat
        and no retries. The aim is at most {MOST_USD:g} $ for running a million seats. What the
        providers take is not in it: 750 $ a million seats for a model at 0.15 $ and 0.60 $ a
        million tokens, with 3,000 tokens in and 500 out.
        """
    )


def _bill(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    lines = running(counts, prices, SEATS)
    rows: list[Sequence[str]] = []
    for group, title in GROUPS.items():
        own = [line for line in lines if line.group == group]
        rows.append((f"**{title}**", "", "", f"**{dollars(total(own))}**"))
        rows += _rows(own)
    rows.append(("**together**", "", "", f"**{dollars(total(lines))}**"))
    yield "## The bill of a million seats"
    yield table(("line", "quantity", "of", "US$"), rows)


def _sources(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    assumed = counts.assumed
    cpu = ", ".join(f"{target} {ms:g} ms" for target, ms in assumed.cpu_ms.items())
    alone = assumed.cpu_ms["evaluate"] / 1000 / assumed.utilisation
    yield "## Where the quantities come from"
    yield prose(
        """
        **Counted.** `python -m tests.infra.counting` takes one job through everything and counts
        documents, requests of the bucket, messages, log lines and bytes; `tests/infra/test_cost.py`
        fails when the code does something else than `counts.toml` says. Facts of 12,000 bytes, a
        webhook, one look at the job and one report. Documents count as Firestore bills them: each
        path of a read, each result of a query and at least one, one for a count of up to a
        thousand. Entries of indexes cost nothing to write, only to keep.
        """
    )
    yield prose(
        f"""
        **CPU.** `python -m tests.bench.seat_cpu` runs jobs on the local stack and reads each
        process's own CPU time: {cpu} a seat. A handler that waits for a provider is billed for its
        share of an instance instead, and that is more: Cloud Run keeps {assumed.utilisation:.0%} of
        the slots in use (its documented target), so {in_flight(assumed):g} requests share an
        instance, and a seat of {assumed.seat_seconds:g} s is billed for
        {instance_seconds(assumed, SEATS)["evaluate"]:.3f} s of one. CPU alone would be {alone:.3f}
        s.
        """
    )
    yield prose(
        """
        **Assumed**, each with its reason in `counts.toml`: the seconds of a seat, of a request to
        the API and of a notification, and what Cloud Logging adds to a line.
        """
    )


def _kept(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    job, assumed = counts.jobs[SEATS], counts.assumed
    lines = keeping(counts, prices, SEATS)
    rows = [(line.what, f"{line.quantity:,.1f}", dollars(line.usd)) for line in lines]
    yield "## Keeping"
    yield prose(
        f"""
        A seat leaves {job.ledger_bytes / SEATS:,.0f} bytes in the ledger, indexes and its share of
        the facts with them, and {job.bucket_bytes / SEATS:,.0f} in the bucket. A million of them
        for {assumed.retention_days} days:
        """
    )
    yield table(
        ("line", "GiB-months", "US$"), [*rows, ("**together**", "", f"**{dollars(total(lines))}**")]
    )
    yield prose(
        """
        Evaluations have no time to live: a later job may use their answers again, and they stay
        until they are deleted by hand. Point-in-time recovery keeps older versions for seven days
        more, and the bucket what was deleted: both are small beside the rest.
        """
    )


def _idle(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    lines = idle(counts, prices)
    yield "## A month without a job"
    yield "Not in the million: it is the same for one job and for a hundred million seats."
    yield table(
        ("line", "quantity", "of", "US$"),
        [*_rows(lines), ("**together**", "", "", f"**{dollars(total(lines))}**")],
    )
    yield prose(
        f"""
        Repair stays for nearly all of each minute, so that a due retry waits seconds
        (`decisions/2026-11-29-repair-stays.md`). Warm instances (`min_instances`) come on top:
        {dollars(MONTH_SECONDS * _second(counts, prices))} $ a month each at the price of a busy
        one, which is the most it can be.
        """
    )


def _moves(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    def run(seats: int = SEATS, **changes: Any) -> str:
        return dollars(total(running(with_assumed(counts, **changes), prices, seats)))

    def keep(days: int) -> str:
        return dollars(total(keeping(with_assumed(counts, retention_days=days), prices, SEATS)))

    yield "## What moves it"
    yield "US$ for running a million seats, one thing changed at a time."
    yield across("seats a job", {n: run(n) for n in counts.jobs})
    yield across("concurrency", {n: run(concurrency=n) for n in (1, 10, 80, 200)})
    yield across("% of slots in use", {n: run(utilisation=n / 100) for n in (40, 50, 60, 80)})
    yield across("seconds a seat", {n: run(seat_seconds=n) for n in (5, 20, 60, 120)})
    yield across("retries a seat", {n: run(retries=n) for n in (0, 0.1, 0.5, 1)})
    yield prose(
        f"""
        The aim of {MOST_USD:g} $ is met at the {counts.assumed.utilisation:.0%} of slots that Cloud
        Run documents as its target, and not at 50 %, with which `locals.tf` plans the most
        instances: the same seats cost {run(utilisation=0.5)} $ then. Nobody has measured what this
        load gets.
        """
    )
    yield prose(
        """
        At concurrency 1 every seat that waits has an instance of its own. A retry costs the
        provider's price again, which is many times its share here. A small job pays for its job,
        run and notification alone. For keeping, by days of retention:
        """
    )
    yield across("retention, days", {n: keep(n) for n in (30, 90, 400)})
    yield prose(
        f"""
        Each further look at a job of {SEATS} seats costs {dollars(_look(counts, prices))} $ a
        million: wait with `Prefer: wait`, or take the webhook, instead of asking every second.
        """
    )


def _left_out(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    points = (
        "**The providers' price.**",
        "The idle month above (repair's presence, 64 $ of it), and warm instances.",
        "Inputs over 32 KiB, which are objects: a class A operation each, a class B one a seat.",
        "Caps of cost or requests: reservation and true-up (`tests/faults/test_budget_counts.py`).",
        "Reading an API key: once in ten seconds for each process and key.",
        "An hour's window and the first answer of a model: a document each.",
        "The audit's fixed work: an hour's first thirteen minutes are looked at twice, each window "
        "gets a report, sealed windows are sampled.",
        "Log-based metrics and alarms (some dollars a month), exported traces, builds and images "
        "(cents), restores; and whatever a free tier or a discount takes off.",
        "Cold starts: their seconds are billed when a request waits for them.",
    )
    yield "## What is not in it"
    yield "\n".join(textwrap.fill(f"- {point}", WIDTH, subsequent_indent="  ") for point in points)


def _prices(counts: Counts, prices: Mapping[str, Price]) -> Iterator[str]:
    lines = running(counts, prices, SEATS)
    rest_on = {
        basis: dollars(total([line for line in lines if line.price.basis == basis]))
        for basis in BASES
    }
    rows = [
        (p.unit, f"{p.usd:g}", f"{p.per:,}", p.basis, p.source, p.read) for p in prices.values()
    ]
    yield "## Prices"
    yield prose(
        f"""
        List prices in US$, europe-west1, no free tier. None was read off Google's own price list:
        look them up before relying on a sum. Of the {dollars(total(lines))} $ for running a million
        seats {rest_on["copy"]} $ rest on a copy of the page that is named, {rest_on["second hand"]}
        $ on a price at second hand (a document read, out of a test fixture in a public repository)
        and {rest_on["analogy"]} $ on an analogy (documents written and deleted cost in Iowa what
        the page says, and ten per cent more in Belgium if they follow the reads). Storage of
        documents is by the same analogy; backups, schedules and secrets are from memory.
        """
    )
    yield table(("of", "US$", "per", "basis", "source", "read"), rows)


def _second(counts: Counts, prices: Mapping[str, Price]) -> float:
    """Return what a second of an instance costs."""
    cpu = counts.assumed.vcpus * prices["run_vcpu_second"].each
    return cpu + counts.assumed.memory_gib * prices["run_gib_second"].each


def _look(counts: Counts, prices: Mapping[str, Price]) -> float:
    """Return what a million further looks at a job cost."""
    seconds = counts.assumed.api_seconds / in_flight(counts.assumed)
    reads = counts.jobs[SEATS].reads["status"] * prices["firestore_read"].each
    run = seconds * _second(counts, prices) + prices["run_request"].each
    return (reads + run) * MILLION


def _rows(lines: Iterable[Line]) -> list[Sequence[str]]:
    return [(line.what, _quantity(line), line.price.unit, dollars(line.usd)) for line in lines]


def _quantity(line: Line) -> str:
    return f"{line.quantity:,.0f}" if line.quantity >= 100 else f"{line.quantity:,.3f}"
