"""What every step is given: the ports, the settings, and the process's own state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from functions.config import Settings
from functions.core.ports import Clock, Ledger, Objects, PriceBook, Provider, Publisher, Webhooks
from functions.hosts import HostSlots
from functions.inflight import InFlight, Slots
from functions.metrics import Metrics
from functions.open_seats import OpenSeats
from functions.pauses import Pauses
from functions.sightings import Sightings
from functions.tracing import Tracing
from functions.windows import Windows


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """Wired once per process in `functions.bootstrap`; tests wire their own.

    `new_id` gives a fresh random name (lease holders, incidents); `jitter` a number in [0, 1).
    """

    settings: Settings
    ledger: Ledger
    objects: Objects
    publisher: Publisher
    providers: Mapping[str, Provider]
    prices: PriceBook
    webhooks: Webhooks
    sightings: Sightings
    clock: Clock
    inflight: InFlight
    slots: Slots
    hosts: HostSlots
    pauses: Pauses
    windows: Windows
    open_seats: OpenSeats
    new_id: Callable[[], str]
    jitter: Callable[[], float]
    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing = field(default_factory=Tracing)
