"""What the endpoints of one process share: services, key ring, verifier of callers, places."""

from dataclasses import dataclass, field

from functions.core.ports import Callers
from functions.services import Services
from functions.web.authentication import KeyRing
from functions.web.limits import Places, Rates
from functions.web.watches import Watches


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """Wired once per process; `callers` is None only for the `api` target.

    `waits` are the places for requests that stay: waits and streams. `wrong_keys` are those that an
    address may try in a minute to sign in with. `watches` are the jobs that streams follow.
    """

    services: Services
    keys: KeyRing
    callers: Callers | None
    waits: Places = field(default_factory=lambda: Places(everyone=64, tenant=32))
    watches: Watches = field(default_factory=Watches)
    wrong_keys: Rates = field(default_factory=lambda: Rates(10))
