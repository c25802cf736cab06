"""What may be spent, by a run and by a tenant's day, and what is reserved of it. Pure.

A run's reservation is made before the claim and names the attempt it is for, so one that was made
by a process that died is used by the next claim of that attempt, not lost. It holds the attempt's
worst case until its real cost is known. Once a request was sent its reservation is never given
back; whoever claims looks again that it is still there.

A tenant's day is reserved for a whole run at acceptance, and trued up once when the run's seats
have all ended.

Money is counted in whole billionths of a US dollar, so that sums and comparisons are exact.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from functions.core.jobs import Attempt, DayReservation, Job, Policy, Seat, TenantDay
from functions.core.leases import MAX_INTERRUPTIONS

Reservations = Mapping[str, int]
"""What each attempt holds, in nano-dollars, by its name; 0 where only requests are counted."""

NANO = 10**9
_NOISE_DIGITS = 3  # float sums like 0.1 + 0.2 are off by far less than that of a nano-dollar


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """The most that may be reserved; None where there is no cap, or where it cannot bind."""

    requests: int | None = None
    nano_usd: int | None = None

    @property
    def any(self) -> bool:
        """Whether anything is capped."""
        return self.requests is not None or self.nano_usd is not None


def nano_usd(dollars: float) -> int:
    """Return an amount in nano-dollars, rounded up: a cost is never counted as less than it is."""
    return math.ceil(round(dollars * NANO, _NOISE_DIGITS))


def cap_nano_usd(dollars: float) -> int:
    """Return a cap in nano-dollars, rounded down."""
    return math.floor(round(dollars * NANO, _NOISE_DIGITS))


def in_usd(nano: int) -> float:
    """Return nano-dollars as dollars, for people."""
    return nano / NANO


# A run


def budget_of(job: Job) -> Caps:
    """Return the run's caps that could ever be reached; where none could, nothing is counted.

    A cost cap above all worst cases together can still be reached when a seat has no
    `max_output_tokens`: its worst case is an assumption then (`functions.worst_cases`).
    """
    each = job.policy.max_attempts + MAX_INTERRUPTIONS
    requests, cost = job.policy.max_requests, job.policy.max_cost_usd
    if requests is not None and requests >= len(job.seats) * each:
        requests = None
    nano = None if cost is None else cap_nano_usd(cost)
    bounded = all("max_output_tokens" in seat.parameters for seat in job.seats)
    worst = worst_of_all(job.seats)
    if nano is not None and bounded and worst is not None and nano >= worst * each:
        nano = None
    return Caps(requests=requests, nano_usd=nano)


def can_bind(job: Job) -> bool:
    """Whether a cap of the run could ever be reached."""
    return budget_of(job).any


def worst_of_all(seats: Sequence[Seat]) -> int | None:
    """Return what one attempt of each seat costs at worst; None when that is unknown for any."""
    worst = [seat.worst_nano_usd for seat in seats]
    return None if None in worst else sum(nano for nano in worst if nano is not None)


def key(seat: int, number: int) -> str:
    """Return the name of one attempt's reservation."""
    return f"{seat}.{number}"


def reserve(held: Reservations, wanted: str, worst: int, caps: Caps) -> Reservations | None:
    """Return the reservations with `wanted` among them, None when a cap leaves no room.

    `worst` is what the attempt costs at worst, in nano-dollars.
    """
    if wanted in held:
        return held
    if caps.requests is not None and len(held) >= caps.requests:
        return None
    if caps.nano_usd is not None and sum(held.values()) + worst > caps.nano_usd:
        return None
    return {**held, wanted: worst}


def settled(held: Reservations, own: Iterable[Attempt]) -> Reservations:
    """Return the reservations after what is known of a seat's attempts.

    One whose request certainly never left is gone: that stays so. One whose cost is known holds
    that cost. Any other keeps its worst case.
    """
    after = dict(held)
    for attempt in own:
        name = key(attempt.seat, attempt.number)
        if not attempt.sent:
            after.pop(name, None)
        elif name in after and attempt.cost_usd is not None:
            after[name] = nano_usd(attempt.cost_usd)
    return after


