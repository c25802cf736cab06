"""What the steps need from the outside: ledger, objects, messages, providers, clock.

Each port has an in-memory adapter and a real one, and one contract suite that both pass
(`tests/contract/`). The ledger is a document store with server time and preconditions; the rules of
jobs and leases stay in the steps, so that they are written once for every adapter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.core.webhooks import WebhookAnswer, WebhookCall

Fields = Mapping[str, Any]


class Sentinel(Enum):
    """Values that only the server can fill in."""

    SERVER_TIME = "server_time"  # when the server took the request up; see `SERVER_TIME` below
    DELETE = "delete"  # the field is removed (updates only)


SERVER_TIME = Sentinel.SERVER_TIME
"""Whole milliseconds, a little before the commit (Firestore's REQUEST_TIME; measured 2 to 92 ms on
the emulator). A scan for what is newer than a read must begin some seconds before that read."""
DELETE = Sentinel.DELETE


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A document as read; `data` is None when it does not exist. All times are the server's."""

    path: str
    data: dict[str, Any] | None
    read_time: datetime
    update_time: datetime | None = None

    @property
    def exists(self) -> bool:
        """Whether the document was there at `read_time`."""
        return self.data is not None

    @property
    def id(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Create:
    """Write a document that must not exist yet."""

    path: str
    data: Fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Set the named top-level fields of a document that exists.

    With `if_updated_at` the write holds only when the document still has that `update_time`.
    """

    path: str
    fields: Fields
    if_updated_at: datetime | None = None


Write = Create | Update


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A filtered, ordered page of one collection.

    `where` holds (field, operator, value) with the operators `==`, `<=`, `<`, `>=`, `>`,
    `array_contains`. Documents without the `order_by` field are not found, as in Firestore. Ties
    are ordered by document ID in the same direction. `after` is (value of `order_by`, document ID).
    """

    collection: str
    where: tuple[tuple[str, str, Any], ...] = ()
    order_by: str | None = None
    descending: bool = False
    limit: int | None = None
    after: tuple[Any, str] | None = None


class Ledger(Protocol):
    """Documents with server time, atomic commits and preconditions. Never retries by itself.

    Every method raises `LedgerUnavailable` when it has no certain answer.
    """

    async def get(self, *paths: str) -> list[Snapshot]:
        """Read documents in one round trip, in the order asked for."""
        ...

    async def commit(self, *writes: Write) -> datetime:
        """Apply all writes or none; return the commit's time.

        It is the new `update_time` of each document that changed; one that was written as it was
        already keeps its own.

        Raises:
            WriteConflict: a precondition did not hold.
            LedgerUnavailable: the writes may or may not have been applied.
            ValueError: the writes break a rule of the store; nothing was applied.
        """
        ...

    async def query(self, query: Query) -> list[Snapshot]:
        """Return the documents that match, at most `limit`."""
        ...

    async def count(self, query: Query) -> int:
        """Return how many documents match, without reading them."""
        ...

    async def total(self, query: Query) -> int:
        """Return the sum of the field in `order_by`, of whole numbers, without reading them."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredObject:
    """An object of the bucket: name, generation, and metadata as stored with it."""

    name: str
    generation: int
    size: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectPage:
    """A page of a listing, in the order of names; `next_page` is None at its end."""

    objects: tuple[StoredObject, ...]
    next_page: str | None = None


class Objects(Protocol):
    """Create-only objects. Never retries by itself.

    Every method raises `ObjectsUnavailable` when it has no certain answer.
    """

    def uri(self, name: str) -> str:
        """Return the public name of an object, `gs://bucket/name`."""
        ...

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Create an object under `ifGenerationMatch=0`; None when one is there already."""
        ...

    async def stat(self, name: str) -> StoredObject | None:
        """Return the object's description, or None when it certainly does not exist."""
        ...

    async def read(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectMissing: the object, or that generation of it, does not exist.
        """
        ...

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        """Return the objects whose names begin with `prefix`, at most 1,000 a page.

        A listing without an object there is empty, never an error; a missing permission is
        `ObjectsUnavailable`.
        """
        ...

    async def delete(self, name: str, generation: int) -> bool:
        """Delete one generation of an object; False when it is not there any more."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message: a JSON payload and string attributes."""

    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)


class Publisher(Protocol):
    """Sends messages to topics."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once the topic has confirmed every message.

        Raises:
            PublishFailed: at least one message was not confirmed.
        """
        ...

    async def check(self, topic: str) -> None:
        """Return when the topic answers and would take messages; nothing is published.

        Raises:
            PublishFailed: it does not.
        """
        ...


class Provider(Protocol):
    """One configured endpoint. Sends one request and never repeats it."""

    @property
    def name(self) -> str:
        """The provider's name in seats."""
        ...

    @property
    def endpoint(self) -> str:
        """Digest of dialect and base URL, part of every work key."""
        ...

    @property
    def concurrency(self) -> int:
        """How many calls of this process may be in flight at once."""
        ...

    @property
    def pause_scope(self) -> str:
        """Name of endpoint and key, the key not given away; with a model, what a hint pauses."""
        ...

    def refused_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Return why a seat's parameters cannot be asked for here, by their names.

        Told at acceptance: a call with one of them would fail without being sent.
        """
        ...

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        """Ask once. Cancelling the call closes its connection."""
        ...


class Webhooks(Protocol):
    """Calls the receivers of notifications. Calls once and never repeats it."""

    async def send(self, call: WebhookCall) -> WebhookAnswer:
        """Sign and send; what the receiver answers, or fails to, is a value.

        No address is connected to that was not checked, and no call lasts longer than the adapter's
        own limit, whatever the receiver does.
        """
        ...


class PriceBook(Protocol):
    """What calls cost, in US dollars. An unknown model or price is None, never 0."""

    def cost_usd(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Return what a call with this usage cost at that time."""
        ...

    def estimate_usd(
        self, provider: str, model: str, *, input_tokens: int, output_tokens: int, at: datetime
    ) -> float | None:
        """Return the most that a call with at most these tokens costs: no discount for caching."""
        ...


class Callers(Protocol):
    """Tells which machine caller an identity token proves."""

    async def verify(self, token: str) -> str:
        """Return the caller's account.

        Raises:
            CallerRefused: signature, audience, expiry, issuer, e-mail or account is wrong.
            CallersUnknown: no token can be checked at present.
        """
        ...


class Clock(Protocol):
    """Time. `now` follows the server's clock once a read time has been observed."""

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        ...

    def observe(self, server_time: datetime) -> None:
        """Note a server time that was just received."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
