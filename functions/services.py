"""What every step is given: the ports, the settings, and the process's own state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from functions.config import Settings
from functions.core.ports import Clock, Ledger, Objects, PriceBook, Provider, Publisher
from functions.inflight import InFlight, Slots


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
    clock: Clock
    inflight: InFlight
    slots: Slots
    new_id: Callable[[], str]
    jitter: Callable[[], float]
