"""What people did by hand, on record: who, what, when, and about which job, key or incident.

The entry goes into the commit of the deed itself, so that neither is there without the other.
"""

from datetime import datetime, timedelta
from typing import Any

from functions.core.ports import SERVER_TIME, Create
from functions.core.versions import OPERATOR_LOG
from functions.services import Services


def log_entry(
    services: Services,
    *,
    tenant: str | None,
    who: str,
    what: str,
    job: str | None = None,
    **facts: Any,
) -> Create:
    """Return the write that records a deed; `who` is the name of the caller's key.

    `facts` are plain values: identities and states, never contents.
    """
    return deed(
        identity=services.new_id(),
        expire_at=services.clock.now() + timedelta(days=services.settings.retention_days),
        tenant=tenant,
        who=who,
        what=what,
        job=job,
        **facts,
    )


def deed(
    *, identity: str, expire_at: datetime, tenant: str | None, who: str, what: str, **facts: Any
) -> Create:
    """Return the write that records a deed, for who has no services: `identity` is its own."""
    data: dict[str, Any] = {
        "v": OPERATOR_LOG.written,
        "tenant": tenant,
        "who": who,
        "what": what,
        "at": SERVER_TIME,
        "expire_at": expire_at,
        **facts,
    }
    present = {name: value for name, value in data.items() if value is not None}
    return Create(path=f"operator_log/{identity}", data=present)
