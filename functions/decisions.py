"""Act once: the first to claim a named action of a decision holds it for ever.

A decision is the same for every run of its job, so a replay that comes to another score does not
let anyone act again. The record is create-only and keeps no time limit.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from functions.core.documents import action_path
from functions.core.errors import LedgerUnavailable, UnreadableRecord, WriteConflict
from functions.core.ports import SERVER_TIME, Create, Query
from functions.core.versions import ACTION
from functions.services import Services


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """Who holds an action and since when; `created` is true for the request that recorded it."""

    holder: str
    at: datetime
    created: bool


async def act_once(
    services: Services, tenant: str, decision: str, name: str, holder: str
) -> Action | None:
    """Claim an action for `holder`; return who holds it. None when the tenant has no such decision.

    Safe to repeat: a holder whose answer was lost asks again and is told the same.

    Raises:
        LedgerUnavailable: it is not certain who holds it; ask again.
        UnreadableRecord: the record of who holds it cannot be read.
    """
    path = action_path(decision, name)
    if (held := await _held(services, tenant, path)) is not None:
        return held
    if not await is_known(services, tenant, decision):
        return None
    data: dict[str, Any] = {
        "v": ACTION.written,
        "tenant": tenant,
        "decision": decision,
        "name": name,
        "holder": holder,
        "at": SERVER_TIME,
    }
    created = True
    try:
        await services.ledger.commit(Create(path=path, data=data))
    except (WriteConflict, LedgerUnavailable):
        created = False  # another's claim, an own one that was applied, or none: read it back
    held = await _held(services, tenant, path)
    if held is None:
        raise LedgerUnavailable(f"{path}: the claim is not on record")
    return Action(holder=held.holder, at=held.at, created=created)


async def is_known(services: Services, tenant: str, decision: str) -> bool:
    """Whether a job of the tenant has this decision.

    Raises:
        LedgerUnavailable: no answer.
    """
    where = (("tenant", "==", tenant), ("decision_id", "==", decision))
    return bool(await services.ledger.query(Query(collection="jobs", where=where, limit=1)))


async def _held(services: Services, tenant: str, path: str) -> Action | None:
    [found] = await services.ledger.get(path)
    if found.data is None or found.data.get("tenant") != tenant:
        return None
    fields = ACTION.read(found.data, path)
    holder, at = fields.get("holder"), fields.get("at")
    if not isinstance(holder, str) or not isinstance(at, datetime):
        raise UnreadableRecord(f"{path}: unreadable field holder or at", where=path)
    return Action(holder=holder, at=at, created=False)
