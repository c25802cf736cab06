"""Identity tokens of machine callers: Google's, or locally signed ones beside emulators.

Signature, audience and expiry are checked by google-auth; issuer, verified e-mail and the account
here. Claims of a Pub/Sub push token: Cloud Pub/Sub documentation, "Authentication for push".
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.auth import exceptions, jwt
from google.auth.transport.requests import Request

from functions.core.errors import CallerRefused, CallersUnknown

GOOGLE_CERTS_URL = "https://www.googleapis.com/oauth2/v1/certs"
ISSUERS = frozenset({"accounts.google.com", "https://accounts.google.com"})
CERTS_SECONDS = 3600.0
CERTS_AGAIN_SECONDS = 10.0
CLOCK_SKEW_SECONDS = 30

_LOG = logging.getLogger(__name__)


class TokenVerifier:
    """Verifies the OIDC tokens of Pub/Sub push and Cloud Scheduler."""

    def __init__(self, *, audience: str, accounts: frozenset[str], certs: Path | None) -> None:
        self._audience = audience
        self._accounts = accounts
        self._local_certs = certs
        self._certs: Mapping[str, str] = {}
        self._certs_until = 0.0
        self._fetching = asyncio.Lock()

    async def verify(self, token: str) -> str:
        """Return the caller's account.

        Raises:
            CallerRefused: signature, audience, expiry, issuer, e-mail or account is wrong.
            CallersUnknown: there are no certificates to check against.
        """
        claims = await self._claims(token)
        if claims.get("iss") not in ISSUERS:
            raise CallerRefused("the issuer is not Google")
        if claims.get("email_verified") is not True:
            raise CallerRefused("the e-mail address is not verified")
        if claims.get("email") not in self._accounts:
            raise CallerRefused("the account may not call this service")
        return str(claims["email"])

    async def _claims(self, token: str) -> Mapping[str, Any]:
        certs = await self._current_certs()
        try:
            claims: Mapping[str, Any] = jwt.decode(  # type: ignore[no-untyped-call]
                token,
                certs=certs,
                audience=self._audience,
                clock_skew_in_seconds=CLOCK_SKEW_SECONDS,
            )
        except (ValueError, exceptions.GoogleAuthError) as exc:
            raise CallerRefused(f"the token is not valid: {str(exc)[:200]}") from exc
        return claims

    async def _current_certs(self) -> Mapping[str, str]:
        """Return the certificates; old ones go on being used while new ones cannot be had."""
        async with self._fetching:
            if time.monotonic() >= self._certs_until:
                load = self._read_local if self._local_certs else self._fetch
                found = await asyncio.to_thread(load)
                self._certs = found or self._certs
                wait_seconds = CERTS_SECONDS if found else CERTS_AGAIN_SECONDS
                self._certs_until = time.monotonic() + wait_seconds
        if not self._certs:
            raise CallersUnknown("the certificates of the callers' tokens cannot be fetched")
        return self._certs

    def _read_local(self) -> Mapping[str, str]:
        assert self._local_certs is not None
        certs: Mapping[str, str] = json.loads(self._local_certs.read_text())
        return certs

    def _fetch(self) -> Mapping[str, str] | None:
        try:
            response = Request()(GOOGLE_CERTS_URL, timeout=10)
            certs = json.loads(response.data) if response.status == 200 else None
        except (exceptions.TransportError, ValueError) as exc:
            _LOG.warning("certificates not fetched: %s", exc)
            return None
        return certs if isinstance(certs, dict) else None
