"""API keys on record: their text is nowhere, and every deed has its line in the log."""

from datetime import UTC, datetime, timedelta

import pytest

from functions.adapters.memory import MemoryLedger
from functions.core.access import is_key_name, is_tenant, key_hash
from functions.core.errors import LedgerUnavailable
from functions.core.ports import SERVER_TIME, Update, Write
from functions.keys import NamedKey, chosen, create_key, list_keys, revoke_key
from tests.virtual_clock import VirtualClock


async def made(ledger: MemoryLedger, name: str = "importer") -> tuple[str, NamedKey]:
    return await create_key(
        ledger,
        tenant="catalog",
        role="submitter",
        name=name,
        expires_at=datetime.now(UTC) + timedelta(days=30),
        by="ann",
        retention_days=400,
    )


def log(ledger: MemoryLedger) -> list[tuple[str, str, str]]:
    """Who did what with which key."""
    stored = ledger.documents()
    lines = [data for path, data in stored.items() if path.startswith("operator_log/")]
    assert all(line["at"] and line["expire_at"] > line["at"] for line in lines)
    return [(line["who"], line["what"], line["key"]) for line in lines]


async def test_a_key_is_stored_as_its_hash_alone() -> None:
    """256 random bits; no document has the text, or a long piece of it."""
    ledger = MemoryLedger(VirtualClock())
    text, key = await made(ledger)
    assert text.startswith("ek_")
    assert len(text) == 3 + 43
    assert f"api_keys/{key_hash(text)}" in ledger.documents()
    assert text[3:15] not in repr(ledger.documents())
    assert key.id == key_hash(text)[:16]
    assert (await made(ledger))[0] != text


async def test_keys_are_listed_as_they_were_made() -> None:
    """What was given stands in the record; the last use is not known yet."""
    ledger = MemoryLedger(VirtualClock())
    for name in ("first", "second"):
        await made(ledger, name)
    found = await list_keys(ledger)
    assert [key.record.name for key in found] == ["first", "second"]
    record = found[0].record
    assert (record.tenant, record.role, record.last_used_at) == ("catalog", "submitter", None)
    assert record.admits(datetime.now(UTC))
    assert not record.admits(datetime.now(UTC) + timedelta(days=31))


async def test_making_and_revoking_are_on_record() -> None:
    """Who, what, which key; a key that is revoked already is not revoked again."""
    ledger = MemoryLedger(VirtualClock())
    _, key = await made(ledger)
    first = await revoke_key(ledger, key, by="bob", retention_days=400)
    again = await revoke_key(ledger, key, by="eve", retention_days=400)
    assert first.record.revoked_at is not None
    assert again == first
    assert log(ledger) == [("ann", "create key", key.id), ("bob", "revoke key", key.id)]


async def test_a_name_means_keys_that_are_not_revoked() -> None:
    """An ID means its key for ever; a name the keys that still have it."""
    ledger = MemoryLedger(VirtualClock())
    keys = [(await made(ledger, "same"))[1] for _ in range(2)]
    assert len(chosen(await list_keys(ledger), "same")) == 2
    await revoke_key(ledger, keys[0], by="ann", retention_days=400)
    assert [key.id for key in chosen(await list_keys(ledger), "same")] == [keys[1].id]
    assert [key.id for key in chosen(await list_keys(ledger), keys[0].id)] == [keys[0].id]
    assert chosen(await list_keys(ledger), "unknown") == []


async def test_a_revocation_wins_against_a_note_of_use() -> None:
    """The record moves between look and commit: it is looked at again, and revoked."""
    ledger = MemoryLedger(VirtualClock())
    _, key = await made(ledger)
    commit = ledger.commit
    moved: list[bool] = []

    async def meddled(*writes: Write) -> datetime:
        if not moved:
            moved.append(True)
            use = Update(path=f"api_keys/{key.digest}", fields={"last_used_at": SERVER_TIME})
            await commit(use)
        return await commit(*writes)

    ledger.commit = meddled  # type: ignore[method-assign]
    revoked = await revoke_key(ledger, key, by="ann", retention_days=400)
    assert revoked.record.revoked_at is not None
    assert revoked.record.last_used_at is not None


async def test_a_key_that_is_gone_is_not_taken_for_revoked() -> None:
    """Nobody is told that a key is revoked while that is not certain."""
    ledger = MemoryLedger(VirtualClock())
    _, key = await made(ledger)
    with pytest.raises(LedgerUnavailable):
        await revoke_key(MemoryLedger(VirtualClock()), key, by="ann", retention_days=400)


@pytest.mark.parametrize("name", ["a", "catalog-team", "0", "a" * 63])
def test_a_tenants_name_can_be_part_of_ids_and_object_names(name: str) -> None:
    """Lower-case letters, digits and hyphens."""
    assert is_tenant(name)


@pytest.mark.parametrize("name", ["", "-a", "A", "a b", "a/b", "a.b", "a" * 64, "ä", "a\n", "_"])
def test_no_other_name_is_a_tenants(name: str) -> None:
    """Nothing that could end a path's part, or look like another name."""
    assert not is_tenant(name)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a" * 101, "a\x1bb"])
def test_a_keys_name_is_one_line(name: str) -> None:
    """It stands in logs and tables."""
    assert not is_key_name(name)
    assert is_key_name("nightly import, Berlin")
