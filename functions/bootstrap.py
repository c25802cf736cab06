"""The composition root: settings and adapters become the services of one process.

Nothing is created at import. The first request creates the application inside the running loop;
later ones share it.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from functions import config, export_settings
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.pubsub import PubsubPublisher
from functions.adapters.tokens import TokenVerifier
from functions.adapters.webhook import HttpWebhooks
from functions.config import Settings
from functions.core.errors import UnreadableRecord
from functions.core.ports import Clock, Ledger, Objects, PriceBook, Provider, Publisher, Webhooks
from functions.hosts import HostSlots
from functions.incidents import open_unreadable
from functions.inflight import InFlight, Slots, calm
from functions.metrics import Metrics
from functions.open_seats import OpenSeats
from functions.pauses import Pauses
from functions.providers import registry
from functions.providers.http import HttpProvider
from functions.providers.prices import GenaiPrices, UnknownPrices
from functions.providers.vendors import vendor_of
from functions.services import Services
from functions.sightings import Sightings
from functions.stops import StopWatcher
from functions.tracing import Tracing
from functions.web.application import Application
from functions.web.authentication import Accounts, KeyRing
from functions.web.limits import Places
from functions.windows import Windows

if TYPE_CHECKING:
    from functions.exporting import Exporting

UNKNOWN_PRICES = UnknownPrices()

_applications: dict[asyncio.AbstractEventLoop, Application] = {}
_exporting: "dict[int, Exporting | None]" = {}  # by process: a fork makes its own


def application() -> Application:
    """Return the application of this process and loop, created at the first call.

    Raises:
        ConfigurationError: a setting breaks its rule.
    """
    loop = asyncio.get_running_loop()
    if loop not in _applications:
        _applications[loop] = build_application(os.environ)
    return _applications[loop]


def use_application(made: Application) -> None:
    """Serve this loop with an application that was wired elsewhere, by the embedded stack."""
    _applications[asyncio.get_running_loop()] = made


def build_application(environ: Mapping[str, str]) -> Application:
    """Wire the real adapters.

    Raises:
        ConfigurationError: a setting breaks its rule.
    """
    settings = config.load(environ)
    clock = SystemClock()
    providers = registry.load(environ, concurrency=settings.provider_concurrency)
    services = wire(
        settings,
        clock=clock,
        ledger=FirestoreLedger(
            settings.project, emulator_host=settings.firestore_emulator, clock=clock
        ),
        objects=GcsObjects(settings.bucket, emulator_host=settings.storage_emulator),
        publisher=PubsubPublisher(settings.project, emulator_host=settings.pubsub_emulator),
        providers=providers,
        prices=price_book(providers),
        metrics=process_metrics(),
        tracing=process_tracing(providers),
    )
    return assemble(services)


def exporting() -> "Exporting | None":
    """Return what sends this process's traces and metrics, None when they are not to be sent.

    The SDK is imported here and only then, for the sake of cold starts.

    Raises:
        ConfigurationError: a setting breaks its rule.
    """
    process = os.getpid()
    if process not in _exporting:
        settings = export_settings.load(os.environ)
        made = None
        if settings.any:
            from functions.exporting import exporting_to

            made = exporting_to(settings)
        _exporting[process] = made
    return _exporting[process]


def process_metrics() -> Metrics:
    """Return the process's metrics."""
    made = exporting()
    return Metrics(made.meter if made is not None else None)


def process_tracing(providers: Mapping[str, HttpProvider]) -> Tracing:
    """Return the process's tracing; spans of requests say which of the providers was asked."""
    made = exporting()
    vendors = {name: vendor_of(provider.configuration) for name, provider in providers.items()}
    return Tracing(made.tracer if made is not None else None, vendors)


def price_book(providers: Mapping[str, HttpProvider]) -> PriceBook:
    """Return the prices of configured providers: their own, else the data set's."""
    return GenaiPrices({name: provider.configuration for name, provider in providers.items()})


def wire(
    settings: Settings,
    *,
    clock: Clock,
    ledger: Ledger,
    objects: Objects,
    publisher: Publisher,
    providers: Mapping[str, Provider],
    prices: PriceBook = UNKNOWN_PRICES,
    webhooks: Webhooks | None = None,
    metrics: Metrics | None = None,
    tracing: Tracing | None = None,
    new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    jitter: Callable[[], float] = random.random,
    calm: Callable[[], Awaitable[None]] = calm,
) -> Services:
    """Return the services over any adapters; webhooks are real unless others are given."""
    tell = partial(_tell, _Books(ledger=ledger, clock=clock))
    stops, pauses = StopWatcher(ledger, clock, tell), Pauses(ledger, clock, jitter, tell)
    inflight = InFlight(lambda calls: _watch(stops, pauses, calls))
    return Services(
        settings=settings,
        ledger=ledger,
        objects=objects,
        publisher=publisher,
        providers=providers,
        prices=prices,
        webhooks=webhooks
        or HttpWebhooks(settings.webhook_secrets, allow_loopback=settings.webhook_loopback),
        sightings=Sightings(ledger, clock),
        clock=clock,
        inflight=inflight,
        slots=Slots(providers, waiting=settings.waiting_slots, closing=inflight.ending, calm=calm),
        hosts=HostSlots(waiting=settings.waiting_slots),
        pauses=pauses,
        windows=Windows(ledger, settings.retention_days),
        open_seats=OpenSeats(ledger, settings.tenant_caps),
        new_id=new_id,
        jitter=jitter,
        metrics=metrics or Metrics(),
        tracing=tracing or Tracing(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Books:
    """What the watches record incidents with: they are made before the services."""

    ledger: Ledger
    clock: Clock


async def _tell(books: _Books, error: UnreadableRecord) -> None:
    await open_unreadable(books, error, str(error))


async def _watch(stops: StopWatcher, pauses: Pauses, inflight: InFlight) -> None:
    """Look for both beside the calls in flight; a slow look for pauses delays none for stops."""
    async with asyncio.TaskGroup() as group:
        group.create_task(stops.watch(inflight))
        group.create_task(pauses.watch())


def assemble(services: Services) -> Application:
    """Return the application over wired services; callers can be verified once both are set."""
    settings = services.settings
    callers = None
    if settings.push_audience and settings.push_accounts:
        callers = TokenVerifier(
            audience=settings.push_audience,
            accounts=settings.push_accounts,
            certs=settings.push_certs,
            signature_checked=settings.platform_checks_signatures,
        )
    return Application(
        services=services,
        keys=KeyRing(
            services.ledger,
            accounts=_accounts(settings),
            requests_per_minute=settings.key_requests_per_minute,
        ),
        callers=callers,
        waits=Places(everyone=settings.waits, tenant=settings.tenant_waits),
    )


def _accounts(settings: Settings) -> Accounts | None:
    """Return who may call the API with a Google ID token, None when that is not configured.

    Signatures are always checked here: the API may stand without Cloud Run's guard.
    """
    if settings.api_audience is None or not settings.api_accounts:
        return None
    verifier = TokenVerifier(
        audience=settings.api_audience,
        accounts=frozenset(settings.api_accounts),
        certs=settings.push_certs,
    )
    return Accounts(verifier=verifier, known=settings.api_accounts)
