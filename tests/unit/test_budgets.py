"""Budgets as pure rules: caps that can bind, reservations, costs, a tenant's day."""

from dataclasses import replace
from typing import Any

import pytest

from functions.core.budgets import (
    Caps,
    Reservations,
    budget_of,
    cap_nano_usd,
    day_of,
    day_reservation,
    end_of_day,
    moved,
    nano_usd,
    reserve,
    settled,
    spent_cap,
    trued_up,
    unused,
)
from functions.core.jobs import Attempt, DayReservation, Job, Outcome, Policy, Seat, TenantDay
from tests.unit.records import at, attempt, job

DOLLAR = 10**9


def seat(worst: int | None = DOLLAR, **parameters: Any) -> Seat:
    return replace(job().seats[0], worst_nano_usd=worst, parameters=parameters)


def asked(*seats: Seat, **policy: Any) -> Job:
    chosen = seats or (seat(max_output_tokens=100),)
    return job(seats=chosen, policy=Policy(required_seats=1, **policy))


@pytest.mark.parametrize(
    ("dollars", "cost", "cap"),
    [
        (1.0, DOLLAR, DOLLAR),
        (0.1 + 0.2, 300_000_000, 300_000_000),
        (1.5e-9, 2, 1),
        (0.0, 0, 0),
    ],
)
def test_costs_round_up_and_caps_down(dollars: float, cost: int, cap: int) -> None:
    """A cost is never counted as less than it is, a cap never as more; float noise is neither."""
    assert (nano_usd(dollars), cap_nano_usd(dollars)) == (cost, cap)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, Caps()),
        ({"max_requests": 9}, Caps()),  # 4 attempts and 5 interruptions
        ({"max_requests": 8}, Caps(requests=8)),
        ({"max_cost_usd": 9.0}, Caps()),
        ({"max_cost_usd": 8.99}, Caps(nano_usd=8_990_000_000)),
        ({"max_attempts": 1, "max_requests": 6, "max_cost_usd": 6.0}, Caps()),
    ],
)
def test_what_cannot_bind_is_not_counted(policy: dict[str, Any], expected: Caps) -> None:
    """A cap that all attempts together cannot reach needs no counter."""
    assert budget_of(asked(**policy)) == expected


def test_a_cost_cap_over_an_assumption_can_always_bind() -> None:
    """Without `max_output_tokens` the worst case is assumed, so any cap is counted."""
    assert budget_of(asked(seat(), max_cost_usd=1000.0)) == Caps(nano_usd=1000 * DOLLAR)


@pytest.mark.parametrize(
    ("held", "caps", "room"),
    [
        ({}, Caps(requests=1), True),
        ({"1.1": 0}, Caps(requests=1), False),
        ({"0.1": 0}, Caps(requests=1), True),  # its own, made by a process that died
        ({"1.1": 2 * DOLLAR}, Caps(nano_usd=3 * DOLLAR), True),
        ({"1.1": 2 * DOLLAR + 1}, Caps(nano_usd=3 * DOLLAR), False),
        ({"1.1": DOLLAR}, Caps(requests=1, nano_usd=9 * DOLLAR), False),
    ],
)
def test_a_reservation_needs_room_under_every_cap(
    held: Reservations, caps: Caps, room: bool
) -> None:
    """An attempt is reserved at its worst case, once; else nothing is."""
    wider = reserve(held, "0.1", DOLLAR, caps)
    assert wider == ({**held, "0.1": held.get("0.1", DOLLAR)} if room else None)


def ended(number: int, outcome: Outcome, **fields: Any) -> Attempt:
    return attempt(number, outcome, **fields)


def test_an_attempt_holds_its_cost_once_that_is_known() -> None:
    """Known costs replace the worst case; unknown, cut and running ones keep it; unsent ones go."""
    held = {"0.1": DOLLAR, "0.2": DOLLAR, "0.3": DOLLAR, "0.4": DOLLAR, "0.5": DOLLAR, "1.1": 7}
    own = (
        ended(1, Outcome.INVALID_OUTPUT, cost_usd=0.25),
        ended(2, Outcome.RETRYABLE, cost_usd=0.0),
        ended(3, Outcome.UNKNOWN),
        ended(4, Outcome.RETRYABLE, sent=False, cost_usd=0.0),
        ended(5, Outcome.RUNNING),
    )
    after = settled(held, own)
    assert after == {
        "0.1": DOLLAR // 4,
        "0.2": 0,
        "0.3": DOLLAR,
        "0.5": DOLLAR,
        "1.1": 7,
    }
    assert settled(after, own) == after


