"""A provider's wish to be left alone for a while, and when each waiting seat may go on. Pure.

    hint arrives ------------------------ until ------------- ends_at
                 no new request               the waiting seats go, each at a place of its own

A pause concerns one key at one endpoint (`scope`) and one model. It only ever grows: two pauses are
merged to the later of each time, so whatever the order in which processes hear of them, all come to
the same pause, and nobody is let go earlier than any hint allowed.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from functions.core import versions
from functions.core.retries import MAX_HINT_SECONDS
from functions.core.verdicts import CallFailure

PAUSING_CODES = frozenset({"rate_limited", "overloaded"})
LEAST_HINT_SECONDS = 1.0  # others look once a second: they could not know of a shorter pause
SPREAD = 0.5  # the waiting seats go within this share of the wait ...
LEAST_SPREAD_SECONDS, MOST_SPREAD_SECONDS = 1.0, 60.0  # ... but no faster and no slower than that
PLACES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """No request for `model` under `scope` before `until`; the seats that wait go by `ends_at`.

    `scope` names endpoint and key without giving the key away; `code` is that of the attempt that
    brought the hint.
    """

    scope: str
    model: str
    code: str
    until: datetime
    ends_at: datetime
    v: int = versions.PAUSE.written

    @property
    def key(self) -> tuple[str, str]:
        """What is paused."""
        return self.scope, self.model


def pause_after(failure: CallFailure, *, scope: str, model: str, now: datetime) -> Pause | None:
    """Return the pause that a failed call asks for, None for most failures.

    Only a rate limit or an overload concerns others, and only when the provider said for how long;
    a wait of more than a day is a used-up quota (`functions.core.retries`), which pauses nobody.
    `until` is rounded up to the second, so that the refusals of one burst name the same pause.

    Args:
        failure: what the call brought.
        scope: the provider's `pause_scope`.
        model: the model that was asked.
        now: the server's time after the answer; the hint counts from it.
    """
    hint_seconds = failure.hint_seconds
    if failure.code not in PAUSING_CODES or hint_seconds is None:
        return None
    if not LEAST_HINT_SECONDS <= hint_seconds <= MAX_HINT_SECONDS:  # no number is in no range
        return None
    until = _whole_second_after(now + timedelta(seconds=hint_seconds))
    spread_seconds = min(max(SPREAD * hint_seconds, LEAST_SPREAD_SECONDS), MOST_SPREAD_SECONDS)
    ends_at = until + timedelta(seconds=math.ceil(spread_seconds))
    return Pause(scope=scope, model=model, code=failure.code, until=until, ends_at=ends_at)


def merged(known: Pause | None, other: Pause) -> Pause:
    """Return the pause that honours both; they concern the same key and model."""
    if known is None:
        return other
    later = other if other.until > known.until else known
    return Pause(
        scope=later.scope,
        model=later.model,
        code=later.code,
        until=later.until,
        ends_at=max(known.ends_at, other.ends_at),
    )


def covers(known: Pause | None, other: Pause) -> bool:
    """Whether `known` already says all that `other` says."""
    return known is not None and known.until >= other.until and known.ends_at >= other.ends_at


def place_of(work_key: str) -> float:
    """Return an evaluation's place in any spread, in [0, 1): the same at each of its deliveries."""
    return int(work_key[:8], 16) % PLACES / PLACES


def goes_at(
    pause: Pause, *, place: float, before: datetime, due_at: datetime | None = None
) -> datetime:
    """Return when a seat may go.

    A retry that is due after `until` keeps its time, which chance has placed already. Otherwise the
    seat's place is in the spread, which a deadline within it cuts shorter.

    Args:
        pause: what holds the seat back.
        place: where in the spread, in [0, 1).
        before: the job's deadline.
        due_at: when the seat's own retry is due.
    """
    if due_at is not None and due_at >= pause.until:
        return due_at
    end = min(pause.ends_at, before) if pause.until < before else pause.ends_at
    return pause.until + place * (end - pause.until)


def _whole_second_after(moment: datetime) -> datetime:
    whole = moment.astimezone(UTC).replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
