"""Incidents: something an operator must know, recorded once per cause.

The identity of an incident is a digest of its kind and cause, so the same finding, seen again by a
redelivery or the next repair, does not open a second one.
"""

import hashlib
from typing import Any

from functions import telemetry
from functions.core.documents import incident_path
from functions.core.errors import WriteConflict
from functions.core.jobs import SCHEMA_VERSION, Job
from functions.core.ports import SERVER_TIME, Create
from functions.services import Services


async def open_incident(
    services: Services,
    kind: str,
    cause: str,
    *,
    job: Job | None = None,
    seat: str | None = None,
    detail: str,
    **facts: Any,
) -> bool:
    """Record an incident; False when the same cause has one already. `facts` holds nothing
    but identities and, of a message nobody could read, its first bytes.

    Raises:
        LedgerUnavailable: it is not certain that the incident is on record.
    """
    identity = "inc_" + hashlib.sha256(f"{kind}\n{cause}".encode()).hexdigest()[:40]
    document = {
        "v": SCHEMA_VERSION,
        "kind": kind,
        "tenant": job.tenant if job else None,
        "job": job.id if job else None,
        "seat": seat,
        "owner": job.owner if job else "operator",
        "opened_at": SERVER_TIME,
        "status": "open",
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
