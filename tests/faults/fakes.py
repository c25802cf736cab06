"""What outlives every process: a ledger that remembers each change, and a provider that counts."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from functions.adapters.memory import MemoryLedger, MemoryObjects
from functions.core.identities import digest
from functions.core.jobs import Usage
from functions.core.ports import Clock, Write
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer

ENDPOINT = digest("the fake provider")
Reply = ProviderAnswer | CallFailure


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One document before and after a commit; `objects` are the names in the bucket just then."""

    path: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]
    at: datetime
    objects: frozenset[str]

    @property
    def collection(self) -> str:
        """The collection that the document is in."""
        return self.path.split("/")[-2]


class RecordingLedger(MemoryLedger):
    """A ledger in memory that remembers every change in order."""

    def __init__(self, clock: Clock, objects: MemoryObjects) -> None:
        super().__init__(clock)
        self.history: list[Change] = []
        self._bucket = objects

    def stored(self) -> dict[str, dict[str, Any]]:
        """Return everything stored, by path, uncopied: for looks that change nothing."""
        return {path: document.data for path, document in self._documents.items()}

    def _apply(self, writes: Sequence[Write]) -> datetime:
        before = {w.path: self._documents[w.path].data for w in writes if w.path in self._documents}
        committed = super()._apply(writes)
        names = frozenset(self._bucket.names())
        for write in writes:
            self.history.append(
                Change(
                    path=write.path,
                    before=before.get(write.path),
                    after=self._documents[write.path].data,
                    at=committed,
                    objects=names,
                )
            )
        return committed


class FakeProvider:
    """Answers by a script and counts what was sent, per question.

    `script` gets the request and its number for the question, from 1. Each answer differs from all
    others, so that an output that was bought twice can be told from the first.
    """

    def __init__(self, clock: Clock, on_sent: Callable[[CallRequest], None]) -> None:
        self.name = "fake"
        self.endpoint = ENDPOINT
        self.concurrency = 64
        self.pause_scope = "fake-key"
        self.seconds = 1.0
        self.sent: Counter[str] = Counter()
        self.unusable: Counter[str] = Counter()
        self.cut_at: list[datetime] = []
        self.script: Callable[[CallRequest, int], Reply] = self.answer
        self._clock = clock
        self._on_sent = on_sent

    def refused_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Take them all."""
        return {}

    async def call(self, request: CallRequest) -> Reply:
        """Count the request as sent, then think for `seconds`."""
        question = question_of(request)
        self.sent[question] += 1
        number = self.sent[question]
        self._on_sent(request)
        try:
            await self._clock.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cut_at.append(self._clock.now())
            raise
        reply = self.script(request, number)
        if isinstance(reply, CallFailure) or not reply.text.startswith("{"):
            self.unusable[question] += 1
        return reply

    def answer(self, request: CallRequest, number: int) -> ProviderAnswer:
        """Return a valid answer of its own."""
        score = 50 + number / 10
        text = json.dumps({"rationale": f"{request.model}, answer {number}", "score": score})
        return ProviderAnswer(
            text=text,
            model_returned=f"{request.model}-1",
            usage=Usage(input_tokens=100, output_tokens=20),
            request_id=f"req_{number}",
        )


def question_of(request: CallRequest) -> str:
    """Return a name for what a request asks: the same for a second purchase of an evaluation."""
    parameters = dict(request.parameters)
    return digest([request.model, request.system, request.user, parameters])


def failure(code: str, *, http_status: int | None = 500, **facts: Any) -> CallFailure:
    """Return a failed call."""
    return CallFailure(code=code, message=f"scripted {code}", http_status=http_status, **facts)
