"""The commands about API keys; they work on the ledger itself, past the API."""

from datetime import UTC, datetime, timedelta
from functools import partial
from json import dumps
from typing import Annotated, Any

import typer
from rich.table import Table

from functions.cli.commands import app
from functions.cli.exits import EPILOG, Exit, Misused
from functions.cli.key_store import open_key_store
from functions.cli.screen import Screen, print_raw, run_alone
from functions.cli.tables import table
from functions.core.access import (
    NAME_RULE,
    ROLES,
    TENANT_RULE,
    is_key_name,
    is_tenant,
)
from functions.core.times import timestamp
from functions.keys import NamedKey, chosen, create_key, list_keys, revoke_key

keys = typer.Typer(
    name="keys",
    help=(
        "Make, list and revoke API keys.\n\n"
        "Works on the local stack while one runs; elsewhere on the Firestore of "
        "GOOGLE_CLOUD_PROJECT with Google credentials."
    ),
    epilog=EPILOG,
    no_args_is_help=True,
)
app.add_typer(keys)
command = partial(keys.command, epilog=EPILOG)

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
MAX_DAYS = 3650


@command("create")
def create(
    tenant: Annotated[str, typer.Option(help="Whom the key acts for.")],
    role: Annotated[str, typer.Option(help="submitter or operator.")],
    name: Annotated[str, typer.Option(help="What it is for; the operator log names it so.")],
    expires_days: Annotated[
        int | None,
        typer.Option("--expires-days", min=1, max=MAX_DAYS, help="Never expires without."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once: only its hash is stored."""

    async def work(screen: Screen) -> Exit:
        _check(tenant, role, name)
        days = None if expires_days is None else timedelta(days=expires_days)
        async with open_key_store() as store:
            text, made = await create_key(
                store.ledger,
                tenant=tenant,
                role=role,
                name=name,
                expires_at=None if days is None else datetime.now(UTC) + days,
                by=store.by,
                retention_days=store.retention_days,
            )
        if screen.json_only:
            _print({"key": text, **key_view(made)})
        else:
            typer.echo(text)
            told = f"{role} of {tenant} at {store.place}, ID {made.id}; the key is shown this once"
            screen.err.print(told, soft_wrap=True, markup=False)
        return Exit.DONE

    run_alone(work, json_only=json)


@command("list")
def list_all(json: Json = False) -> None:
    """List the keys on record, revoked and expired ones too; a key's text is not among it."""

    async def work(screen: Screen) -> Exit:
        async with open_key_store() as store:
            found = await list_keys(store.ledger)
        if screen.json_only:
            _print({"keys": [key_view(key) for key in found]})
        else:
            screen.out.print(_key_table(found))
        return Exit.DONE

    run_alone(work, json_only=json)


@command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="NAME|ID", help="The key's name or its ID.")],
    json: Json = False,
) -> None:
    """Revoke a key. Warm instances may take it for ten seconds more."""

    async def work(screen: Screen) -> Exit:
        async with open_key_store() as store:
            named = _one(chosen(await list_keys(store.ledger), key), key)
            revoked = await revoke_key(
                store.ledger, named, by=store.by, retention_days=store.retention_days
            )
        if screen.json_only:
            _print(key_view(revoked))
        screen.say(f"key {revoked.id} ({revoked.record.name}) is revoked")
        return Exit.DONE

    run_alone(work, json_only=json)


def key_view(key: NamedKey) -> dict[str, Any]:
    """Return a key as the commands show it: everything but its text."""
    record = key.record
    return {
        "id": key.id,
        "name": record.name,
        "tenant": record.tenant,
        "role": record.role,
        "created_at": timestamp(record.created_at),
        "expires_at": timestamp(record.expires_at),
        "revoked_at": timestamp(record.revoked_at),
        "last_used_at": timestamp(record.last_used_at),
    }


def _check(tenant: str, role: str, name: str) -> None:
    if not is_tenant(tenant):
        raise Misused(f"--tenant {tenant!r} {TENANT_RULE}.")
    if role not in ROLES:
        raise Misused(f"--role {role!r} must be one of {', '.join(ROLES)}.")
    if not is_key_name(name):
        raise Misused(f"--name {name!r} {NAME_RULE}.")


def _one(found: list[NamedKey], wanted: str) -> NamedKey:
    if not found:
        raise Misused(f"No key that is not revoked has the name, and none the ID, {wanted!r}.")
    if len(found) > 1:
        ids = ", ".join(key.id for key in found)
        raise Misused(f"{len(found)} keys are named {wanted!r}; give the ID of one: {ids}")
    return found[0]


def _key_table(found: list[NamedKey]) -> Table:
    rows = [
        [text or "" for name, text in key_view(key).items() if name != "created_at"]
        for key in found
    ]
    return table(("id", "name", "tenant", "role", "expires", "revoked", "last used"), rows)


def _print(value: dict[str, Any]) -> None:
    print_raw(dumps(value, ensure_ascii=False).encode())
