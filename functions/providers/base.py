"""What every provider dialect shares: the endpoint's description and the shape of a dialect.

A dialect is a pure module: it builds a request and reads a response. Only `HttpProvider` does I/O.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

import rfc8785

from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers.credentials import Credentials
from functions.providers.redaction import Redact, unredacted

SchemaMode = Literal["json_schema", "json_object", "prompt"]

# What a caller may give with a seat. A dialect translates these and sends none that was not given.
SEAT_PARAMETERS = frozenset(
    {"max_output_tokens", "temperature", "top_p", "seed", "reasoning_effort"}
)
DEFAULT_CONCURRENCY = 64
DEFAULT_MAX_ANSWER_BYTES = 1024 * 1024

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|secret|signature|token", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What an operator says a provider's models cost, in USD per million tokens.

    None for a cached part means that it costs what other input does.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One configured server and its habits.

    `auth_header` carries `Bearer KEY` when it is `Authorization`, else the key alone. `schema_mode`
    says how far the server takes a JSON Schema; the prompt names the schema in every mode.
    `integers` narrows bounded numbers to integers in the schema that is sent, for servers whose
    grammar bounds only integers (llama.cpp). `max_string_characters` is the longest string bound
    the server takes; None sends no bounds, which OpenAI's strict mode refuses. Our own validation
    always uses the full schema.

    `parameter_names` renames seat parameters for the wire and `refused_parameters` are those that
    the server does not take; the dialect `chat` looks at both. `extra_body` is merged into every
    body and `query` is added to every URL: both are part of what is asked, so they
    belong to the endpoint's digest.

    `headers` go out with every request and win over the dialect's own, never over the credential.
    `idempotency_header` names the header that carries the attempt's key. `credentials` replace
    `api_key` where a key is a token that ends. `api_version` is the first step of the path in
    dialects that have one there; None is the dialect's default.
    """

    name: str
    base_url: str
    dialect: str = "chat"
    api_key: str | None = field(default=None, repr=False)
    auth_header: str = "Authorization"
    token_field: str = "max_completion_tokens"  # noqa: S105 - the name of a JSON key
    schema_mode: SchemaMode = "json_schema"
    integers: bool = False
    max_string_characters: int | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    max_answer_bytes: int = DEFAULT_MAX_ANSWER_BYTES
    parameter_names: Mapping[str, str] = field(default_factory=dict)
    refused_parameters: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    idempotency_header: str | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    api_version: str | None = None
    prices: Prices | None = None


class WireRequest(NamedTuple):
    """A request as it is sent: path below the base URL, headers, JSON body."""

    path: str
    headers: dict[str, str]
    body: bytes


class Dialect(Protocol):
    """How one vendor's protocol is spoken. Both functions are pure."""

    def build(self, endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
        """Return what to send, or why this request cannot be put in the dialect's words."""
        ...

    def read(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        now: datetime,
        redact: Redact = unredacted,
    ) -> ProviderAnswer | CallFailure:
        """Return the answer or the failure a whole response means."""
        ...


def endpoint_digest(
    dialect: str,
    base_url: str,
    *,
    query: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> str:
    """Return the SHA-256 of what an endpoint adds to every question, part of every work key.

    Dialect and normalised base URL always; query and extra body only where there are any, so that
    an endpoint without them keeps the digest it always had.
    """
    identity: dict[str, Any] = {"base_url": normalized(base_url), "dialect": dialect}
    if query:
        identity["query"] = dict(query)
    if extra_body:
        identity["extra_body"] = dict(extra_body)
    return hashlib.sha256(rfc8785.dumps(identity)).hexdigest()


def digest_of(endpoint: Endpoint) -> str:
    """Return the digest of an endpoint as it is configured."""
    return endpoint_digest(
        endpoint.dialect,
        endpoint.base_url,
        query=endpoint.query,
        extra_body=endpoint.extra_body,
    )


def url_of(endpoint: Endpoint, path: str) -> str:
    """Return the URL of a path below an endpoint's base URL, with the endpoint's query."""
    query = f"?{urlencode(endpoint.query)}" if endpoint.query else ""
    return normalized(endpoint.base_url) + path + query


def normalized(base_url: str) -> str:
    """Return `base_url` with lower-case scheme and host, no default port, no closing slash."""
    parts = urlsplit(base_url.strip())
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    default = port is None or port == _DEFAULT_PORTS.get(parts.scheme)
    location = host if default else f"{host}:{port}"
    return urlunsplit((parts.scheme, location, parts.path.rstrip("/"), "", ""))


def auth_headers(endpoint: Endpoint) -> dict[str, str]:
    """Return the header that carries the key, nothing for an endpoint without one."""
    if endpoint.api_key is None:
        return {}
    bearer = endpoint.auth_header.lower() == "authorization"
    return {endpoint.auth_header: f"Bearer {endpoint.api_key}" if bearer else endpoint.api_key}


def fixed_secrets(endpoint: Endpoint) -> list[str]:
    """Return the values of fixed headers and query parameters whose names speak of a secret.

    A gateway's second key goes there. Values of other names, such as a version, are words that an
    answer may well hold.
    """
    fixed = (*endpoint.headers.items(), *endpoint.query.items())
    return [value for name, value in fixed if _SECRET_NAME.search(name)]
