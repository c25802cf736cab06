"""Who calls the API: bearer keys, stored as hashes, each with a tenant and a role."""

import hashlib
import time
from dataclasses import dataclass

from starlette.requests import Request

from functions.core.ports import Ledger
from functions.web import problems

CACHE_SECONDS = 10.0  # also how long a revoked key may still be taken by a warm instance
CACHED_KEYS = 1000
MAX_KEY_CHARACTERS = 512

SUBMITTER, OPERATOR = "submitter", "operator"


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The tenant a request acts for, and what it may do."""

    tenant: str
    role: str
    name: str


class KeyRing:
    """Looks keys up in the ledger by hash; a random 256-bit key needs no slow hash."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, tuple[float, Caller]] = {}

    async def caller(self, request: Request, *, role: str | None = None) -> Caller:
        """Return who sent the request; with `role`, only one who has it.

        Raises:
            Problem: 401 without a valid key, 403 with one of another role.
            LedgerUnavailable: the key cannot be looked up.
        """
        caller = await self._caller(request)
        if role is not None and caller.role != role:
            raise problems.forbidden(f"this needs a key with the role {role!r}")
        return caller

    async def _caller(self, request: Request) -> Caller:
        digest = hashlib.sha256(_bearer(request).encode()).hexdigest()
        known = self._known.get(digest)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        caller = await self._look_up(digest)
        if len(self._known) >= CACHED_KEYS:
            self._known.clear()
        self._known[digest] = (time.monotonic() + CACHE_SECONDS, caller)
        return caller

    async def _look_up(self, digest: str) -> Caller:
        [found] = await self._ledger.get(f"api_keys/{digest}")
        if found.data is None or found.data.get("revoked_at") is not None:
            raise problems.unauthorized("the API key is not valid", invalid_token=True)
        return Caller(
            tenant=found.data["tenant"], role=found.data["role"], name=found.data.get("name", "")
        )


def bearer(request: Request) -> str | None:
    """Return the bearer token of a request, None when there is none that could be one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    usable = 0 < len(token) <= 16 * 1024 and token.isascii() and token.isprintable()
    return token if scheme.lower() == "bearer" and usable else None


def _bearer(request: Request) -> str:
    token = bearer(request)
    if token is None or len(token) > MAX_KEY_CHARACTERS:
        raise problems.unauthorized("send the API key as 'Authorization: Bearer KEY'")
    return token
