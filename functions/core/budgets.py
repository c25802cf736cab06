"""How many requests a run may spend: reservations by seat and attempt number. Pure.

A reservation is made before the claim and names the attempt it is for, so one that was made by a
process that died is used by the next claim of that attempt, not lost. Once a request was sent its
reservation is never given back; whoever claims looks again that it is still there.
"""

from collections.abc import Iterable

from functions.core.jobs import Attempt, Job
from functions.core.leases import MAX_INTERRUPTIONS

Reservations = frozenset[str]


def can_bind(job: Job) -> bool:
    """Whether the job's cap could ever be reached; where it cannot, nothing is counted."""
    cap = job.policy.max_requests
    most = len(job.seats) * (job.policy.max_attempts + MAX_INTERRUPTIONS)
    return cap is not None and cap < most


def key(seat: int, number: int) -> str:
    """Return the name of one attempt's reservation."""
    return f"{seat}.{number}"


def reserve(held: Reservations, wanted: str, cap: int) -> Reservations | None:
    """Return the reservations with `wanted` among them, None when the cap leaves no room."""
    if wanted in held:
        return held
    return held | {wanted} if len(held) < cap else None


def unsent(own: Iterable[Attempt]) -> Reservations:
    """Return the reservations of attempts whose requests certainly never left: that stays so."""
    return frozenset(key(a.seat, a.number) for a in own if not a.sent)


def unused(held: Reservations, seat: int, own: Iterable[Attempt]) -> Reservations:
    """Return a seat's reservations whose requests were not sent, as far as `own` tells.

    Others may be about to claim with one that has no attempt yet.
    """
    sent = {key(a.seat, a.number) for a in own if a.sent}
    return frozenset(name for name in held if name.startswith(f"{seat}.") and name not in sent)
