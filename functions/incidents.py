"""Incidents: something an operator must know, recorded once per cause.

The identity of an incident is a digest of its kind and cause, so the same finding, seen again by a
redelivery or the next repair, does not open a second one.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Any

from functions import telemetry
from functions.core.cursors import decode_cursor, encode_cursor
from functions.core.documents import incident_path
from functions.core.errors import WriteConflict
from functions.core.jobs import SCHEMA_VERSION, Job
from functions.core.ports import SERVER_TIME, Create, Query, Snapshot, Update
from functions.services import Services

OPEN, RESOLVED = "open", "resolved"
OPERATOR = "operator"  # who answers for what belongs to no job

ESCALATION_HOURS = {
    "output_missing": 4.0,  # a success whose object is gone
    "output_damaged": 4.0,  # a success whose object is not what was stored
    "input_missing": 4.0,  # the facts or the rubric of an open job are gone
    "failure_missing": 24.0,  # a failed seat without its record
    "aged_gap": 1.0,  # accepted, past its time, and not ended
    "orphan_output": 24.0,  # an answer that was paid for and belongs to nothing
    "notification_lost": 24.0,  # a run's end that could not be told
    "dead_letter": 4.0,  # a message given up by the topic
    "unreadable_message": 24.0,
    "unreadable_record": 4.0,
    "malformed_record": 4.0,  # a document that no audit can count
    "off_window": 24.0,  # a run counted in another hour than it was accepted in
    "changed_after_seal": 1.0,
    "window_unsealed": 24.0,  # its records will expire before it is sealed
}


def escalation_seconds(kind: str) -> float:
    """Return how long an incident of a kind may stay open before it concerns more than its owner.

    Raises:
        KeyError: there is no such kind.
    """
    return ESCALATION_HOURS[kind] * 3600.0


def incident_id(kind: str, cause: str) -> str:
    """Return the identity of the incident of one cause."""
    return "inc_" + hashlib.sha256(f"{kind}\n{cause}".encode()).hexdigest()[:40]


async def open_incident(
    services: Services,
    kind: str,
    cause: str,
    *,
    job: Job | None = None,
    job_id: str | None = None,
    tenant: str | None = None,
    owner: str | None = None,
    seat: str | None = None,
    detail: str,
    **facts: Any,
) -> bool:
    """Record an incident; False when the same cause has one already.

    `job` gives tenant, job and owner; where it is not at hand they are named one by one. `facts`
    holds nothing but identities and, of a message nobody could read, its first bytes.

    Raises:
        LedgerUnavailable: it is not certain that the incident is on record.
    """
    identity = incident_id(kind, cause)
    document = {
        "v": SCHEMA_VERSION,
        "kind": kind,
        "tenant": job.tenant if job else tenant,
        "job": job.id if job else job_id,
        "seat": seat,
        "owner": job.owner if job else owner or OPERATOR,
        "opened_at": SERVER_TIME,
        "escalate_at": services.clock.now() + timedelta(seconds=escalation_seconds(kind)),
        "status": OPEN,
        "detail": detail[:1000],
        **facts,
    }
    present = {name: value for name, value in document.items() if value is not None}
    try:
        await services.ledger.commit(Create(path=incident_path(identity), data=present))
    except WriteConflict:
        return False
    telemetry.error(
        "incident opened", incident=identity, kind=kind, job=document["job"], detail=detail[:300]
    )
    return True


async def list_incidents(
    services: Services, tenant: str, status: str | None, *, limit: int, cursor: str | None
) -> tuple[list[Snapshot], str | None]:
    """Return a page of a tenant's incidents, newest first, and the next page's cursor.

    Raises:
        BadCursor: the cursor cannot be read.
        LedgerUnavailable: no answer, or the query lacks its index.
    """
    where = [("tenant", "==", tenant), *([("status", "==", status)] if status else [])]
    query = Query(
        collection="incidents",
        where=tuple(where),
        order_by="opened_at",
        descending=True,
        limit=limit + 1,
        after=decode_cursor(cursor) if cursor is not None else None,
    )
    found = await services.ledger.query(query)
    page = found[:limit]
    more = len(found) > limit
    last = page[-1] if page else None
    next_cursor = encode_cursor((last.data or {})["opened_at"], last.id) if last and more else None
    return page, next_cursor


async def resolve(
    services: Services, tenant: str, incident: str, note: str, by: str
) -> Snapshot | None:
    """Mark a tenant's incident as resolved, with a note; None when there is no such incident.

    One that is resolved already stays as it is.

    Raises:
        LedgerUnavailable: it is not certain that it is on record.
    """
    path = incident_path(incident)
    while True:
        [found] = await services.ledger.get(path)
        if found.data is None or found.data.get("tenant") != tenant:
            return None
        if found.data.get("status") == RESOLVED:
            return found
        fields = {"status": RESOLVED, "note": note, "resolved_by": by, "resolved_at": SERVER_TIME}
        update = Update(path=path, fields=fields, if_updated_at=found.update_time)
        try:
            await services.ledger.commit(update)
        except WriteConflict:
            continue
        telemetry.event("incident resolved", incident=incident, by=by)


def incident_view(found: Snapshot) -> dict[str, Any]:
    """Return an incident as the interface shows it."""
    data = found.data or {}
    return {
        "id": found.id,
        "kind": data.get("kind"),
        "job_id": data.get("job"),
        "seat": data.get("seat"),
        "opened_at": _time(data.get("opened_at")),
        "owner": data.get("owner"),
        "escalate_at": _time(data.get("escalate_at")),
        "status": data.get("status"),
        "detail": data.get("detail"),
        "note": data.get("note"),
        "resolved_at": _time(data.get("resolved_at")),
        "resolved_by": data.get("resolved_by"),
    }


def _time(value: Any) -> str | None:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else None
