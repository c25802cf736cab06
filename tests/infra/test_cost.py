"""What a million seats cost: the page, the counts behind it, and the limit."""

import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from infra.cost.model import (
    BASES,
    Counts,
    Price,
    idle,
    in_flight,
    instance_seconds,
    keeping,
    read_counts,
    read_prices,
    running,
    total,
    with_assumed,
)
from infra.cost.page import MOST_USD, SEATS, page
from tests.faults import test_operation_counts as operations
from tests.infra.counting import SIZES, count_job, count_retry

INFRA = Path(__file__).resolve().parents[2] / "infra"
BYTES_SHARE = 0.05  # sizes hold names and times, whose lengths may differ a little
FIELDS_OF_BYTES = ("log_bytes", "call_bytes", "answer_bytes", "ledger_bytes", "bucket_bytes")


@pytest.fixture(scope="module")
def counts() -> Counts:
    """What the page is computed from."""
    return read_counts()


@pytest.fixture(scope="module")
def prices() -> dict[str, Price]:
    """The prices that the page is computed with."""
    return read_prices()


def test_the_page_is_what_the_program_prints(counts: Counts, prices: dict[str, Price]) -> None:
    """Nobody has changed a number by hand, nor forgotten `python -m infra.cost --write`."""
    assert (INFRA / "COST.md").read_text(encoding="utf-8") == page(counts, prices)


@pytest.mark.parametrize("seats", SIZES)
def test_a_job_does_what_the_counts_say(counts: Counts, seats: int) -> None:
    """Documents, requests, messages and lines exactly; bytes to five per cent.

    When this fails: `python -m tests.infra.counting`, then `python -m infra.cost --write`.
    """
    measured, stated = asdict(count_job(seats)), asdict(counts.jobs[seats])
    for name in FIELDS_OF_BYTES:
        assert measured.pop(name) == pytest.approx(stated.pop(name), rel=BYTES_SHARE), name
    assert measured == stated


def test_a_retry_does_what_the_counts_say(counts: Counts) -> None:
    """One more attempt in the same handler."""
    assert count_retry() == counts.retry


def test_the_counts_are_those_of_the_operation_counts(counts: Counts) -> None:
    """A seat of four reads 6.0 documents and writes 4.0; an acceptance writes one."""
    job, table = counts.jobs[operations.SEATS], Counter(operations.IN_TURN)
    assert job.reads["evaluate"] == operations.total(table, "read")
    assert job.writes["evaluate"] == operations.total(table, "written")
    assert job.writes["accept"] == sum(operations.ACCEPTANCE.values())
    assert job.reads["evaluate"] == operations.READS_PER_SEAT * operations.SEATS
    assert job.writes["evaluate"] == operations.WRITES_PER_SEAT * operations.SEATS


def test_a_million_seats_cost_at_most_what_is_aimed_at(
    counts: Counts, prices: dict[str, Price]
) -> None:
    """At concurrency 80, from acceptance to audit, without the provider."""
    assert counts.assumed.concurrency == 80
    assert total(running(counts, prices, SEATS)) <= MOST_USD == 30.0


def test_the_page_says_where_the_aim_is_missed(counts: Counts, prices: dict[str, Price]) -> None:
    """Instances that are packed half, as the most instances are planned, cost more than the aim."""
    half = total(running(with_assumed(counts, utilisation=0.5), prices, SEATS))
    assert half > MOST_USD
    assert f"cost {half:.2f} $ then" in " ".join((INFRA / "COST.md").read_text().split())


def test_what_is_assumed_is_what_is_deployed(counts: Counts) -> None:
    """Concurrency, time of a seat, memory and retention are the defaults of the deployment."""
    variables = (INFRA / "variables.tf").read_text(encoding="utf-8")
    run = (INFRA / "run.tf").read_text(encoding="utf-8")
    defaults = dict(
        re.findall(r'^variable "(\w+)" \{\n.*\n.*\n +default += (\S+)$', variables, re.MULTILINE)
    )
    assumed = counts.assumed
    assert int(defaults["concurrency"]) == assumed.concurrency
    assert float(defaults["seat_seconds"]) == assumed.seat_seconds
    assert int(defaults["retention_days"]) == assumed.retention_days
    limits = re.search(r'cpu = "(\d+)", memory = "(\d+)Mi"', run)
    assert limits is not None
    assert (float(limits[1]), int(limits[2]) / 1024) == (assumed.vcpus, assumed.memory_gib)


def test_the_deployments_page_says_what_this_one_says(
    counts: Counts, prices: dict[str, Price]
) -> None:
    """`README.md` of the deployment names both sums, rounded."""
    text = (INFRA / "README.md").read_text(encoding="utf-8")
    seats, month = total(running(counts, prices, SEATS)), total(idle(counts, prices))
    assert f"plus {seats:.0f} $ a million seats" in text
    assert f"An idle system costs about {month:.0f} $ a month" in text


def test_waiting_is_shared_and_computing_is_not(counts: Counts) -> None:
    """At concurrency 1 a seat has an instance of its own; with all slots used, CPU is the floor."""
    alone = with_assumed(counts, concurrency=1)
    assert in_flight(alone.assumed) == 1
    assert instance_seconds(alone.assumed, 4)["evaluate"] == counts.assumed.seat_seconds
    packed = instance_seconds(with_assumed(counts, concurrency=100_000).assumed, 4)["evaluate"]
    cpu_seconds = counts.assumed.cpu_ms["evaluate"] / 1000
    assert packed == pytest.approx(cpu_seconds / counts.assumed.utilisation)


def test_a_line_is_quantity_times_price(counts: Counts, prices: dict[str, Price]) -> None:
    """A million seats create a million objects at 5 $; half the retention costs half."""
    [created] = [line for line in running(counts, prices, 4) if line.what == "outputs created"]
    assert created.quantity == 1_000_000
    assert created.usd == pytest.approx(5.0)
    half = with_assumed(counts, retention_days=counts.assumed.retention_days / 2)
    assert total(keeping(half, prices, 4)) == pytest.approx(total(keeping(counts, prices, 4)) / 2)


def test_every_price_has_its_source_and_date(prices: dict[str, Price]) -> None:
    """A price without them cannot be looked up again; its basis says how far it can be trusted."""
    assert all(re.search(r"\d{4}-\d\d", price.read) and price.source for price in prices.values())
    assert {price.basis for price in prices.values()} == set(BASES)
