"""Who calls the API: bearer keys, stored as hashes, or ID tokens of Google accounts.

    bearer -> key in the ledger, or account of a verified token -> role of the route -> rate

A browser that has signed in at the console sends its key in a cookie, which counts on the pages and
what they read by themselves (`functions.web.roles`), and only where nothing is in `Authorization`.

Both travel in `Authorization`. Where Cloud Run guards the service itself, its own token comes in
`X-Serverless-Authorization`, is checked by Cloud Run, and proves nothing here.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request

from functions import telemetry
from functions.core.access import ApiKey, includes, key_hash, key_id
from functions.core.documents import api_key_path, from_snapshot
from functions.core.errors import CallerRefused, LedgerError, WriteConflict
from functions.core.ports import SERVER_TIME, Callers, Ledger, Snapshot, Update
from functions.tenant_tables import Account
from functions.web import problems
from functions.web.cookies import key_in_cookie
from functions.web.limits import Rates
from functions.web.roles import least_role, takes_cookie
from functions.web.single_headers import require_single

CACHE_SECONDS = 10.0  # also how long a revoked key may still be taken by a warm instance
CACHED_KEYS = 1000
MAX_KEY_CHARACTERS = 512
USE_NOTED_EVERY = timedelta(hours=1)
UNLIMITED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The tenant a request acts for, and what it may do; `credential` is a key's ID or an address.

    `name` is what records call it by.
    """

    tenant: str
    role: str
    name: str
    credential: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accounts:
    """The Google accounts that may call, and who verifies their tokens."""

    verifier: Callers
    known: Mapping[str, Account]


class KeyRing:
    """Finds out who sent a request, and whether it may do what it asks for."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        accounts: Accounts | None = None,
        requests_per_minute: int = UNLIMITED,
    ) -> None:
        self._ledger = ledger
        self._accounts = accounts
        self._rates = Rates(requests_per_minute)
        self._known: dict[str, tuple[float, Caller]] = {}
        self._noting: set[asyncio.Task[None]] = set()

    async def caller(self, request: Request) -> Caller:
        """Return who sent the request, who may call its route.

        Raises:
            Problem: 400 where a header says two things, 401 without a valid credential, 403 with
                one of a lesser role, 429 beyond the requests a minute.
            LedgerUnavailable: the key cannot be looked up.
            CallersUnknown: no token can be checked at present.
        """
        require_single(request)
        caller = await self._entitled(request)
        wait_seconds = self._rates.wait_seconds(caller.credential)
        if wait_seconds > 0:
            raise problems.rate_limited("the key has used up its requests a minute", wait_seconds)
        return caller

    async def admits(self, request: Request, caller: Caller) -> bool:
        """Whether a request that was admitted before would still be this caller's; costs no rate.

        Raises:
            LedgerUnavailable: the key cannot be looked up.
            CallersUnknown: no token can be checked at present.
        """
        try:
            return (await self._entitled(request)).tenant == caller.tenant
        except problems.Problem:
            return False

    async def _entitled(self, request: Request) -> Caller:
        least = least_role(request)
        caller = await self._caller(request)
        if least is not None and not includes(caller.role, least):
            raise problems.forbidden(f"this needs the role {least!r}")
        return caller

    def charge(self, caller: Caller, requests: int) -> None:
        """Count further requests of a caller that one request was: the lines of a batch."""
        self._rates.charge(caller.credential, requests)

    async def _caller(self, request: Request) -> Caller:
        if "authorization" not in request.headers and takes_cookie(request):
            return await self.holder(key_in_cookie(request))
        token = bearer(request)
        if token is not None and self._accounts is not None and _is_jwt(token):
            return await _account(self._accounts, token)
        return await self.holder(token)

    async def holder(self, key: str | None) -> Caller:
        """Return who holds a key, whatever it may do.

        Raises:
            Problem: 401 without a key, or for one that is not valid.
            LedgerUnavailable: it cannot be looked up.
        """
        if key is None or len(key) > MAX_KEY_CHARACTERS:
            raise problems.unauthorized("send the API key as 'Authorization: Bearer KEY'")
        return await self._key(key_hash(key))

    async def _key(self, digest: str) -> Caller:
        known = self._known.get(digest)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        [found] = await self._ledger.get(api_key_path(digest))
        record = from_snapshot(ApiKey, found)
        if record is None or not record.admits(found.read_time):
            self._known.pop(digest, None)
            raise problems.unauthorized("the API key is not valid", invalid_token=True)
        caller = Caller(
            tenant=record.tenant, role=record.role, name=record.name, credential=key_id(digest)
        )
        self._remember(digest, caller, record, found.read_time)
        self._note_use(record, found)
        return caller

    def _remember(self, digest: str, caller: Caller, record: ApiKey, read_at: datetime) -> None:
        seconds = CACHE_SECONDS
        if record.expires_at is not None:
            seconds = min(seconds, (record.expires_at - read_at).total_seconds())
        if len(self._known) >= CACHED_KEYS:
            self._known.clear()
        self._known[digest] = (time.monotonic() + seconds, caller)

    def _note_use(self, record: ApiKey, found: Snapshot) -> None:
        """Have the time of use written beside the request, which does not wait for it."""
        last = record.last_used_at
        if last is None or found.read_time - last >= USE_NOTED_EVERY:
            noting = asyncio.create_task(self._write_use(found), name="note a key's use")
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)

    async def _write_use(self, found: Snapshot) -> None:
        fields = {"last_used_at": SERVER_TIME}
        try:
            await self._ledger.commit(
                Update(path=found.path, fields=fields, if_updated_at=found.update_time)
            )
        except WriteConflict:
            return  # another instance has noted it, or the key has been revoked
        except LedgerError as exc:
            telemetry.warning("a key's use not noted", key=key_id(found.id), error=str(exc)[:300])


def bearer(request: Request) -> str | None:
    """Return the bearer token of a request, None when there is none that could be one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    usable = 0 < len(token) <= 16 * 1024 and token.isascii() and token.isprintable()
    return token if scheme.lower() == "bearer" and usable else None


def _is_jwt(token: str) -> bool:
    """Whether it has the form of a JWT: three parts, the first of them an encoded object."""
    return token.startswith("eyJ") and token.count(".") == 2


async def _account(accounts: Accounts, token: str) -> Caller:
    try:
        email = await accounts.verifier.verify(token)
    except CallerRefused as exc:
        telemetry.warning("account refused", reason=str(exc))
        raise problems.unauthorized("the ID token is not valid", invalid_token=True) from exc
    known = accounts.known[email]
    return Caller(tenant=known.tenant, role=known.role, name=email, credential=email)
