"""The composition root: settings and adapters become the services of one process.

Nothing is created at import. The first request creates the application inside the running loop;
later ones share it.
"""

import asyncio
import os
import random
import secrets
from collections.abc import Callable, Mapping

from functions import config
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.pubsub import PubsubPublisher
from functions.adapters.tokens import TokenVerifier
from functions.adapters.webhook import HttpWebhooks
from functions.config import Settings
from functions.core.ports import Clock, Ledger, Objects, PriceBook, Provider, Publisher, Webhooks
from functions.hosts import HostSlots
from functions.inflight import InFlight, Slots
from functions.open_seats import OpenSeats
from functions.pauses import Pauses
from functions.providers import registry
from functions.providers.http import HttpProvider
from functions.providers.prices import GenaiPrices, UnknownPrices
from functions.services import Services
from functions.sightings import Sightings
from functions.stops import StopWatcher
from functions.web.application import Application
from functions.web.authentication import Accounts, KeyRing
from functions.web.limits import Places
from functions.windows import Windows

UNKNOWN_PRICES = UnknownPrices()

_applications: dict[asyncio.AbstractEventLoop, Application] = {}


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
    )
    return assemble(services)


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
    new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    jitter: Callable[[], float] = random.random,
) -> Services:
    """Return the services over any adapters; webhooks are real unless others are given."""
    stops, pauses = StopWatcher(ledger, clock), Pauses(ledger, clock, jitter)
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
        slots=Slots(providers, waiting=settings.waiting_slots, closing=inflight.ending),
        hosts=HostSlots(waiting=settings.waiting_slots),
        pauses=pauses,
        windows=Windows(ledger, settings.retention_days),
        open_seats=OpenSeats(ledger, settings.tenant_caps),
        new_id=new_id,
        jitter=jitter,
    )


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
