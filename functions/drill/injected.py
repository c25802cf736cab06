"""What a drill is, and what its fault has left to account for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from functions.drill.accounting import Check, Promise
from functions.drill.site import Site


@dataclass(frozen=True, kw_only=True)
class Injected:
    """The jobs of a fault, what must be found of them, and what was already checked on the way."""

    jobs: tuple[str, ...]
    promise: Promise
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drill:
    """One named fault. `local` ones kill or freeze a process, and so need a local stack."""

    name: str
    injects: str
    finds: str
    inject: Callable[[Site], Awaitable[Injected]]
    local: bool = False
