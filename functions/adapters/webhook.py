"""Webhooks over httpx: signed as Standard Webhooks asks, to addresses that have been checked.

A name is looked up here, each address is checked, and the connection is made to that very address
(the name stays in `Host` and in the TLS handshake), so a second answer of the name server is never
asked for. `httpx_secure` checks the address once more where the socket is opened. Redirects are not
followed, cookies not kept, proxies not asked, connections not used again. Of the answer only status
and `Retry-After` are looked at; a little of its body is read, so that the receiver can end in
order, and dropped.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address

import httpx
from httpx_secure import SSRFProtectionError, httpx_ssrf_protection
from standardwebhooks import Webhook

from functions.core.hints import read_hint
from functions.core.webhooks import (
    LOOPBACK,
    Address,
    Receiver,
    UrlRefused,
    WebhookAnswer,
    WebhookCall,
    WebhookOutcome,
    is_public,
    read_receiver,
)

CALL_SECONDS = 15.0
CONNECT_SECONDS = 5.0
DRAIN_SECONDS = 1.0
DRAIN_BYTES = 16 * 1024
MAX_ADDRESSES = 4
LOOKUP_THREADS = 32

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class HttpWebhooks:
    """A `Webhooks` over HTTP. Secrets come newest first; each call carries a signature by each.

    `resolve` and `admits` are how names become addresses and which of those may be called; `tls`
    is what certificates are checked against.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        allow_loopback: bool = False,
        resolve: Resolve | None = None,
        admits: Callable[[Address], bool] = is_public,
        tls: ssl.SSLContext | None = None,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._signers = [Webhook(secret) for secret in secrets]
        self._allow_loopback = allow_loopback
        self._resolve = resolve or _Lookup()
        self._admits = admits
        self._tls = tls
        self._call_seconds = call_seconds
        self._client: httpx.AsyncClient | None = None

    async def send(self, call: WebhookCall) -> WebhookAnswer:
        """Send one call; see `Webhooks.send`."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._call_seconds):
                receiver = read_receiver(call.url, allow_loopback=self._allow_loopback)
                addresses = await self._checked(receiver)
                return await self._to_one_of(receiver, addresses, call, begun)
        except UrlRefused:
            return _ended(WebhookOutcome.BLOCKED, "url_refused", begun)
        except (_AddressRefused, SSRFProtectionError):
            return _ended(WebhookOutcome.BLOCKED, "address_refused", begun)
        except OSError as exc:  # TimeoutError is one, and so is what a name server answers
            reason = "name_unknown" if isinstance(exc, socket.gaierror) else "timeout"
            return _ended(WebhookOutcome.RETRYABLE, reason, begun)
        except httpx.HTTPError as exc:
            return _ended(WebhookOutcome.RETRYABLE, _reason(exc), begun)

    def signature(self, call: WebhookCall) -> str:
        """Return the value of `webhook-signature`: one signature by each secret, newest first."""
        body = call.body.decode()
        return " ".join(signer.sign(call.id, call.at, body) for signer in self._signers)

    async def _checked(self, receiver: Receiver) -> list[Address]:
        """Return the addresses that the receiver has; each of them may be called.

        Raises:
            _AddressRefused: one of them may not: a name that mixes them is not trusted.
        """
        if receiver.address is not None:
            texts: Sequence[str] = [receiver.host]
        else:
            texts = await self._resolve(receiver.host, receiver.port)
        addresses = [ip_address(text.partition("%")[0]) for text in texts]
        own_loopback = not receiver.tls  # admitted by `read_receiver` as a literal only
        if not own_loopback and not all(map(self._admits, addresses)):
            raise _AddressRefused(receiver.host)
        return list(dict.fromkeys(addresses))[:MAX_ADDRESSES]

    async def _to_one_of(
        self, receiver: Receiver, addresses: Sequence[Address], call: WebhookCall, begun: float
    ) -> WebhookAnswer:
        """Send to the first address that can be connected to."""
        failure: httpx.TransportError | None = None
        for address in addresses:
            try:
                return await self._send(receiver, address, call, begun)
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                failure = exc
        raise failure or httpx.ConnectError("the name has no address")

    async def _send(
        self, receiver: Receiver, address: Address, call: WebhookCall, begun: float
    ) -> WebhookAnswer:
        request = httpx.Request(
            "POST",
            httpx.URL(
                scheme="https" if receiver.tls else "http",
                host=str(address),
                port=receiver.port,
                raw_path=receiver.path.encode("ascii"),
            ),
            content=call.body,
            headers=self._headers(receiver, call),
            extensions={
                "sni_hostname": receiver.host.rstrip("."),
                "timeout": httpx.Timeout(self._call_seconds, connect=CONNECT_SECONDS).as_dict(),
            },
        )
        response = await self._opened().send(request, stream=True)
        try:
            answer = _answer(response, call, begun)
            if time.monotonic() - begun + DRAIN_SECONDS < self._call_seconds:
                with suppress(TimeoutError, httpx.HTTPError):
                    await _drain(response)
            return answer
        finally:
            await response.aclose()

    def _headers(self, receiver: Receiver, call: WebhookCall) -> dict[str, str]:
        return {
            "Host": receiver.authority,
            "Content-Type": "application/json",
            "Content-Length": str(len(call.body)),
            "User-Agent": "empanel-webhooks",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "webhook-id": call.id,
            "webhook-timestamp": str(int(call.at.timestamp())),
            "webhook-signature": self.signature(call),
        }

    def _opened(self) -> httpx.AsyncClient:
        """Return the client, made at its first use inside the loop."""
        if self._client is None:
            client = httpx.AsyncClient(
                trust_env=False,
                follow_redirects=False,
                verify=self._tls if self._tls is not None else True,
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
            self._client = httpx_ssrf_protection(
                client, check_globally_reachable=False, custom_validator=self._may_connect
            )
        return self._client

    def _may_connect(self, _: str, address: Address, __: int) -> bool:
        return self._admits(address) or (self._allow_loopback and address == LOOPBACK)


class _AddressRefused(Exception):
    """A name leads to an address that may not be called."""


class _Lookup:
    """The system's name lookup, in threads of its own: one that hangs holds up nothing else."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="webhook-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses, host, port)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(entry[4][0]) for entry in found]


