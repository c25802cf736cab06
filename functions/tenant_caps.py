"""What each tenant may use in a day: one cap for all, and a tenant's own from a TOML file.

    [tenants.catalog]                     # EMPANEL_TENANTS names the file
    day_requests = 5000
    day_cost_usd = 20.0

What a table leaves out is as for all tenants; 0 means no cap.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from functions.core.budgets import Caps, cap_nano_usd
from functions.core.errors import ConfigurationError

TENANTS_VARIABLE = "EMPANEL_TENANTS"
MOST_REQUESTS = 1_000_000_000
MOST_USD = 1_000_000_000
_RULES = {
    "day_requests": f"must be a whole number from 0 to {MOST_REQUESTS}",
    "day_cost_usd": f"must be a number from 0 to {MOST_USD}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantCaps:
    """The caps of a tenant's day; none by default."""

    everyone: Caps = field(default_factory=Caps)
    own: Mapping[str, Caps] = field(default_factory=dict)

    def of(self, tenant: str) -> Caps:
        """Return the caps of a tenant's day."""
        return self.own.get(tenant, self.everyone)


def tenant_caps(
    environ: Mapping[str, str], *, day_requests: int, day_cost_usd: float
) -> TenantCaps:
    """Return the caps of all tenants; the two numbers are those of a tenant without a table.

    Raises:
        ConfigurationError: the file or a value in it breaks its rule.
    """
    everyone = {"day_requests": day_requests, "day_cost_usd": day_cost_usd}
    path = environ.get(TENANTS_VARIABLE, "").strip()
    tables = _tables(path) if path else {}
    return TenantCaps(
        everyone=_caps(everyone),
        own={tenant: _caps(everyone | table) for tenant, table in tables.items()},
    )


def _caps(values: Mapping[str, Any]) -> Caps:
    return Caps(
        requests=values["day_requests"] or None,
        nano_usd=cap_nano_usd(values["day_cost_usd"]) or None,
    )


def _tables(path: str) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        rule = f"must name a readable TOML file ({exc})"
        raise ConfigurationError(f"{TENANTS_VARIABLE}={path!r}: {rule}") from exc
    tables = document.pop("tenants", {})
    if document or not isinstance(tables, dict):
        raise ConfigurationError(f"{path}: only [tenants.NAME] tables are known")
    for tenant, table in tables.items():
        _check_table(f"{path}: tenants.{tenant}", table)
    return tables


def _check_table(name: str, table: Any) -> None:
    if not isinstance(table, dict):
        raise ConfigurationError(f"{name}={table!r}: must be a table")
    for option, value in table.items():
        if option not in _RULES:
            known = ", ".join(_RULES)
            raise ConfigurationError(f"{name}.{option}: unknown; known are {known}")
        if not _holds(option, value):
            raise ConfigurationError(f"{name}.{option}={value!r}: {_RULES[option]}")


def _holds(option: str, value: Any) -> bool:
    if option == "day_requests":
        return type(value) is int and 0 <= value <= MOST_REQUESTS
    return type(value) in (int, float) and 0 <= value <= MOST_USD  # false for NaN