def test_what_was_given_back_does_not_come_back() -> None:
    """A known cost is no reservation: an attempt that holds nothing goes on holding nothing."""
    assert settled({}, [ended(1, Outcome.SUCCEEDED, cost_usd=0.5)]) == {}


def test_only_what_was_not_sent_is_unused() -> None:
    """A seat's reservations without an attempt, or with an unsent one, may be given back."""
    held = {"0.1": 1, "0.2": 1, "0.3": 1, "1.1": 1}
    own = (ended(1, Outcome.UNKNOWN), ended(2, Outcome.CANCELED, sent=False))
    assert unused(held, 0, own) == {"0.2", "0.3"}


def test_a_day_is_utc_and_ends_at_midnight() -> None:
    """The day of a moment, and when its caps are free again."""
    assert day_of(at(0)) == "2026-11-29"
    assert end_of_day("2026-12-31").isoformat() == "2027-01-01T00:00:00+00:00"


BOTH = Caps(requests=100, nano_usd=100 * DOLLAR)


@pytest.mark.parametrize(
    ("policy", "requests", "dollars"),
    [
        ({}, 8, 12),  # two seats of 1 and 2 dollars, four attempts each
        ({"max_attempts": 1}, 2, 3),
        ({"max_requests": 3}, 3, 6),
        ({"max_cost_usd": 5.0}, 8, 5),
        ({"max_requests": 100, "max_cost_usd": 100.0}, 8, 12),
    ],
)
def test_a_run_reserves_its_worst_case_of_the_day(
    policy: dict[str, Any], requests: int, dollars: int
) -> None:
    """All attempts of all seats, or what the run's own caps allow when that is less."""
    seats, chosen = (seat(), seat(2 * DOLLAR)), Policy(required_seats=1, **policy)
    wanted = day_reservation(chosen, seats, BOTH, "2026-11-29")
    assert wanted == DayReservation(day="2026-11-29", requests=requests, nano_usd=dollars * DOLLAR)


def test_a_day_counts_only_what_it_caps() -> None:
    """Without caps there is no reservation; with one, the other is not counted."""
    policy, seats = Policy(required_seats=1), (seat(None),)
    assert day_reservation(policy, seats, Caps(), "2026-11-29") is None
    only = day_reservation(policy, seats, Caps(requests=9), "2026-11-29")
    assert only == DayReservation(day="2026-11-29", requests=4)


def _day(requests: int = 0, nano: int = 0) -> TenantDay:
    return TenantDay(
        tenant="t", day="2026-11-29", expire_at=at(0), requests=requests, nano_usd=nano
    )


@pytest.mark.parametrize(
    ("used", "word"),
    [
        (_day(96, 0), None),
        (_day(97, 0), "97 of the day's 100 requests"),
        (_day(0, 96 * DOLLAR), None),
        (_day(0, 96 * DOLLAR + 1), "of the day's 100.000000 USD"),
    ],
)
def test_a_day_is_full_when_the_worst_case_does_not_fit(used: TenantDay, word: str | None) -> None:
    """The refusal names the cap and what is used of it."""
    wanted = DayReservation(day="2026-11-29", requests=4, nano_usd=4 * DOLLAR)
    reason = spent_cap(used, wanted, BOTH)
    assert reason is None if word is None else word in str(reason)


def test_a_run_that_needs_nothing_fits_into_a_full_day() -> None:
    """A run whose models are free is not refused for money."""
    wanted = DayReservation(day="2026-11-29", nano_usd=0)
    assert spent_cap(_day(0, 500 * DOLLAR), wanted, Caps(nano_usd=DOLLAR)) is None


def test_a_day_is_trued_up_to_what_was_sent() -> None:
    """Requests that were sent count, costs as far as they are known, else the worst case."""
    reserved = DayReservation(day="2026-11-29", requests=4, nano_usd=4 * DOLLAR)
    asked_job = asked(seat(), max_attempts=4)
    attempts = (
        ended(1, Outcome.RETRYABLE, cost_usd=0.0),
        ended(2, Outcome.UNKNOWN),
        ended(3, Outcome.CANCELED, sent=False),
        ended(4, Outcome.SUCCEEDED, cost_usd=0.25),
    )
    real = trued_up(asked_job, reserved, attempts)
    expected = replace(reserved, requests=3, nano_usd=DOLLAR + DOLLAR // 4, final=True)
    assert real == expected
    day = moved(_day(10, 10 * DOLLAR), reserved, real)
    assert (day.requests, day.nano_usd) == (9, 7 * DOLLAR + DOLLAR // 4)
