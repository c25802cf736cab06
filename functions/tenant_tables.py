"""What is configured for single tenants: a TOML file of tables, read and checked as a whole.

    [tenants.catalog]                     # EMPANEL_TENANTS names the file
    day_requests = 5000
    day_cost_usd = 20.0
    open_seats = 2000
    accounts = {"importer@project.iam.gserviceaccount.com" = "submitter"}

`accounts` are Google accounts whose ID tokens act for the tenant, each with its role.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from functions.core.access import ROLES, TENANT_RULE, is_tenant
from functions.core.errors import ConfigurationError

TENANTS_VARIABLE = "EMPANEL_TENANTS"
MOST_REQUESTS = 1_000_000_000
MOST_USD = 1_000_000_000
MOST_SEATS = 1_000_000_000
_RULES = {
    "day_requests": f"must be a whole number from 0 to {MOST_REQUESTS}",
    "day_cost_usd": f"must be a number from 0 to {MOST_USD}",
    "open_seats": f"must be a whole number from 0 to {MOST_SEATS}",
    "accounts": f"must give each address one of the roles {', '.join(ROLES)}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What a Google account may do: for which tenant, and in which role."""

    tenant: str
    role: str


def read_tables(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return each tenant's table, empty when no file is named.

    Raises:
        ConfigurationError: the file or a value in it breaks its rule.
    """
    path = environ.get(TENANTS_VARIABLE, "").strip()
    if not path:
        return {}
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        rule = f"must name a readable TOML file ({exc})"
        raise ConfigurationError(f"{TENANTS_VARIABLE}={path!r}: {rule}") from exc
    tables = document.pop("tenants", {})
    if document or not isinstance(tables, dict):
        raise ConfigurationError(f"{path}: only [tenants.NAME] tables are known")
    for tenant, table in tables.items():
        _check_table(f"{path}: tenants.{tenant}", tenant, table)
    return tables


def accounts_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Account]:
    """Return the accounts of all tables.

    Raises:
        ConfigurationError: an account belongs to two tenants, and nothing says which is meant.
    """
    accounts: dict[str, Account] = {}
    for tenant, table in tables.items():
        for email, role in table.get("accounts", {}).items():
            if email in accounts:
                both = f"{accounts[email].tenant} and {tenant}"
                raise ConfigurationError(f"{TENANTS_VARIABLE}: {email} belongs to {both}")
            accounts[email] = Account(tenant=tenant, role=role)
    return accounts


def _check_table(name: str, tenant: str, table: Any) -> None:
    if not is_tenant(tenant):
        raise ConfigurationError(f"{name}: a tenant's name {TENANT_RULE}")
    if not isinstance(table, dict):
        raise ConfigurationError(f"{name}={table!r}: must be a table")
    for option, value in table.items():
        if option not in _RULES:
            known = ", ".join(_RULES)
            raise ConfigurationError(f"{name}.{option}: unknown; known are {known}")
        if not _holds(option, value):
            raise ConfigurationError(f"{name}.{option}={value!r}: {_RULES[option]}")


def _holds(option: str, value: Any) -> bool:
    match option:
        case "day_requests":
            return type(value) is int and 0 <= value <= MOST_REQUESTS
        case "open_seats":
            return type(value) is int and 0 <= value <= MOST_SEATS
        case "accounts":
            return isinstance(value, dict) and all(
                "@" in email and role in ROLES for email, role in value.items()
            )
        case _:
            return type(value) in (int, float) and 0 <= value <= MOST_USD  # false for NaN
