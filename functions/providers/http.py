"""One request to one provider over HTTP: sent once, read to a limit, closed on cancellation.

Nothing below retries. The pool is aiohttp's, reached through `httpx-aiohttp`: httpx's own scans all
its connections at every request. aiohttp repeats only idempotent methods on a connection that the
server had closed; ours is POST.

The caller bounds the whole call with `asyncio.timeout`, which also ends an answer that drips in;
the timeouts here bound its parts. Cancellation closes the socket, so that the provider can stop.
"""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers.base import Dialect, Endpoint, WireRequest, endpoint_digest, normalized
from functions.providers.redaction import redactor, safe_preview

CONNECT_SECONDS = 5.0
POOL_SECONDS = 10.0  # waiting for a connection and making it; the caller's semaphore keeps it short
READ_SECONDS = (
    540.0  # the longest provider deadline; a silent wait is what a long answer looks like
)
# Shorter than the usual 5 s of servers: a request on a connection that is just being closed is lost
# and counts as sent.
KEEPALIVE_SECONDS = 3.0

# The faults in which no byte of the request can have been sent: a connection was never made.
_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class _Response(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes


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
        self._redact = redactor([endpoint.api_key])
        self._digest = endpoint_digest(endpoint.dialect, endpoint.base_url)
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
    def pause_scope(self) -> str:
        """Digest of endpoint and key: what a hint pauses, together with a model."""
        key = self._endpoint.api_key or ""
        return hashlib.sha256(f"{self._digest}\n{key}".encode()).hexdigest()[:32]

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        """Ask once. Every failure is a value; only cancellation leaves as an exception."""
        wire = self._dialect.build(self._endpoint, request)
        if isinstance(wire, CallFailure):
            return wire
        try:
            response = await self._exchange(wire)
        except httpx.DecodingError as exc:
            return self._lost("invalid_response", exc)
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError) as exc:
            return self._lost(_code(exc), exc)
        if isinstance(response, CallFailure):
            return response
        status, headers, body = response
        return self._dialect.read(status, headers, body, self._now(), self._redact)

    async def aclose(self) -> None:
        """Close all connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, wire: WireRequest) -> _Response | CallFailure:
        """Send and read to the end, or to the size limit; the connection is then closed."""
        async with self._connected().stream(
            "POST",
            normalized(self._endpoint.base_url) + wire.path,
            headers=wire.headers,
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
            transport=AiohttpTransport(limits=limits, trust_env=False),
            timeout=httpx.Timeout(self._read_seconds, connect=CONNECT_SECONDS, pool=POOL_SECONDS),
            # No compression: a size limit on bytes that can grow a thousandfold is none.
            headers={"user-agent": "empanel", "accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )

    def _too_large(self, status: int) -> CallFailure:
        limit = self._endpoint.max_answer_bytes
        message = f"HTTP {status} with a body over {limit} bytes"
        return CallFailure(code="response_too_large", message=message, http_status=status)

    def _lost(self, code: str, exc: Exception) -> CallFailure:
        """Describe a request without a whole answer; `http_status` stays empty for that reason."""
        cause = exc.__cause__ or exc
        message = f"{type(cause).__name__}: {cause}"
        sent = not isinstance(cause, (*_NEVER_SENT, httpx.InvalidURL, httpx.UnsupportedProtocol))
        return CallFailure(code=code, message=safe_preview(message, self._redact), sent=sent)


def _code(exc: Exception) -> str:
    """Return `timeout` or `connection_error`.

    The transport calls every lost connection a connect timeout, so the cause decides.
    """
    cause = exc.__cause__ or exc
    timed_out = isinstance(cause, TimeoutError | httpx.TimeoutException)
    return "timeout" if timed_out else "connection_error"
