"""What the endpoints of one process share: services, key ring, verifier of callers, places."""

from dataclasses import dataclass, field

from functions.core.ports import Callers
from functions.services import Services
from functions.web.authentication import KeyRing
from functions.web.limits import Places


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """Wired once per process; `callers` is None only for the `api` target.

    `waits` are the places for requests that stay: waits and streams.
    """

    services: Services
    keys: KeyRing
    callers: Callers | None
    waits: Places = field(default_factory=lambda: Places(everyone=64, tenant=32))
