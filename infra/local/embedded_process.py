"""All functions in one process on the in-memory adapters, behind one port each.

The same targets, routes and checks as in the cloud; what is in memory is the ledger, the bucket
and the topics. Messages reach `evaluate` as push deliveries over loopback.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage
from starlette.types import ASGIApp, Receive, Scope, Send

from functions import bootstrap, config, telemetry
from functions.adapters.clock import SystemClock
from functions.adapters.memory import Delivery, MemoryLedger, MemoryObjects, MemoryPublisher
from functions.config import Settings
from functions.core.access import key_hash
from functions.core.errors import ConfigurationError
from functions.core.ports import Create
from functions.providers import registry
from functions.serving import KEEP_ALIVE_SECONDS, SETTLE_SECONDS, Server, create_app
from infra.local.bridge import MAX_OUTSTANDING
from infra.local.embedded import EmbeddedPlan
from infra.local.keys import key_record
from infra.local.network import LOOPBACK
from infra.local.pubsub import ACK_DEADLINE_SECONDS, subscription_path
from infra.local.push import acknowledges, envelope
from infra.local.targets import PUSHED, PushedTarget
from infra.local.tokens import TokenSource


class ByPort:
    """One application that answers as the target whose port the request came to."""

    def __init__(self, targets: Mapping[int, ASGIApp]) -> None:
        self._targets = targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        _, port = scope["server"]
        await self._targets[port](scope, receive, send)


class PushSubscriber:
    """Hands the messages of one topic to their function, as the bridge does."""

    def __init__(
        self, *, url: str, subscription: str, tokens: TokenSource, client: httpx.AsyncClient
    ) -> None:
        self._url = url
        self._subscription = subscription
        self._tokens = tokens
        self._client = client

    async def __call__(self, delivery: Delivery) -> bool:
        """Deliver once; whether the answer acknowledges the message."""
        response = await self._client.post(
            self._url,
            content=envelope(_received(delivery), self._subscription),
            headers={
                "Content-Type": "application/json",
                "Authorization": self._tokens.authorization(),
            },
        )
        return acknowledges(response.status_code)


def _received(delivery: Delivery) -> ReceivedMessage:
    message = PubsubMessage(
        data=delivery.message.data,
        attributes=dict(delivery.message.attributes),
        message_id=delivery.message_id,
        publish_time=delivery.published_at,
    )
    return ReceivedMessage(message=message, delivery_attempt=delivery.attempt)


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings, with what `config` admits beside emulators only: certificates, receivers.

    Raises:
        ConfigurationError: a setting breaks its rule.
    """
    certificates = environ["EMPANEL_PUSH_CERTS"]
    others = {name: value for name, value in environ.items() if name != "EMPANEL_PUSH_CERTS"}
    settings = replace(
        config.load(others),
        push_certs=Path(certificates),
        webhook_loopback=environ.get("EMPANEL_WEBHOOK_ALLOW_LOOPBACK") == "1",
    )
    registry.load(environ)
    return settings


async def serve(plan: EmbeddedPlan, settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve every target at its port until SIGTERM or SIGINT."""
    async with AsyncExitStack() as resources:
        publisher = await _wire(plan, settings, environ)
        resources.push_async_callback(publisher.aclose)
        client = await resources.enter_async_context(
            httpx.AsyncClient(
                trust_env=False,
                timeout=ACK_DEADLINE_SECONDS,
                limits=httpx.Limits(max_connections=None),
            )
        )
        for target in PUSHED:
            _subscribe(publisher, target, plan, settings.project, client)
        sockets = [socket.create_server((LOOPBACK, port)) for port in plan.ports.values()]
        await _server(plan, settings).serve(sockets=sockets)


async def _wire(
    plan: EmbeddedPlan, settings: Settings, environ: Mapping[str, str]
) -> MemoryPublisher:
    """Make this loop's application over the in-memory adapters, and record the API key."""
    clock = SystemClock()
    ledger = MemoryLedger(clock)
    publisher = MemoryPublisher(clock)
    providers = registry.load(environ, concurrency=settings.provider_concurrency)
    services = bootstrap.wire(
        settings,
        clock=clock,
        ledger=ledger,
        objects=MemoryObjects(settings.bucket),
        publisher=publisher,
        providers=providers,
        prices=bootstrap.price_book(providers),
        metrics=bootstrap.process_metrics(),
        tracing=bootstrap.process_tracing(providers),
    )
    bootstrap.use_application(bootstrap.assemble(services))
    record = key_record(datetime.now(UTC))
    await ledger.commit(Create(path=f"api_keys/{key_hash(plan.api_key)}", data=record))
    return publisher


def _subscribe(
    publisher: MemoryPublisher,
    target: PushedTarget,
    plan: EmbeddedPlan,
    project: str,
    client: httpx.AsyncClient,
) -> None:
    subscriber = PushSubscriber(
        url=f"http://{LOOPBACK}:{plan.ports[target.name]}/",
        subscription=subscription_path(project, target.subscription),
        tokens=TokenSource(plan.key, audience=plan.audience, account=plan.account),
        client=client,
    )
    publisher.subscribe(target.topic, subscriber, at_once=MAX_OUTSTANDING)


def _server(plan: EmbeddedPlan, settings: Settings) -> Server:
    targets: dict[int, Any] = {port: create_app(name) for name, port in plan.ports.items()}
    return Server(
        uvicorn.Config(
            ByPort(targets),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(settings.grace_seconds + SETTLE_SECONDS + 0.5),
        ),
        settings.grace_seconds,
    )


def main() -> None:
    """Serve the plan whose path is the first argument."""
    telemetry.configure(os.environ.get("GOOGLE_CLOUD_PROJECT", ""))
    try:
        settings = load_settings(os.environ)
    except ConfigurationError as exc:
        telemetry.error("cannot start", reason=str(exc))
        sys.exit(2)
    asyncio.run(serve(EmbeddedPlan.load(Path(sys.argv[1])), settings, os.environ))


if __name__ == "__main__":
    main()
