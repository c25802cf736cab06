"""What each tenant may use: one cap for all, and a tenant's own from its table.

The tables are those of `functions.tenant_tables`. What a table leaves out is as for all tenants;
0 means no cap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.core.budgets import Caps, cap_nano_usd


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantCaps:
    """The caps of a tenant's day, and of the seats it has open at once; none by default.

    Open seats are 0 where there is no cap.
    """

    everyone: Caps = field(default_factory=Caps)
    own: Mapping[str, Caps] = field(default_factory=dict)
    everyones_open_seats: int = 0
    own_open_seats: Mapping[str, int] = field(default_factory=dict)

    def of(self, tenant: str) -> Caps:
        """Return the caps of a tenant's day."""
        return self.own.get(tenant, self.everyone)

    def open_seats(self, tenant: str) -> int | None:
        """Return how many seats a tenant may have open at once, None where there is no cap."""
        return self.own_open_seats.get(tenant, self.everyones_open_seats) or None


def tenant_caps(
    tables: Mapping[str, Mapping[str, Any]],
    *,
    day_requests: int,
    day_cost_usd: float,
    open_seats: int,
) -> TenantCaps:
    """Return the caps of all tenants; the numbers are those of a tenant without a table."""
    everyone = {
        "day_requests": day_requests,
        "day_cost_usd": day_cost_usd,
        "open_seats": open_seats,
    }
    own = {tenant: everyone | dict(table) for tenant, table in tables.items()}
    return TenantCaps(
        everyone=_caps(everyone),
        own={tenant: _caps(values) for tenant, values in own.items()},
        everyones_open_seats=open_seats,
        own_open_seats={tenant: values["open_seats"] for tenant, values in own.items()},
    )


def _caps(values: Mapping[str, Any]) -> Caps:
    return Caps(
        requests=values["day_requests"] or None,
        nano_usd=cap_nano_usd(values["day_cost_usd"]) or None,
    )
