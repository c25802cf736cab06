"""API keys in the ledger: made, listed, revoked. Each deed commits with its line in the log.

A key's text is returned once, by the call that makes it, and is stored nowhere.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from functions.core.access import ApiKey, key_hash, key_id
from functions.core.documents import api_key_path, from_document, from_snapshot, to_document
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.ports import SERVER_TIME, Create, Ledger, Query, Update
from functions.operator_log import deed

PREFIX = "ek_"
TRIES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedKey:
    """A key's record under its hash."""

    digest: str
    record: ApiKey

    @property
    def id(self) -> str:
        """What people call it by."""
        return key_id(self.digest)


def new_key() -> str:
    """Return the text of a key: `ek_` and 256 random bits."""
    return f"{PREFIX}{secrets.token_urlsafe(32)}"


async def create_key(
    ledger: Ledger,
    *,
    tenant: str,
    role: str,
    name: str,
    expires_at: datetime | None,
    by: str,
    retention_days: int,
) -> tuple[str, NamedKey]:
    """Record a new key; return its text, which cannot be had again, and its record.

    `by` is who makes it, for the log, whose line is kept for `retention_days`.

    Raises:
        LedgerUnavailable: the key may be on record, but nobody knows its text: make another.
    """
    text, now = new_key(), datetime.now(UTC)
    record = ApiKey(tenant=tenant, role=role, name=name, created_at=now, expires_at=expires_at)
    made = NamedKey(digest=key_hash(text), record=record)
    log = deed(
        identity=secrets.token_hex(16),
        expire_at=now + timedelta(days=retention_days),
        tenant=tenant,
        who=by,
        what="create key",
        key=made.id,
        name=name,
        role=role,
    )
    await ledger.commit(Create(path=api_key_path(made.digest), data=to_document(record)), log)
    return text, made


async def list_keys(ledger: Ledger) -> list[NamedKey]:
    """Return every key on record, in the order they were made.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: a record is of an unknown version.
    """
    found = await ledger.query(Query(collection="api_keys"))
    keys = [
        NamedKey(digest=each.id, record=from_document(ApiKey, each.data or {}, each.path))
        for each in found
    ]
    first = datetime.min.replace(tzinfo=UTC)
    return sorted(keys, key=lambda key: (key.record.created_at or first, key.digest))


def chosen(keys: Sequence[NamedKey], wanted: str) -> list[NamedKey]:
    """Return the keys that a name or an ID means; those of a name only as far as not revoked."""
    by_id = [key for key in keys if key.id == wanted]
    return by_id or [
        key for key in keys if key.record.name == wanted and key.record.revoked_at is None
    ]


async def revoke_key(ledger: Ledger, key: NamedKey, *, by: str, retention_days: int) -> NamedKey:
    """Revoke a key; return it as it is then. One that is revoked already stays as it is.

    Warm processes go on taking it for the ten seconds that they remember a key.

    Raises:
        LedgerUnavailable: it is not certain that the key is revoked; ask again.
    """
    path = api_key_path(key.digest)
    for _ in range(TRIES):
        [found] = await ledger.get(path)
        record = from_snapshot(ApiKey, found)
        if record is None:
            raise LedgerUnavailable(f"{path}: the key cannot be read back")
        if record.revoked_at is not None:
            return NamedKey(digest=key.digest, record=record)
        log = deed(
            identity=secrets.token_hex(16),
            expire_at=found.read_time + timedelta(days=retention_days),
            tenant=record.tenant,
            who=by,
            what="revoke key",
            key=key.id,
            name=record.name,
        )
        update = Update(
            path=path, fields={"revoked_at": SERVER_TIME}, if_updated_at=found.update_time
        )
        try:
            await ledger.commit(update, log)
        except WriteConflict:
            continue  # its last use was noted meanwhile, or another revoked it
    raise LedgerUnavailable(f"{path}: too much contention")
