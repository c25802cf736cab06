"""Processes that can be killed, frozen or cut off at any call of a port.

Every port of a process goes through `Process.through`, which numbers the calls of all processes in
one `Plan` and lets the plan strike any of them, before or after the call was applied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from functions.core.errors import LedgerUnavailable, ObjectsUnavailable, PublishFailed
from functions.core.ports import (
    Ledger,
    Message,
    ObjectPage,
    Objects,
    Provider,
    Publisher,
    Query,
    Snapshot,
    StoredObject,
    Write,
)
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.services import Services

T = TypeVar("T")


class ProcessDied(BaseException):
    """No handler catches it: the process is gone, and so is everything it would still have done."""


class Fate(Enum):
    """What a strike does."""

    DIE = "die"  # the process is gone
    FAIL = "fail"  # the port gives no certain answer; the process lives
    FREEZE = "freeze"  # the process stands still for longer than its leases, and then goes on


class Moment(Enum):
    """When a strike hits."""

    BEFORE = "before"  # the call was not applied
    AFTER = "after"  # it was applied, and its answer never arrives


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """What happens to one call."""

    fate: Fate
    moment: Moment


@dataclass(kw_only=True)
class Plan:
    """Numbers the calls of all processes from 1, and says which are struck.

    `always` strikes every call of a name, such as `evaluate: call`.
    """

    strikes: Mapping[int, Strike] = field(default_factory=dict)
    always: Mapping[str, Strike] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def next(self, name: str) -> Strike | None:
        """Note a call; return what happens to it."""
        self.calls.append(name)
        return self.strikes.get(len(self.calls)) or self.always.get(name)


class Process:
    """One instance of a function: its services, and whether it lives or stands still.

    `on_strike` is told about each strike, with the name of the call, before it takes effect.
    """

    def __init__(self, name: str, plan: Plan, on_strike: Callable[[Strike, str], None]) -> None:
        self.name = name
        self.services: Services
        self.alive = True
        self.gone = asyncio.Event()
        self._plan = plan
        self._on_strike = on_strike
        self._runs = asyncio.Event()
        self._runs.set()

    def thaw(self) -> None:
        """Let a frozen process go on, as if it had never stood still."""
        self._runs.set()

    async def through(
        self, name: str, call: Callable[[], Awaitable[T]], fail: Callable[[bool], T]
    ) -> T:
        """Make a call of a port; `fail`, told whether it was applied, raises or returns instead."""
        await self._running()
        strike = self._plan.next(f"{self.name}: {name}")
        if strike is not None and strike.moment is Moment.BEFORE:
            self._hit(strike, name)
            if strike.fate is Fate.FAIL:
                return fail(False)
            await self._running()
        result = await call()
        if strike is not None and strike.moment is Moment.AFTER:
            self._hit(strike, name)
            if strike.fate is Fate.FAIL:
                return fail(True)
        await self._running()
        return result

    def _hit(self, strike: Strike, name: str) -> None:
        self._on_strike(strike, name)
        if strike.fate is Fate.DIE:
            self.alive = False
            self.gone.set()
        if strike.fate is Fate.FREEZE and not self.gone.is_set():  # nothing freezes twice
            self._runs.clear()
            self.gone.set()

    async def _running(self) -> None:
        await self._runs.wait()
        if not self.alive:
            raise ProcessDied(self.name)

    async def lead(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start work and wait until it has ended, or the process is gone.

        The work of a dead process is over when this returns; that of a frozen one is not.
        """
        task = asyncio.create_task(work)
        gone = asyncio.create_task(self.gone.wait())
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not self.alive:
            task.cancel()
            await asyncio.wait({task})
        return task


def _no_ledger(applied: bool) -> Any:
    raise LedgerUnavailable(f"struck, applied: {applied}")


def _no_objects(applied: bool) -> Any:
    raise ObjectsUnavailable(f"struck, applied: {applied}")


def _not_published(applied: bool) -> Any:
    raise PublishFailed(f"struck, applied: {applied}")


def _no_answer(applied: bool) -> ProviderAnswer | CallFailure:
    return CallFailure(code="connection_error", message="struck", sent=applied)


@dataclass(frozen=True, kw_only=True)
class DyingLedger:
    """A process's way to the ledger."""

    process: Process
    inner: Ledger

    async def get(self, *paths: str) -> list[Snapshot]:
        kinds = ", ".join(_kind(path) for path in paths)
        return await self.process.through(
            f"get {kinds}", lambda: self.inner.get(*paths), _no_ledger
        )

    async def commit(self, *writes: Write) -> datetime:
        kinds = ", ".join(f"{type(w).__name__.lower()} {_kind(w.path)}" for w in writes)
        return await self.process.through(
            f"commit {kinds}", lambda: self.inner.commit(*writes), _no_ledger
        )

    async def query(self, query: Query) -> list[Snapshot]:
        return await self.process.through(
            f"query {query.collection}", lambda: self.inner.query(query), _no_ledger
        )

    async def count(self, query: Query) -> int:
        return await self.process.through("count", lambda: self.inner.count(query), _no_ledger)

    async def total(self, query: Query) -> int:
        return await self.process.through("total", lambda: self.inner.total(query), _no_ledger)


@dataclass(frozen=True, kw_only=True)
class DyingObjects:
    """A process's way to the bucket."""

    process: Process
    inner: Objects

    def uri(self, name: str) -> str:
        return self.inner.uri(name)

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        return await self.process.through(
            "create object",
            lambda: self.inner.create(name, data, content_type=content_type, metadata=metadata),
            _no_objects,
        )

    async def stat(self, name: str) -> StoredObject | None:
        return await self.process.through("stat object", lambda: self.inner.stat(name), _no_objects)

    async def read(self, name: str, generation: int | None = None) -> bytes:
        return await self.process.through(
            "read object", lambda: self.inner.read(name, generation), _no_objects
        )

    async def list_page(self, prefix: str, *, page: str | None = None) -> ObjectPage:
        return await self.process.through(
            "list objects", lambda: self.inner.list_page(prefix, page=page), _no_objects
        )

    async def delete(self, name: str, generation: int) -> bool:
        return await self.process.through(
            "delete object", lambda: self.inner.delete(name, generation), _no_objects
        )


@dataclass(frozen=True, kw_only=True)
class DyingPublisher:
    """A process's way to the topics."""

    process: Process
    inner: Publisher

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        await self.process.through(
            f"publish {len(messages)}", lambda: self.inner.publish(topic, messages), _not_published
        )

    async def check(self, topic: str) -> None:
        await self.process.through("check topic", lambda: self.inner.check(topic), _not_published)


@dataclass(frozen=True, kw_only=True)
class DyingProvider:
    """A process's way to a provider; a failure here is a connection that broke."""

    process: Process
    inner: Provider

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def endpoint(self) -> str:
        return self.inner.endpoint

    @property
    def concurrency(self) -> int:
        return self.inner.concurrency

    @property
    def pause_scope(self) -> str:
        return self.inner.pause_scope

    def refused_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        return self.inner.refused_parameters(parameters)

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        return await self.process.through("call", lambda: self.inner.call(request), _no_answer)


def _kind(path: str) -> str:
    """Name a document by its collection: what a reader of a failed test wants to know."""
    return path.split("/")[-2]
