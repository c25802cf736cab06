"""What the stub saw: counts, and one record per request, for tests to assert on.

Outcomes of a request:

- ``in_flight``: it arrived and has not ended;
- ``answered``: every byte of a valid HTTP answer (whatever its status) was handed to the socket;
- ``client_gone``: the client closed the connection before that; ``ended_at`` is when;
- ``broken``: the stub ended the connection on purpose, as the script said;
- ``stub_error``: the stub itself failed, which a test should never see.

Monotonic times are seconds of ``time.monotonic()``, comparable between processes of one machine
on Linux. Counts are exact; records and bodies are kept for the latest requests only.
"""

import json
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from tests.stub.question import JsonObject, Question

Outcome = Literal["in_flight", "answered", "client_gone", "broken", "stub_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When a request's headers were in, the names of those headers, and the check of its key."""

    at: datetime
    monotonic: float
    header_names: tuple[str, ...]
    authorization_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request. ``number`` counts all requests, ``occurrence`` those of the same key, from 1."""

    number: int
    request_id: str
    key: str
    label: str | None
    model: str
    occurrence: int
    header_names: tuple[str, ...]
    authorization_right: bool
    arrived_at: datetime
    arrived_monotonic: float
    ended_at: datetime | None = None
    ended_monotonic: float | None = None
    outcome: Outcome = "in_flight"
    status: int | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Requests of one kind, and how they ended; the other fields sum to ``requests``."""

    requests: int = 0
    answered: int = 0
    client_gone: int = 0
    broken: int = 0
    stub_error: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts(Counts):
    """The counts of one request key."""

    label: str | None
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(Counts):
    """All requests. ``rejected`` were no chat completion requests and are counted only there."""

    in_flight_max: int = 0
    distinct_keys: int = 0
    wrong_authorization: int = 0
    rejected: int = 0
    records_dropped: int = 0
    bodies_dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBody:
    """A request's body as it was read, JSON decoded."""

    number: int
    key: str
    label: str | None
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Everything the stub saw since its start or the last reset, in order of arrival."""

    totals: Totals
    keys: dict[str, KeyCounts]
    labels: dict[str, Counts]
    models: dict[str, Counts]
    requests: tuple[RequestRecord, ...]
    bodies: tuple[KeptBody, ...]

    def of_label(self, label: str) -> tuple[RequestRecord, ...]:
        """The kept records with this label, in order of arrival."""
        return tuple(record for record in self.requests if record.label == label)


class Tally:
    """Counts by outcome, moved on as requests arrive and end."""

    def __init__(self) -> None:
        self._by_outcome: Counter[str] = Counter()

    def arrive(self) -> int:
        """Count one more request in flight and return how many have arrived."""
        self._by_outcome["in_flight"] += 1
        return self._by_outcome.total()

    def end(self, outcome: Outcome) -> None:
        """Move one request from in flight to its outcome."""
        self._by_outcome["in_flight"] -= 1
        self._by_outcome[outcome] += 1

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return self._by_outcome["in_flight"]

    def counts(self) -> dict[str, int]:
        """The fields of ``Counts``."""
        return {"requests": self._by_outcome.total(), **self._by_outcome}


class Book:
    """Keeps the records. One event loop writes it; it holds no locks."""

    def __init__(self, *, kept_requests: int, kept_body_bytes: int) -> None:
        self._kept_requests = kept_requests
        self._kept_body_bytes = kept_body_bytes
        self._all = Tally()
        self._keys: dict[str, tuple[Question, Tally]] = {}
        self._labels: dict[str, Tally] = {}
        self._models: dict[str, Tally] = {}
        self._records: OrderedDict[int, RequestRecord] = OrderedDict()
        self._bodies: deque[tuple[KeptBody, int]] = deque()
        self._body_bytes = 0
        self._counters: Counter[str] = Counter()

    def arrive(self, question: Question, arrival: Arrival) -> RequestRecord:
        """Write a request down before anything is done with it."""
        number, occurrence = self._count(question)
        record = RequestRecord(
            number=number,
            request_id=f"req_{question.key[:16]}_{occurrence}",
            key=question.key,
            label=question.label,
            model=question.model,
            occurrence=occurrence,
            header_names=arrival.header_names,
            authorization_right=arrival.authorization_right,
            arrived_at=arrival.at,
            arrived_monotonic=arrival.monotonic,
        )
        self._counters["wrong_authorization"] += not arrival.authorization_right
        self._keep(record, question.body)
        return record

    def end(
        self, record: RequestRecord, outcome: Outcome, *, status: int | None, rule: str | None
    ) -> None:
        """Write down how a request ended, and when."""
        for tally in self._tallies(record.key, record.label, record.model):
            tally.end(outcome)
        if record.number in self._records:
            self._records[record.number] = replace(
                record,
                outcome=outcome,
                status=status,
                rule=rule,
                ended_at=datetime.now(UTC),
                ended_monotonic=time.monotonic(),
            )

    def reject(self) -> None:
        """Count a body that was no chat completion request."""
        self._counters["rejected"] += 1

    def stats(self, *, with_requests: bool, with_bodies: bool) -> Stats:
        """A snapshot; records and bodies only when asked for, they are the bulk of it."""
        return Stats(
            totals=Totals(**self._all.counts(), distinct_keys=len(self._keys), **self._counters),
            keys={
                key: KeyCounts(label=asked.label, model=asked.model, **tally.counts())
                for key, (asked, tally) in self._keys.items()
            },
            labels={name: Counts(**tally.counts()) for name, tally in self._labels.items()},
            models={name: Counts(**tally.counts()) for name, tally in self._models.items()},
            requests=tuple(self._records.values()) if with_requests else (),
            bodies=tuple(kept for kept, _ in self._bodies) if with_bodies else (),
        )

    def _count(self, question: Question) -> tuple[int, int]:
        self._keys.setdefault(question.key, (replace(question, body={}), Tally()))
        if question.label is not None:
            self._labels.setdefault(question.label, Tally()).arrive()
        self._models.setdefault(question.model, Tally()).arrive()
        number, occurrence = self._all.arrive(), self._keys[question.key][1].arrive()
        self._counters["in_flight_max"] = max(self._counters["in_flight_max"], self._all.in_flight)
        return number, occurrence

    def _tallies(self, key: str, label: str | None, model: str) -> Iterator[Tally]:
        yield self._all
        yield self._keys[key][1]
        yield self._models[model]
        if label is not None:
            yield self._labels[label]

    def _keep(self, record: RequestRecord, body: JsonObject) -> None:
        self._records[record.number] = record
        if len(self._records) > self._kept_requests:
            self._records.popitem(last=False)
            self._counters["records_dropped"] += 1
        kept = KeptBody(number=record.number, key=record.key, label=record.label, body=body)
        size = len(json.dumps(body))
        self._bodies.append((kept, size))
        self._body_bytes += size
        while self._body_bytes > self._kept_body_bytes:
            self._body_bytes -= self._bodies.popleft()[1]
            self._counters["bodies_dropped"] += 1
