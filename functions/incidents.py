"""Incidents: something an operator must know, recorded once per cause.

The identity of an incident is a digest of its kind and cause, so the same finding, seen again by a
redelivery or the next repair, does not open a second one.

An incident of no tenant, such as a message that nobody can read, is shown to the operators of one
tenant only (`EMPANEL_OPERATOR_TENANT`): it may hold the first bytes of anybody's message.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Protocol

from functions import telemetry
from functions.core.cursors import decode_cursor, encode_cursor
from functions.core.documents import incident_path
from functions.core.errors import UnknownVersion, UnreadableRecord, WriteConflict
from functions.core.jobs import Job
from functions.core.ports import SERVER_TIME, Clock, Create, Ledger, Query, Snapshot, Update
from functions.core.times import rfc3339
from functions.core.versions import INCIDENT
from functions.operator_log import log_entry
from functions.services import Services

OPEN, RESOLVED = "open", "resolved"
UNREADABLE = "unreadable_record"
OPERATOR = "operator"  # who answers for what belongs to no job
# What is kept of a message that an incident is about; the preview of one that names no job only.
MESSAGE = ("digest", "message_id", "subscription", "deliveries", "preview")

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
    UNREADABLE: 4.0,
    "malformed_record": 4.0,  # a document that no audit can count
    "off_window": 24.0,  # a run counted in another hour than it was accepted in
    "changed_after_seal": 1.0,
    "window_unsealed": 24.0,  # its records will expire before it is sealed
}


class Books(Protocol):
    """What an incident is recorded with; `Services` are such."""

    @property
    def ledger(self) -> Ledger:
        """Where it is recorded."""
        ...

    @property
    def clock(self) -> Clock:
        """What it is told to escalate by."""
        ...


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
    services: Books,
    kind: str,
    cause: str,
    *,
    job: Job | None = None,
    job_id: str | None = None,
    tenant: str | None = None,
    owner: str | None = None,
    seat: str | None = None,
    detail: str,
    again: bool = False,
    **facts: Any,
) -> bool:
    """Record an incident; False when the same cause has one already.

    `again` says that the cause has come anew, rather than being there still: an incident of it that
    was resolved is opened again.

    `job` gives tenant, job and owner; where it is not at hand they are named one by one. Without a
    tenant the incident belongs to nobody, which is stored as null, so that a query can find it.
    `facts` holds nothing but identities and, of a message nobody could read, its first bytes.

    Raises:
        LedgerUnavailable: it is not certain that the incident is on record.
    """
    identity = incident_id(kind, cause)
    document = {
        "v": INCIDENT.written,
        "kind": kind,
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
    present["tenant"] = job.tenant if job else tenant
    try:
        await services.ledger.commit(Create(path=incident_path(identity), data=present))
    except WriteConflict:
        if not again or not await _open_again(services, identity, present):
            return False
    telemetry.error(
        "incident opened", incident=identity, kind=kind, job=document["job"], detail=detail[:300]
    )
    return True


async def open_unreadable(services: Books, error: UnreadableRecord, otherwise: str) -> bool:
    """Record that a stored record cannot be read; one incident for each record, whoever meets it.

    `otherwise` names what is concerned where the error names no record.

    Raises:
        LedgerUnavailable: it is not certain that the incident is on record.
    """
    return await open_incident(services, UNREADABLE, error.where or otherwise, detail=str(error))


async def _open_again(services: Books, identity: str, present: dict[str, Any]) -> bool:
    """Open a resolved incident again; say whether it was. What was noted of it before stays.

    One of a version that is not read here stays as it is.
    """
    [found] = await services.ledger.get(incident_path(identity))
    if not is_resolved(found):
        return False
    fields = {name: present[name] for name in ("status", "opened_at", "escalate_at", "detail")}
    update = Update(path=found.path, fields=fields, if_updated_at=found.update_time)
    try:
        await services.ledger.commit(update)
    except WriteConflict:
        return False  # by another just now
    return True


def is_resolved(found: Snapshot) -> bool:
    """Whether this is an incident, of a version that is read here, which an operator resolved."""
    try:
        return found.exists and _fields(found).get("status") == RESOLVED
    except UnknownVersion as exc:
        telemetry.warning("incident not read", path=found.path, error=str(exc))
        return False


def _fields(found: Snapshot) -> dict[str, Any]:
    return INCIDENT.read(found.data or {}, found.path)


def tenants_seen(services: Services, tenant: str, *, operator: bool) -> tuple[str | None, ...]:
    """Return whose incidents a caller may see and resolve; None stands for those of no tenant."""
    trusted = operator and tenant == services.settings.operator_tenant
    return (tenant, None) if trusted else (tenant,)


async def list_incidents(
    services: Services,
    tenants: Sequence[str | None],
    status: str | None,
    *,
    limit: int,
    cursor: str | None,
) -> tuple[list[Snapshot], str | None]:
    """Return a page of the incidents of `tenants`, newest first, and the next page's cursor.

    Raises:
        BadCursor: the cursor cannot be read, or is another list's.
        LedgerUnavailable: no answer, or the query lacks its index.
    """
    of = ["incidents", list(tenants), status]
    after = decode_cursor(of, cursor) if cursor is not None else None
    queries = [_query(tenant, status, limit + 1, after) for tenant in tenants]
    pages = await asyncio.gather(*map(services.ledger.query, queries))
    # Each page is in this order, and goes at least as far as the one that is shown.
    found = sorted(chain(*pages), key=_position, reverse=True)
    page = found[:limit]
    more = len(found) > limit
    return page, encode_cursor(of, *_position(page[-1])) if page and more else None


def _query(
    tenant: str | None, status: str | None, limit: int, after: tuple[Any, str] | None
) -> Query:
    where = [("tenant", "==", tenant), *([("status", "==", status)] if status else [])]
    return Query(
        collection="incidents",
        where=tuple(where),
        order_by="opened_at",
        descending=True,
        limit=limit,
        after=after,
    )


def _position(found: Snapshot) -> tuple[datetime, str]:
    return (found.data or {})["opened_at"], found.id


async def is_known(services: Services, tenants: Sequence[str | None], incident: str) -> bool:
    """Whether there is such an incident of one of these tenants.

    Raises:
        LedgerUnavailable: no answer.
    """
    [found] = await services.ledger.get(incident_path(incident))
    return found.data is not None and found.data.get("tenant") in tenants


async def resolve(
    services: Services, tenants: Sequence[str | None], incident: str, note: str, by: str
) -> Snapshot | None:
    """Mark an incident of `tenants` as resolved, with a note; None when there is no such incident.

    One that is resolved already stays as it is.

    Raises:
        UnknownVersion: it is another release's incident.
        LedgerUnavailable: it is not certain that it is on record.
    """
    path = incident_path(incident)
    while True:
        [found] = await services.ledger.get(path)
        if found.data is None or found.data.get("tenant") not in tenants:
            return None
        if _fields(found).get("status") == RESOLVED:
            return found
        fields = {"status": RESOLVED, "note": note, "resolved_by": by, "resolved_at": SERVER_TIME}
        update = Update(path=path, fields=fields, if_updated_at=found.update_time)
        log = log_entry(
            services,
            tenant=found.data.get("tenant"),
            who=by,
            what="resolve",
            job=found.data.get("job"),
            incident=incident,
        )
        try:
            await services.ledger.commit(update, log)
        except WriteConflict:
            continue
        telemetry.event("incident resolved", incident=incident, by=by)


def incident_view(found: Snapshot) -> dict[str, Any]:
    """Return an incident as the interface shows it; one of an unknown version says just that.

    A list that failed because of it would hide all the others.
    """
    data = found.data or {}
    try:
        data = _fields(found)
    except UnknownVersion as exc:
        shared = ("opened_at", "escalate_at", "status")  # by which the list was asked for
        data = {name: data.get(name) for name in shared}
        data |= {"kind": UNREADABLE, "owner": OPERATOR, "detail": str(exc)}
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
        "message": {name: data.get(name) for name in MESSAGE} if "digest" in data else None,
    }


def _time(value: Any) -> str | None:
    return rfc3339(value) if isinstance(value, datetime) else None
