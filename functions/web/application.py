"""What the endpoints of one process share: the services, the key ring, the callers' verifier."""

from dataclasses import dataclass

from functions.core.ports import Callers
from functions.services import Services
from functions.web.authentication import KeyRing


@dataclass(frozen=True, kw_only=True, slots=True)
class Application:
    """Wired once per process; `callers` is None only for the `api` target."""

    services: Services
    keys: KeyRing
    callers: Callers | None
