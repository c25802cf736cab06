"""One request to one provider over HTTP: sent once, read to a limit, closed on cancellation.

Nothing below retries. The pool is aiohttp's, reached through `httpx-aiohttp`: httpx's own scans all
its connections at every request. aiohttp repeats only idempotent methods on a connection that the
server had closed; ours is POST.

The caller bounds the whole call with `asyncio.timeout`, which also ends an answer that drips in;
the timeouts here bound its parts. Cancellation closes the socket, so that the provider can stop.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer, preview
from functions.providers.base import (
    Dialect,
    Endpoint,
    WireRequest,
    auth_headers,
    digest_of,
    fixed_secrets,
    url_of,
)
from functions.providers.credentials import FixedKey, Pass
from functions.providers.redaction import Redact, redactor, safe_preview, unredacted

CONNECT_SECONDS = 5.0
POOL_SECONDS = 10.0  # waiting for a connection and making it; the caller's semaphore keeps it short
READ_SECONDS = (
    540.0  # the longest provider deadline; a silent wait is what a long answer looks like
)
# Shorter than the usual 5 s of servers: a request on a connection that is just being closed is lost
# and counts as sent.
KEEPALIVE_SECONDS = 3.0

TOKEN_ENDED = "the token was refused before its time; the next attempt gets a new one"  # noqa: S105 - words

# The faults in which no byte of the request can have been sent: a connection was never made.
_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


_PROBE = CallRequest(model="m", system="s", user="u", schema={"type": "object"})


class _Response(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes


class _Transport(AiohttpTransport):
    """aiohttp's pool, without the cookie jar that its session would carry from call to call."""

    def get_client(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self.limits.max_connections or 0,
            keepalive_timeout=self.limits.keepalive_expiry,
            ssl=self.ssl_context,
        )
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


