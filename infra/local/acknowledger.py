"""Acknowledges messages in groups: all that ended while the last call was on its way."""

import asyncio
import logging

from google.api_core.exceptions import GoogleAPICallError
from google.pubsub_v1 import SubscriberAsyncClient

CALL_SECONDS = 30.0

log = logging.getLogger("bridge")


class Acknowledger:
    """Collects ack IDs of one subscription and sends them, one call at a time."""

    def __init__(self, pubsub: SubscriberAsyncClient, subscription: str) -> None:
        self._pubsub = pubsub
        self._subscription = subscription
        self._acks: list[str] = []
        self._nacks: list[str] = []
        self._work = asyncio.Event()

    def put(self, ack_id: str, *, acknowledged: bool) -> None:
        """Note one result; it is sent with the next call."""
        (self._acks if acknowledged else self._nacks).append(ack_id)
        self._work.set()

    async def run(self) -> None:
        """Send what is collected, for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._send()
            except GoogleAPICallError as exc:
                # The messages come again when their ack deadline is over: at least once, as always.
                log.warning("acknowledging on %s failed: %s", self._subscription, exc)

    async def _send(self) -> None:
        acks, self._acks = self._acks, []
        nacks, self._nacks = self._nacks, []
        if acks:
            await self._pubsub.acknowledge(
                subscription=self._subscription, ack_ids=acks, timeout=CALL_SECONDS
            )
        if nacks:
            await self._pubsub.modify_ack_deadline(
                subscription=self._subscription,
                ack_ids=nacks,
                ack_deadline_seconds=0,
                timeout=CALL_SECONDS,
            )
