"""Which model really answered: changes of an alias, and seats that turned out to be one. Pure.

What is seen: the names in the answers themselves, compared

- over all requests for the same question that are still on its record, of any job;
- over the seats of a job that ask the same model;
- over time, with the first sighting of each name: a stored answer whose model has been answered
  under a new name since, and the first answer under a new name.

What cannot be seen: a change that nobody's request has met yet, one that goes back to a name known
before, and one behind an unchanged name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from functions.core.identities import model_alias
from functions.core.jobs import Job, Output, SeatRecord, Sighting

MODEL_DRIFT = "model_drift"
SAME_MODEL = "same_model"


@dataclass(frozen=True, kw_only=True, slots=True)
class PanelWarning:
    """Something about the panel that makes its answers less comparable than they look."""

    code: str
    seats: tuple[str, ...]
    detail: str


Sightings = Mapping[str, Sequence[Sighting]]  # by alias


def alias_of(job: Job, index: int) -> str:
    """Return the alias that a seat asks for."""
    seat = job.seats[index]
    return model_alias(job.tenant, seat.endpoint, seat.model)


def panel_warnings(
    job: Job, records: Sequence[SeatRecord], sightings: Sightings, *, until: datetime
) -> list[PanelWarning]:
    """Return what is to be said about a run's seats; sightings after `until` do not count."""
    found: list[PanelWarning | None] = [_changed_question(job, record) for record in records]
    found += _changed_between_seats(job, records)
    told = {seat for warning in found if warning for seat in warning.seats}
    for record in records:
        if record.seat not in told:
            known = sightings.get(alias_of(job, record.index), ())
            found.append(_changed_over_time(job, record, known, until))
    found += _same_model(job, records)
    return [warning for warning in found if warning is not None]


def _changed_question(job: Job, record: SeatRecord) -> PanelWarning | None:
    if len(record.models_returned) < 2:
        return None
    names = ", then ".join(record.models_returned)
    model = job.seats[record.index].model
    detail = f"this question to {model} was answered by {names}"
    return PanelWarning(code=MODEL_DRIFT, seats=(record.seat,), detail=detail)


def _changed_between_seats(job: Job, records: Sequence[SeatRecord]) -> list[PanelWarning]:
    warnings = []
    for seats in _grouped(records, lambda record: alias_of(job, record.index)):
        names = dict.fromkeys(filter(None, map(_name, seats)))
        if len(names) > 1:
            asked = job.seats[seats[0].index].model
            detail = f"seats that asked for {asked} were answered by {', '.join(names)}"
            warnings.append(_warning(MODEL_DRIFT, seats, detail))
    return warnings


def _changed_over_time(
    job: Job, record: SeatRecord, known: Sequence[Sighting], until: datetime
) -> PanelWarning | None:
    """Compare an answer with the names that the tenant had seen by `until`."""
    output = record.output
    if output is None or output.model_returned is None:
        return None
    others = sorted(
        (s for s in known if s.model_returned != output.model_returned and s.seen_at <= until),
        key=lambda sighting: sighting.seen_at,
    )
    detail = _since_stored(output, others) or _just_changed(job, output, known, others)
    if detail is None:
        return None
    detail = f"{job.seats[record.index].model} was answered by {detail}"
    return PanelWarning(code=MODEL_DRIFT, seats=(record.seat,), detail=detail)


def _since_stored(output: Output, others: Sequence[Sighting]) -> str | None:
    newer = [s.model_returned for s in others if s.seen_at > output.stored_at]
    if not newer:
        return None
    return f"{newer[-1]} after this answer of {output.model_returned} was stored"


def _just_changed(
    job: Job, output: Output, known: Sequence[Sighting], others: Sequence[Sighting]
) -> str | None:
    """Say that this run met a new name first, when there were others before."""
    own = next((s for s in known if s.model_returned == output.model_returned), None)
    if own is None or own.seen_at < job.run_at:
        return None
    earlier = [s.model_returned for s in others if s.seen_at < own.seen_at]
    if not earlier:
        return None
    return f"{output.model_returned} for the first time, by {earlier[-1]} before"


def _same_model(job: Job, records: Sequence[SeatRecord]) -> list[PanelWarning]:
    """Find seats that asked for different models and were answered under one name.

    Seats that asked for the same model, at one endpoint or at two, were meant to be the same.
    """
    warnings = []
    for seats in _grouped(records, _name):
        asked = dict.fromkeys(job.seats[record.index].model for record in seats)
        if len(asked) > 1:
            names = f"{', '.join(asked)} were all answered by {_name(seats[0])}"
            warnings.append(_warning(SAME_MODEL, seats, f"seats that asked for {names}"))
    return warnings


def _grouped(
    records: Sequence[SeatRecord], key: Callable[[SeatRecord], str | None]
) -> list[list[SeatRecord]]:
    """Return the seats that were answered under a name, those of one key together."""
    groups: dict[str | None, list[SeatRecord]] = {}
    for record in records:
        if _name(record) is not None:
            groups.setdefault(key(record), []).append(record)
    return list(groups.values())


def _name(record: SeatRecord) -> str | None:
    return record.output.model_returned if record.output else None


def _warning(code: str, seats: Sequence[SeatRecord], detail: str) -> PanelWarning:
    return PanelWarning(code=code, seats=tuple(record.seat for record in seats), detail=detail)
