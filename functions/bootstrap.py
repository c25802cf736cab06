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
from functions.config import Settings
from functions.core.ports import Clock, Ledger, Objects, PriceBook, Provider, Publisher
from functions.inflight import InFlight, Slots
from functions.providers import registry
from functions.providers.prices import UnknownPrices
from functions.services import Services
from functions.stops import StopWatcher
from functions.web.application import Application
from functions.web.authentication import KeyRing

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
    services = wire(
        settings,
        clock=clock,
        ledger=FirestoreLedger(
            settings.project, emulator_host=settings.firestore_emulator, clock=clock
        ),
        objects=GcsObjects(
            settings.bucket, project=settings.project, emulator_host=settings.storage_emulator
        ),
        publisher=PubsubPublisher(settings.project, emulator_host=settings.pubsub_emulator),
        providers=registry.load(environ, concurrency=settings.provider_concurrency),
    )
    return assemble(services)


def wire(
    settings: Settings,
    *,
    clock: Clock,
    ledger: Ledger,
    objects: Objects,
    publisher: Publisher,
    providers: Mapping[str, Provider],
    prices: PriceBook = UNKNOWN_PRICES,
    new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    jitter: Callable[[], float] = random.random,
) -> Services:
    """Return the services over any adapters."""
    inflight = InFlight(StopWatcher(ledger, clock).watch)
    return Services(
        settings=settings,
        ledger=ledger,
        objects=objects,
        publisher=publisher,
        providers=providers,
        prices=prices,
        clock=clock,
        inflight=inflight,
        slots=Slots(providers, waiting=settings.waiting_slots, closing=inflight.ending),
        new_id=new_id,
        jitter=jitter,
    )


def assemble(services: Services) -> Application:
    """Return the application over wired services; callers can be verified once both are set."""
    settings = services.settings
    callers = None
    if settings.push_audience and settings.push_accounts:
        callers = TokenVerifier(
            audience=settings.push_audience,
            accounts=settings.push_accounts,
            certs=settings.push_certs,
        )
    return Application(services=services, keys=KeyRing(services.ledger), callers=callers)