class HttpProvider:
    """A provider reached over HTTP in one dialect. Implements `functions.core.ports.Provider`.

    The client is made at the first call, in the loop that runs it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        read_seconds: float = READ_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Describe the provider; nothing is opened.

        Args:
            endpoint: the server and its habits.
            dialect: builds requests and reads responses.
            read_seconds: longest silence within an answer.
            now: aware time that retry hints count from.
        """
        self._endpoint = endpoint
        self._dialect = dialect
        self._read_seconds = read_seconds
        self._now = now
        self._credentials = endpoint.credentials or FixedKey(endpoint.api_key)
        self._redact_fixed = redactor(fixed_secrets(endpoint))
        self._digest = digest_of(endpoint)
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        """The provider's name in seats."""
        return self._endpoint.name

    @property
    def endpoint(self) -> str:
        """Digest of dialect and base URL, part of every work key."""
        return self._digest

    @property
    def concurrency(self) -> int:
        """How many calls of this process may be in flight at once."""
        return self._endpoint.concurrency

    @property
    def configuration(self) -> Endpoint:
        """The endpoint as configured, its prices among the rest."""
        return self._endpoint

    @property
    def pause_scope(self) -> str:
        """Digest of endpoint, key and fixed headers: what a hint pauses, together with a model.

        With credentials there is no key: Google counts quotas per project and location, which are
        in the address.
        """
        parts = [self._digest, self._endpoint.api_key or ""]
        if self._endpoint.headers:  # they may name an organisation or a billing project
            parts.append(json.dumps(dict(self._endpoint.headers), sort_keys=True))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def refused_parameters(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Return why the dialect, or this server, has no word for a parameter, by its name.

        Each is tried in a request that is not sent, so that this and a call cannot disagree.
        """
        probes = {name: replace(_PROBE, parameters={name: parameters[name]}) for name in parameters}
        built = {name: self._dialect.build(self._endpoint, probe) for name, probe in probes.items()}
        return {name: one.message for name, one in built.items() if isinstance(one, CallFailure)}

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        """Ask once. Every failure is a value; only cancellation leaves as an exception."""
        wire = self._dialect.build(self._endpoint, request)
        if isinstance(wire, CallFailure):
            return wire
        shown = await self._credentials.get()
        if isinstance(shown, CallFailure):
            return shown
        headers, redact = self._headers(wire, request, shown), self._redaction(shown)
        try:
            response = await self._exchange(wire, headers)
        except httpx.DecodingError as exc:
            return _lost("invalid_response", exc, redact)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError) as exc:
            return _lost(_code(exc), exc, redact)
        if isinstance(response, CallFailure):
            return response
        result = self._dialect.read(*response, self._now(), redact)
        return self._judged(response.status, shown, result)

    async def aclose(self) -> None:
        """Close all connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _headers(self, wire: WireRequest, request: CallRequest, shown: Pass) -> httpx.Headers:
        """Return all headers, each name once in any case; no other one replaces the credential."""
        headers = httpx.Headers(wire.headers)
        headers.update(self._endpoint.headers)
        headers.update(auth_headers(self._endpoint))
        if self._endpoint.idempotency_header and request.attempt_key:
            headers[self._endpoint.idempotency_header] = request.attempt_key
        headers.update(shown.headers)
        return headers

    def _redaction(self, shown: Pass) -> Redact:
        """Return the removal of a call's own credential and of what the configuration adds."""
        if self._redact_fixed is unredacted:
            return shown.redact
        return lambda text: self._redact_fixed(shown.redact(text))

    def _judged(
        self, status: int, shown: Pass, result: ProviderAnswer | CallFailure
    ) -> ProviderAnswer | CallFailure:
        """Tell the credentials what became of the pass; one that ended early is worth a retry."""
        if status != httpx.codes.UNAUTHORIZED:
            self._credentials.accepted(shown)
            return result
        if self._credentials.refused(shown) and isinstance(result, CallFailure):
            message = f"{TOKEN_ENDED}: {result.message}"
            return replace(result, code="provider_error", message=preview(message))
        return result

    async def _exchange(self, wire: WireRequest, headers: httpx.Headers) -> _Response | CallFailure:
        """Send and read to the end, or to the size limit; the connection is then closed."""
        async with self._connected().stream(
            "POST",
            url_of(self._endpoint, wire.path),
            headers=headers,
            content=wire.body,
        ) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._endpoint.max_answer_bytes:
                    return self._too_large(response.status_code)
            return _Response(response.status_code, response.headers, bytes(body))

    def _connected(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = self._new_client(), loop
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(
            max_connections=self._endpoint.concurrency, keepalive_expiry=KEEPALIVE_SECONDS
        )
        return httpx.AsyncClient(
            transport=_Transport(limits=limits, trust_env=False),
            timeout=httpx.Timeout(self._read_seconds, connect=CONNECT_SECONDS, pool=POOL_SECONDS),
            # No compression: a size limit on bytes that can grow a thousandfold is none.
            headers={"user-agent": "empanel", "accept-encoding": "identity"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            trust_env=False,
        )

    def _too_large(self, status: int) -> CallFailure:
        limit = self._endpoint.max_answer_bytes
        message = f"HTTP {status} with a body over {limit} bytes"
        return CallFailure(code="response_too_large", message=message, http_status=status)


def _lost(code: str, exc: Exception, redact: Redact) -> CallFailure:
    """Describe a request without a whole answer; `http_status` stays empty for that reason."""
    cause = exc.__cause__ or exc
    message = f"{type(cause).__name__}: {cause}"
    sent = not isinstance(cause, (*_NEVER_SENT, httpx.InvalidURL, httpx.UnsupportedProtocol))
    return CallFailure(code=code, message=safe_preview(message, redact), sent=sent)


def _code(exc: Exception) -> str:
    """Return `timeout` or `connection_error`.

    The transport calls every lost connection a connect timeout, so the cause decides.
    """
    cause = exc.__cause__ or exc
    timed_out = isinstance(cause, TimeoutError | httpx.TimeoutException)
    return "timeout" if timed_out else "connection_error"
