"""Ports with one fault each, wired in front of the real ones in the drill's own process only."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from functions.adapters.gcs import GcsObjects
from functions.core.ports import Message, Publisher, StoredObject
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer

SCORE = 50
ANSWER = ProviderAnswer(text=f'{{"score": {SCORE}}}')


@dataclass(frozen=True, kw_only=True)
class LossyPublisher:
    """Confirms every message, and drops those of some topics: a publisher whose topic lost them."""

    inner: Publisher
    dropped: frozenset[str]

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Publish, or confirm and drop.

        Raises:
            PublishFailed: as the real one.
        """
        if topic not in self.dropped:
            await self.inner.publish(topic, messages)

    async def check(self, topic: str) -> None:
        """Answer as the real one: whoever asks is to notice nothing.

        Raises:
            PublishFailed: as the real one.
        """
        await self.inner.check(topic)


class HeldUploads(GcsObjects):
    """A bucket whose uploads never begin: each waits in `hold`, in which its process dies."""

    def __init__(
        self, bucket: str, *, emulator_host: str | None, hold: Callable[[], Awaitable[NoReturn]]
    ) -> None:
        super().__init__(bucket, emulator_host=emulator_host)
        self._hold = hold

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Hold the upload until the process is killed."""
        await self._hold()


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Answers in a provider's place, so that the drill knows the moment; asks no model.

    `endpoint` is the digest that the deployment has pinned for this provider.
    """

    name: str
    endpoint: str
    answer: Callable[[], Awaitable[ProviderAnswer | CallFailure]]
    concurrency: int = 8

    @property
    def pause_scope(self) -> str:
        """A name of its own: no pause of the real provider concerns it, nor the other way round."""
        return f"drill {self.name}"

    def refused_parameters(self, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Return nothing: a drill's seats have no parameters."""
        return {}

    async def call(self, request: CallRequest) -> ProviderAnswer | CallFailure:
        """Answer as the drill wants it."""
        return await self.answer()


async def answer_at_once() -> ProviderAnswer:
    """Return a valid answer to a drill's question."""
    return ANSWER
