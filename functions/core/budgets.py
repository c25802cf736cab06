"""How many requests a run may spend: reservations by seat and attempt number. Pure.

A reservation is made before the claim and names the attempt it is for, so one that was made by a
process that died is used by the next claim of that attempt, not lost. Once a request was sent its
reservation is never given back.
"""

from collections.abc import Iterable

from functions.core.jobs import Job
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


def unused(held: Reservations, seat: int, sent_numbers: Iterable[int]) -> Reservations:
    """Return a seat's reservations whose requests were never sent."""
    sent = {key(seat, number) for number in sent_numbers}
    return frozenset(name for name in held if name.startswith(f"{seat}.") and name not in sent)
