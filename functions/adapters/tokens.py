"""Identity tokens of machine callers: Google's, or locally signed ones beside emulators.

Signature, audience and expiry are checked by google-auth; issuer, verified e-mail and the account
here. Claims of a Pub/Sub push token: Cloud Pub/Sub documentation, "Authentication for push".

Where Cloud Run guards a service itself, it checks the token and hands it on with the words
SIGNATURE_REMOVED_BY_GOOGLE in place of the signature (Cloud Run documentation, "Troubleshooting").
Such a token is taken only by a verifier that was told so; everything else about it is checked here.
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
REMOVED_SIGNATURE = ".SIGNATURE_REMOVED_BY_GOOGLE"

_LOG = logging.getLogger(__name__)


class TokenVerifier:
    """Verifies the OIDC tokens of Pub/Sub push and Cloud Scheduler."""

    def __init__(
        self,
        *,
        audience: str,
        accounts: frozenset[str],
        certs: Path | None,
        signature_checked: bool = False,
    ) -> None:
        self._audience = audience
        self._signature_checked = signature_checked
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
        if self._signature_checked and token.endswith(REMOVED_SIGNATURE):
            claims = _claims_without_signature(token, self._audience)
        else:
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
            raise _refusal(exc) from exc
        return claims

    async def _current_certs(self) -> Mapping[str, str]:
        """Return the certificates; old ones go on being used while new ones cannot be had."""
        async with self._fetching:
            if time.monotonic() >= self._certs_until:
                found = await asyncio.to_thread(self._load)
                self._certs = found or self._certs
                wait_seconds = CERTS_SECONDS if found else CERTS_AGAIN_SECONDS
                self._certs_until = time.monotonic() + wait_seconds
        if not self._certs:
            raise CallersUnknown("the certificates of the callers' tokens cannot be fetched")
        return self._certs

    def _load(self) -> Mapping[str, str] | None:
        if self._local_certs is None:
            return self._fetch()
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


def _refusal(exc: Exception) -> CallerRefused:
    """Say what is wrong with a token; the library's text about one it cannot read repeats it."""
    told = "it cannot be read" if isinstance(exc, exceptions.MalformedError) else str(exc)[:200]
    return CallerRefused(f"the token is not valid: {told}")


def _claims_without_signature(token: str, audience: str) -> Mapping[str, Any]:
    """Return the claims of a token that Cloud Run has verified, with audience and time checked.

    Raises:
        CallerRefused: it cannot be read, is for another audience, or its time is over.
    """
    try:
        claims: Mapping[str, Any] = jwt.decode(token, verify=False)  # type: ignore[no-untyped-call]
    except (ValueError, exceptions.GoogleAuthError) as exc:
        raise _refusal(exc) from exc
    if claims.get("aud") != audience:
        raise CallerRefused("the token is for another audience")
    expires = claims.get("exp")
    if not isinstance(expires, int) or expires + CLOCK_SKEW_SECONDS < time.time():
        raise CallerRefused("the token has expired")
    return claims
