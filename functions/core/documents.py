"""Where records and documents map to each other: paths, and both directions of the conversion.

A field that is None is absent from the document, so timers of finished work leave their index.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from functions.core import versions
from functions.core.access import ApiKey
from functions.core.errors import UnreadableRecord
from functions.core.identities import digest
from functions.core.jobs import (
    DayReservation,
    Evaluation,
    Job,
    SeatRecord,
    Sighting,
    TenantDay,
    Terminal,
)
from functions.core.notifications import Notification
from functions.core.pauses import Pause
from functions.core.ports import DELETE, Snapshot
from functions.core.versions import Form
from functions.core.windows import Window

Record = (
    ApiKey
    | Job
    | Evaluation
    | Notification
    | Pause
    | SeatRecord
    | Sighting
    | Terminal
    | TenantDay
    | Window
)
R = TypeVar(
    "R",
    ApiKey,
    Job,
    Evaluation,
    Notification,
    Pause,
    SeatRecord,
    Sighting,
    Terminal,
    TenantDay,
    Window,
)

FORMS: dict[type[Any], Form] = {
    ApiKey: versions.API_KEY,
    Job: versions.JOB,
    Evaluation: versions.EVALUATION,
    Notification: versions.NOTIFICATION,
    Pause: versions.PAUSE,
    SeatRecord: versions.SEAT,
    Sighting: versions.SIGHTING,
    Terminal: versions.TERMINAL,
    TenantDay: versions.TENANT_DAY,
    Window: versions.WINDOW,
}


def job_path(job: str) -> str:
    """Return the path of a job's document."""
    return f"jobs/{job}"


def evaluation_path(work_key: str) -> str:
    """Return the path of an evaluation's document."""
    return f"evaluations/{work_key}"


def seat_path(job: str, run: int, index: int) -> str:
    """Return the path of the record of one seat's end in one run."""
    return f"jobs/{job}/seats/{run}.{index}"


def terminal_path(job: str, run: int) -> str:
    """Return the path of a run's terminal record."""
    return f"jobs/{job}/terminals/{run}"


def budget_path(job: str, run: int) -> str:
    """Return the path of a run's budget; it exists only where a cap can bind."""
    return f"budgets/{job}.{run}"


def reservations(snapshot: Snapshot) -> dict[str, int]:
    """Return what the attempts of a run have reserved, nothing where it has no budget document.

    Raises:
        UnreadableRecord: the field is wrong, or the version is unknown; names the path.
    """
    if snapshot.data is None:
        return {}
    held = versions.BUDGET.read(snapshot.data, snapshot.path).get("reservations", {})
    if not isinstance(held, dict) or not all(isinstance(nano, int) for nano in held.values()):
        raise UnreadableRecord(
            f"{snapshot.path}: unreadable field reservations", where=snapshot.path
        )
    return dict(held)


def tenant_day_path(tenant: str, day: str) -> str:
    """Return the path of what a tenant's day holds; it exists only where the day is capped."""
    return f"tenant_days/{tenant}.{day}"


def day_fields(reservation: DayReservation) -> dict[str, Any]:
    """Return the field `day` of a job's head, for an update of the head."""
    return {"day": _fields(reservation)}


def stop_path(job: str, run: int) -> str:
    """Return the path of the marker that a run was stopped."""
    return f"stops/{job}.{run}"


def sighting_path(alias: str, name: str) -> str:
    """Return the path of the first time that a model was answered under a name."""
    return f"sightings/{alias}.{name}"


def pause_path(scope: str, model: str) -> str:
    """Return the path of the pause of a model under one key; a model's name may hold anything."""
    return f"providers/{digest({'scope': scope, 'model': model})}"


def window_path(tenant: str, window: str) -> str:
    """Return the path of what is known of a tenant's window."""
    return f"windows/{tenant}.{window}"


def run_path(job: str, run: int) -> str:
    """Return the path of the record of a replay; a job's first run is the job itself."""
    return f"runs/{job}.{run}"


def notification_path(decision: str, run: int) -> str:
    """Return the path of the notification of a run's end."""
    return f"notifications/{decision}.{run}"


def action_path(decision: str, name: str) -> str:
    """Return the path of an action of a decision."""
    return f"decisions/{decision}/actions/{name}"


def api_key_path(digest: str) -> str:
    """Return the path of an API key's record, under the hash of its text."""
    return f"api_keys/{digest}"


def incident_path(incident: str) -> str:
    """Return the path of an incident."""
    return f"incidents/{incident}"


def to_document(record: Record) -> dict[str, Any]:
    """Return the document of a record: plain values, lists, maps and aware datetimes.

    It is of the version that this release writes, whichever the record was read from.
    """
    return _fields(record) | {"v": FORMS[type(record)].written}


def changes(before: R, after: R) -> dict[str, Any]:
    """Return the top-level fields to update so that the document of `before` becomes `after`'s.

    Of one that was read from another version these are all fields, so that it is of one version.
    """
    old, new = to_document(before), to_document(after)
    if old != new and before.v != new["v"]:
        old = dict.fromkeys(old)
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    return changed | {name: DELETE for name in old if name not in new}


def from_snapshot(kind: type[R], snapshot: Snapshot) -> R | None:
    """Return the record in a snapshot, None when the document does not exist.

    Raises:
        UnreadableRecord: a field is missing or wrong, or the version is unknown; names the path.
    """
    if snapshot.data is None:
        return None
    return from_document(kind, snapshot.data, snapshot.path)


def from_document(kind: type[R], data: Mapping[str, Any], path: str) -> R:
    """Return the record in a document that exists.

    Raises:
        UnreadableRecord: as for `from_snapshot`.
    """
    fields = FORMS[kind].read(data, path)
    try:
        record: R = _adapter(cast(Hashable, kind)).validate_python(fields)
        return record
    except ValidationError as exc:
        where = ", ".join(".".join(map(str, error["loc"])) for error in exc.errors()[:5])
        text = f"{path}: unreadable field {where}"
        # Not `from exc`: its text repeats the values, facts among them, and stacks are logged.
        raise UnreadableRecord(text, where=path) from None


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    """Building an adapter compiles its schema: once per kind and process."""
    return TypeAdapter(cast(Any, kind))


def _fields(record: Any) -> dict[str, Any]:
    values = ((name, getattr(record, name)) for name in _names(cast(Hashable, type(record))))
    return {name: _plain(value) for name, value in values if value is not None}


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast(Any, kind)))


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return _fields(value) if hasattr(value, "__dataclass_fields__") else value
