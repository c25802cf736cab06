"""Webhooks: which addresses may be called, what is sent, and what came of it. Pure.

Sources: RFC 6890 and its registries (through `ipaddress`) for what is no public address; the
Standard Webhooks specification for the rest of the call.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

HTTPS_PORTS = (443, 8443)
LOOPBACK = IPv4Address("127.0.0.1")
MAX_URL_CHARACTERS = 2048

_VISIBLE = re.compile(r"[!-~]+")  # ASCII without spaces: what all readers of a URL split alike
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)+{_LABEL}\.?")
_NUMERIC = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal")
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class WebhookOutcome(StrEnum):
    """What a call came to; all but `retryable` end the webhook's part of a notification."""

    DELIVERED = "delivered"  # 2xx
    GONE = "gone"  # 410: the receiver wants no more
    BLOCKED = "blocked"  # an address that may not be called
    RETRYABLE = "retryable"


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookCall:
    """One call: the same `id` and `body` at every try, signed for `at`."""

    url: str
    id: str
    body: bytes
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookAnswer:
    """What is known of a call: never anything of the receiver's body.

    `reason` is one of a few fixed words. `hint_seconds` is the receiver's `Retry-After`.
    """

    outcome: WebhookOutcome
    reason: str
    http_status: int | None = None
    latency_seconds: float | None = None
    hint_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """Where a webhook is sent; `host` is a name, or the text of an address."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def address(self) -> Address | None:
        """The address in the URL, None when it holds a name."""
        return _address(self.host)

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class UrlRefused(ValueError):
    """The URL may not be called; the text says which rule it breaks."""


def is_public(address: Address) -> bool:
    """Whether an address is one of the open internet, seen through its IPv6 forms.

    Private, loopback, link-local (with the metadata servers), shared, reserved and multicast
    addresses are not, nor is an IPv6 address that stands for such an IPv4 address.
    """
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to an IPv6 address would reach."""
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo


def read_receiver(url: str, *, allow_loopback: bool = False) -> Receiver:
    """Return where a URL points.

    `allow_loopback` also admits `http://127.0.0.1` at any port, for receivers of the local stack.
    An address behind a name is looked at when it is connected to, not here.

    Raises:
        UrlRefused: it breaks a rule.
    """
    parts, port = _split(url)
    host = (parts.hostname or "").lower()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if allow_loopback and parts.scheme == "http" and host == str(LOOPBACK):
        return Receiver(tls=False, host=host, port=80 if port is None else port, path=path)
    if parts.scheme != "https":
        raise UrlRefused("must be an https address")
    port = 443 if port is None else port
    if port not in HTTPS_PORTS:
        raise UrlRefused("must use port 443 or 8443")
    _check_host(host)
    return Receiver(tls=True, host=host, port=port, path=path)


def _split(url: str) -> tuple[SplitResult, int | None]:
    if len(url) > MAX_URL_CHARACTERS:
        raise UrlRefused(f"must have at most {MAX_URL_CHARACTERS} characters")
    if not _VISIBLE.fullmatch(url) or "\\" in url:
        raise UrlRefused("must hold visible ASCII characters only, and no backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise UrlRefused("is not a URL") from exc
    if "@" in parts.netloc:
        raise UrlRefused("must not hold user information")
    if parts.fragment:
        raise UrlRefused("must not hold a fragment")
    return parts, port


def _check_host(host: str) -> None:
    address = _address(host)
    if address is not None:
        if not is_public(address):
            raise UrlRefused("must not name a private, loopback, link-local or reserved address")
        return
    if host.rstrip(".") == "localhost" or host.rstrip(".").endswith(_PRIVATE_SUFFIXES):
        raise UrlRefused("must not name this machine or a private network")
    if not _NAME.fullmatch(host) or len(host) > 253:
        raise UrlRefused("must hold a full domain name, or an address in its usual form")
    if _NUMERIC.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        raise UrlRefused("must hold an address in its usual form")  # 127.1, 0x7f.0.0.1


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