async def _drain(response: httpx.Response) -> None:
    """Read a little of a body and drop it, as it comes: nothing is unpacked."""
    read = 0
    async with asyncio.timeout(DRAIN_SECONDS):
        async for chunk in response.aiter_raw(DRAIN_BYTES):
            read += len(chunk)
            if read >= DRAIN_BYTES:
                return


def _answer(response: httpx.Response, call: WebhookCall, begun: float) -> WebhookAnswer:
    status = response.status_code
    latency = time.monotonic() - begun
    if response.is_success:
        outcome, reason = WebhookOutcome.DELIVERED, "accepted"
    elif status == httpx.codes.GONE:
        outcome, reason = WebhookOutcome.GONE, "gone"
    else:
        outcome, reason = WebhookOutcome.RETRYABLE, _class_of(status)
    hint = read_hint(response.headers, None, call.at)
    return WebhookAnswer(
        outcome=outcome,
        reason=reason,
        http_status=status,
        latency_seconds=round(latency, 3),
        hint_seconds=hint if outcome is WebhookOutcome.RETRYABLE else None,
    )


def _class_of(status: int) -> str:
    if 300 <= status < 400:
        return "redirect"
    return "server_error" if status >= 500 else "refused"


def _reason(exc: httpx.HTTPError) -> str:
    if isinstance(exc, httpx.TimeoutException):
        return "timeout"
    if isinstance(exc, httpx.ConnectError):
        return "tls_failed" if _is_tls(exc) else "not_connected"
    return "connection_lost" if isinstance(exc, httpx.NetworkError) else "no_answer"


def _is_tls(exc: BaseException) -> bool:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _ended(outcome: WebhookOutcome, reason: str, begun: float) -> WebhookAnswer:
    return WebhookAnswer(
        outcome=outcome, reason=reason, latency_seconds=round(time.monotonic() - begun, 3)
    )