def unused(held: Reservations, seat: int, own: Iterable[Attempt]) -> frozenset[str]:
    """Return a seat's reservations whose requests were not sent, as far as `own` tells.

    Others may be about to claim with one that has no attempt yet.
    """
    sent = {key(a.seat, a.number) for a in own if a.sent}
    return frozenset(name for name in held if name.startswith(f"{seat}.") and name not in sent)


# A tenant's day


def day_of(moment: datetime) -> str:
    """Return the day `moment` lies in, UTC, as `2026-11-29`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def end_of_day(day: str) -> datetime:
    """Return the moment at which a day ends, UTC."""
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1)


def day_reservation(
    policy: Policy, seats: Sequence[Seat], caps: Caps, day: str
) -> DayReservation | None:
    """Return what a run reserves of its tenant's day; None when the day has no cap.

    The worst case without interruptions by shutdowns: every seat spends all its attempts, or the
    run all that its own caps allow. The seats' worst cases must be known where money is capped.
    """
    if not caps.any:
        return None
    requests = len(seats) * policy.max_attempts
    if policy.max_requests is not None:
        requests = min(requests, policy.max_requests)
    return DayReservation(
        day=day,
        requests=None if caps.requests is None else requests,
        nano_usd=None if caps.nano_usd is None else _most_nano_usd(policy, seats),
    )


def _most_nano_usd(policy: Policy, seats: Sequence[Seat]) -> int:
    worst = [seat.worst_nano_usd or 0 for seat in seats]
    most = sum(worst) * policy.max_attempts
    if policy.max_requests is not None:
        most = min(most, max(worst) * policy.max_requests)
    if policy.max_cost_usd is not None:
        most = min(most, cap_nano_usd(policy.max_cost_usd))
    return most


def spent_cap(day: TenantDay, wanted: DayReservation, caps: Caps) -> str | None:
    """Return, in words, the cap of a day that leaves no room for a run; None when it fits."""
    requests, nano = wanted.requests, wanted.nano_usd
    if caps.requests is not None and requests and day.requests + requests > caps.requests:
        return (
            f"{day.requests} of the day's {caps.requests} requests are spent or reserved, and this"
            f" job may need {requests}"
        )
    if caps.nano_usd is not None and nano and day.nano_usd + nano > caps.nano_usd:
        return (
            f"{in_usd(day.nano_usd):.6f} of the day's {in_usd(caps.nano_usd):.6f} USD are spent or"
            f" reserved, and this job may need {in_usd(nano):.6f}"
        )
    return None


def moved(day: TenantDay, before: DayReservation | None, after: DayReservation) -> TenantDay:
    """Return the day with one run's part changed from `before` (None: nothing yet) to `after`."""
    was_requests = before.requests or 0 if before else 0
    was_nano = before.nano_usd or 0 if before else 0
    return replace(
        day,
        requests=day.requests + (after.requests or 0) - was_requests,
        nano_usd=day.nano_usd + (after.nano_usd or 0) - was_nano,
    )


def trued_up(job: Job, reserved: DayReservation, attempts: Iterable[Attempt]) -> DayReservation:
    """Return what the run really took of its day, from all its own attempts, each of them ended.

    An attempt whose cost is unknown counts at its worst case.
    """
    sent = [attempt for attempt in attempts if attempt.sent]
    costs = (
        nano_usd(a.cost_usd) if a.cost_usd is not None else job.seats[a.seat].worst_nano_usd or 0
        for a in sent
    )
    return replace(
        reserved,
        requests=None if reserved.requests is None else len(sent),
        nano_usd=None if reserved.nano_usd is None else sum(costs),
        final=True,
    )
