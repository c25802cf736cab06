"""Google's access tokens as credentials: fetched off the loop, kept, renewed before they end.

    no token, or about to end -> wait for a new one     one fetch at a time, for all callers
    ends soon                 -> renew beside the call  the present one still serves
    refused after it served   -> dropped                the next attempt waits for a new one

google-auth does the asking, for every kind of credential it knows (service account, user, workload
identity, metadata server). Each fetch loads the credential anew, so a file that was exchanged is
taken up, and a fetch that hangs in its thread shares nothing with the next one.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from weakref import WeakSet

import google.auth
import requests
from google.auth import exceptions
from google.auth.transport import Response
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from functions.core.verdicts import CallFailure
from functions.providers.credentials import Pass
from functions.providers.redaction import redactor, safe_preview

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
# As in google-auth (REFRESH_THRESHOLD): the metadata server hands out the same token until then.
EARLY = timedelta(minutes=3, seconds=45)
LAST = timedelta(seconds=15)  # a token this close to its end may have ended when it arrives
WAIT_SECONDS = 30.0
REQUEST_SECONDS = 10.0

_PUBLIC_FIELDS = frozenset({"grant_type", "scope", "client_id", "audience"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Token:
    """A fetched token; `ends_at` is None when it does not end."""

    shown: Pass
    ends_at: datetime | None

    def ends_within(self, span: timedelta, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at - now <= span


class GoogleCredentials:
    """Tokens of one Google account. Implements `functions.providers.credentials.Credentials`.

    Nothing is looked for or asked before the first call.
    """

    def __init__(
        self,
        *,
        file: Path | None = None,
        wait_seconds: float = WAIT_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Describe where tokens come from.

        Args:
            file: a service account's key; None takes the application default credentials.
            wait_seconds: longest wait of a call for a token.
            now: aware time that the end of a token is compared with.
        """
        self._file = file
        self._wait_seconds = wait_seconds
        self._now = now
        self._token: _Token | None = None
        self._served: WeakSet[Pass] = WeakSet()
        self._fetching: asyncio.Task[_Token | CallFailure] | None = None

    async def get(self) -> Pass | CallFailure:
        """Return a pass with a token that lasts, or the failure to get one, with `sent` False."""
        token, now = self._token, self._now()
        if token is None or token.ends_within(LAST, now):
            return await self._fetched()
        if token.ends_within(EARLY, now):
            self._fetch()
        return token.shown

    def accepted(self, used: Pass) -> None:
        """Note that the server took the token."""
        self._served.add(used)

    def refused(self, used: Pass) -> bool:
        """Drop the token; a new one may help if this one has served before."""
        if self._token is not None and self._token.shown is used:
            self._token = None
        return used in self._served

    async def _fetched(self) -> Pass | CallFailure:
        """Wait for the fetch that is under way, or a new one; cancelling a caller leaves it be."""
        fetch = self._fetch()
        try:
            async with asyncio.timeout(self._wait_seconds):
                result = await asyncio.shield(fetch)
        except TimeoutError:
            if self._fetching is fetch:
                self._fetching = None  # its thread may hang for ever; the next caller starts afresh
            message = f"no token within {self._wait_seconds:g} s"
            return CallFailure(code="connection_error", message=message, sent=False)
        return result if isinstance(result, CallFailure) else result.shown

    def _fetch(self) -> "asyncio.Task[_Token | CallFailure]":
        running, loop = self._fetching, asyncio.get_running_loop()
        if running is None or running.done() or running.get_loop() is not loop:
            running = self._fetching = loop.create_task(self._keep_new(), name="fetch a token")
        return running

    async def _keep_new(self) -> _Token | CallFailure:
        result = await asyncio.to_thread(_fetch, self._file)
        if isinstance(result, _Token):
            self._token = result
        return result


class _Asking(Request):
    """google-auth's HTTP: bounded, straight to the server, and aware of the secrets it sends."""

    def __init__(self) -> None:
        session = requests.Session()
        session.trust_env = False  # no proxy and no .netrc of the environment
        super().__init__(session)
        self.secrets: set[str] = set()

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Response:
        self.secrets.update(_secrets(body, headers))
        seconds = min(timeout or REQUEST_SECONDS, REQUEST_SECONDS)
        kwargs.setdefault("allow_redirects", False)
        answer: Response = super().__call__(  # type: ignore[no-untyped-call]
            url, method, body, headers, seconds, **kwargs
        )
        return answer


def _fetch(file: Path | None) -> _Token | CallFailure:
    """Load the credential and get a token for it, in a thread."""
    asking = _Asking()
    try:
        credentials = _load(file, asking)
        credentials.refresh(asking)
        headers: dict[str, str] = {}
        credentials.apply(headers)  # the token, and the project that is billed where one is set
    except (exceptions.GoogleAuthError, OSError, ValueError) as exc:
        return _failure(exc, asking)
    finally:
        asking.session.close()
    ends_at = credentials.expiry and credentials.expiry.replace(tzinfo=UTC)
    return _Token(
        shown=Pass(headers=headers, redact=redactor([credentials.token])), ends_at=ends_at
    )


def _load(file: Path | None, asking: _Asking) -> Any:
    if file is not None:
        return service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
            str(file), scopes=SCOPES
        )
    credentials, _ = google.auth.default(scopes=SCOPES, request=asking)
    return credentials


def _failure(exc: Exception, asking: _Asking) -> CallFailure:
    """Return why there is no token: nobody answered, a passing trouble, or a refusal."""
    if _unreachable(exc):
        code = "connection_error"
    else:
        code = "provider_error" if getattr(exc, "retryable", False) else "invalid_credential"
    said = exc.args[0] if isinstance(exc, exceptions.RefreshError) and exc.args else exc
    message = f"no Google access token: {type(exc).__name__}: {said}"
    redact = redactor(asking.secrets)
    return CallFailure(code=code, message=safe_preview(message, redact), sent=False)


def _unreachable(exc: BaseException | None) -> bool:
    while exc is not None:
        if isinstance(exc, exceptions.TransportError):
            return True
        exc = exc.__cause__
    return False


def _secrets(body: Any, headers: Mapping[str, str] | None) -> set[str]:
    """Return what a request to a token endpoint must not see repeated in an error text."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    fields = dict(parse_qsl(text)) or _json_fields(text)
    found = {value for name, value in fields.items() if name not in _PUBLIC_FIELDS}
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    return found | {sent.get("authorization", "").removeprefix("Bearer ")}


def _json_fields(text: str) -> dict[str, str]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}
