"""The bridge: Pub/Sub push for the emulator, whose own push has two messages in flight at most.

For each subscription it pulls (unary Pull only: a killed streaming pull would hold its messages
for minutes), POSTs the push envelope with a signed token to a function, and acknowledges by the
status. It is a process of its own, started by the stack with the path of its plan.
"""

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import httpx
from google.api_core.exceptions import GoogleAPICallError
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.types import ReceivedMessage
from httpx_aiohttp import AiohttpTransport

from infra.local.acknowledger import Acknowledger
from infra.local.endpoints import Endpoints
from infra.local.files import write_atomically
from infra.local.pubsub import ACK_DEADLINE_SECONDS, open_channel, subscriber
from infra.local.push import PushBackoff, acknowledges, envelope
from infra.local.tokens import SigningKey, TokenSource

MAX_OUTSTANDING = 96
PULL_TIMEOUT_SECONDS = 60.0  # the emulator answers an empty pull after about 4 s
PULL_RETRY_SECONDS = 0.5

log = logging.getLogger("bridge")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One subscription and the instances of the function that it is pushed to."""

    subscription: str
    urls: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the bridge's process needs, the signing key included."""

    pubsub: str
    routes: Sequence[Route]
    audience: str
    account: str
    key: SigningKey
    max_outstanding: int = MAX_OUTSTANDING

    def save(self, path: Path) -> None:
        """Write the plan for the process that will read it."""
        write_atomically(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        fields = json.loads(path.read_text())
        routes = [Route(**route) for route in fields.pop("routes")]
        return cls(routes=routes, key=SigningKey(**fields.pop("key")), **fields)


class Forwarder:
    """Pushes the messages of one subscription, at most `max_outstanding` at a time."""

    def __init__(
        self,
        route: Route,
        *,
        pubsub: SubscriberAsyncClient,
        client: httpx.AsyncClient,
        tokens: TokenSource,
        max_outstanding: int,
    ) -> None:
        self._subscription = route.subscription
        self._pubsub = pubsub
        self._client = client
        self._tokens = tokens
        self._endpoints = Endpoints(route.urls, client)
        self._acknowledger = Acknowledger(pubsub, route.subscription)
        self._free = max_outstanding
        self._slot_freed = asyncio.Event()
        self._backoff = PushBackoff()

    async def run(self) -> None:
        """Forward until cancelled; messages in flight are then left to the ack deadline."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._acknowledger.run())
                while True:
                    await self._until_open()
                    for received in await self._pull():
                        self._free -= 1
                        group.create_task(self._deliver(received))
        finally:
            await self._endpoints.close()

    async def _until_open(self) -> None:
        """Wait for a free slot, an instance that is up, and the end of a push backoff."""
        while self._free == 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        await self._endpoints.wait_for_one()
        while (pause := self._backoff.remaining_seconds(time.monotonic())) > 0:  # noqa: ASYNC110 - known times
            await asyncio.sleep(pause)

    async def _pull(self) -> Sequence[ReceivedMessage]:
        try:
            response = await self._pubsub.pull(
                subscription=self._subscription,
                max_messages=self._free,
                retry=None,
                timeout=PULL_TIMEOUT_SECONDS,
            )
        except GoogleAPICallError as exc:
            log.warning("pull from %s failed: %s", self._subscription, exc)
            await asyncio.sleep(PULL_RETRY_SECONDS)
            return ()
        return response.received_messages

    async def _deliver(self, received: ReceivedMessage) -> None:
        try:
            # Pulled just before the last instance went down: it waits at the door, as on the
            # platform, where a starting instance costs time and not a delivery attempt.
            await self._endpoints.wait_for_one()
            acknowledged = await self._post(received)
        finally:
            self._free += 1
            self._slot_freed.set()
        self._acknowledger.put(received.ack_id, acknowledged=acknowledged)

    async def _post(self, received: ReceivedMessage) -> bool:
        """POST one message; whether the answer acknowledges it.

        Only an answer feeds the push backoff. A connection that is refused or lost means that the
        instance is going away or coming up, which is what the health check waits for.
        """
        url = self._endpoints.take()
        try:
            response = await self._client.post(
                f"{url}/",
                content=envelope(received, self._subscription),
                headers={
                    "Content-Type": "application/json",
                    "Authorization": self._tokens.authorization(),
                },
            )
        except httpx.TransportError as exc:
            log.warning("message %s to %s: %r", received.message.message_id, url, exc)
            self._endpoints.failed(url)
            return False
        finally:
            self._endpoints.give_back(url)
        return self._judge(response.status_code, received)

    def _judge(self, status: int, received: ReceivedMessage) -> bool:
        acknowledged = acknowledges(status)
        if acknowledged:
            self._backoff = self._backoff.after_ack()
        else:
            self._backoff = self._backoff.after_nack(time.monotonic())
            log.warning(
                "message %s nacked with status %d; the subscription pauses for %.1f s",
                received.message.message_id,
                status,
                self._backoff.pause_seconds,
            )
        return acknowledged


async def run_bridge(plan: Plan) -> None:
    """Forward all subscriptions of the plan until cancelled."""
    tokens = TokenSource(plan.key, audience=plan.audience, account=plan.account)
    transport = AiohttpTransport(limits=httpx.Limits(max_connections=None))
    timeout = httpx.Timeout(ACK_DEADLINE_SECONDS, connect=5.0)
    async with (
        open_channel(plan.pubsub) as channel,
        httpx.AsyncClient(transport=transport, timeout=timeout) as client,
        asyncio.TaskGroup() as group,
    ):
        for route in plan.routes:
            forwarder = Forwarder(
                route,
                pubsub=subscriber(channel),
                client=client,
                tokens=tokens,
                max_outstanding=plan.max_outstanding,
            )
            group.create_task(forwarder.run())


async def _run_until_signalled(plan: Plan) -> None:
    work = asyncio.create_task(run_bridge(plan))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("stopped")


def main() -> None:
    """Run the plan whose path is the first argument."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_run_until_signalled(Plan.load(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
