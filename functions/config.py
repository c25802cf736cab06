"""Settings, read once from the environment and checked as a whole before anything starts."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from functions.core.errors import ConfigurationError
from functions.environment import flag, integer, names, number
from functions.tenant_caps import TenantCaps, tenant_caps
from functions.tenant_tables import (
    MOST_REQUESTS,
    MOST_SEATS,
    MOST_USD,
    Account,
    accounts_of,
    read_tables,
)

PUSH_DEADLINE_SECONDS = 600  # the longest ack deadline of a Pub/Sub subscription
SETTLING_SECONDS = 10  # what a handler keeps for looking, storing and settling beside a call
SECRET_BYTES = (24, 64)  # the length of a signing key, as Standard Webhooks has it
CLEAN_UP_SECONDS = 5  # what a handler past its deadline may take to leave in order
# Scheme, host and at most a port, as browsers spell an origin: lower case, no slash at the end.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
TARGETS = ("api", "evaluate", "notify", "reconcile", "dead_letter")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a function process needs to know. Durations are seconds."""

    project: str
    bucket: str
    evaluate_topic: str
    notify_topic: str
    events_topic: str
    pubsub_emulator: str | None
    firestore_emulator: str | None
    storage_emulator: str | None
    push_audience: str | None
    push_accounts: frozenset[str]
    push_certs: Path | None
    lease_seconds: float
    provider_deadline_seconds: float
    handler_deadline_seconds: float
    grace_seconds: float
    repair_seconds: float
    provider_concurrency: int
    request_slots: int
    retention_days: int
    tenant_caps: TenantCaps = field(default_factory=TenantCaps)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    webhook_loopback: bool = False
    operator_tenant: str | None = None
    platform_checks_signatures: bool = False
    api_audience: str | None = None
    api_accounts: Mapping[str, Account] = field(default_factory=dict)
    key_requests_per_minute: int = 0
    waits: int = 64
    tenant_waits: int = 32
    stream_seconds: float = 240.0  # below the request timeout of the service, 300 s
    cors_origins: frozenset[str] = frozenset()

    @property
    def on_emulators(self) -> bool:
        """Whether the ledger is an emulator: only then are local push tokens accepted."""
        return self.firestore_emulator is not None

    @property
    def waiting_slots(self) -> int:
        """How many deliveries of this process may wait for another holder at once."""
        return max(1, self.request_slots // 4)


def load(environ: Mapping[str, str]) -> Settings:
    """Read and check the settings.

    Raises:
        ConfigurationError: a value breaks its rule; the text gives name, value and rule.
    """
    project = environ.get("GOOGLE_CLOUD_PROJECT", "").strip()
    if not project:
        raise ConfigurationError("GOOGLE_CLOUD_PROJECT is not set; it must name the project")
    tables = read_tables(environ)
    settings = Settings(
        project=project,
        bucket=environ.get("EMPANEL_BUCKET") or f"{project}-empanel",
        evaluate_topic=environ.get("EMPANEL_EVALUATE_TOPIC") or "empanel-evaluate",
        notify_topic=environ.get("EMPANEL_NOTIFY_TOPIC") or "empanel-notify",
        events_topic=environ.get("EMPANEL_EVENTS_TOPIC") or "empanel-events",
        pubsub_emulator=environ.get("PUBSUB_EMULATOR_HOST") or None,
        firestore_emulator=environ.get("FIRESTORE_EMULATOR_HOST") or None,
        storage_emulator=environ.get("STORAGE_EMULATOR_HOST") or None,
        push_audience=environ.get("EMPANEL_PUSH_AUDIENCE") or None,
        push_accounts=names(environ.get("EMPANEL_PUSH_ACCOUNTS", "")),
        push_certs=Path(certs) if (certs := environ.get("EMPANEL_PUSH_CERTS")) else None,
        lease_seconds=number(environ, "EMPANEL_LEASE_SECONDS", 30, 5, 600),
        provider_deadline_seconds=number(environ, "EMPANEL_PROVIDER_DEADLINE_SECONDS", 120, 1, 540),
        handler_deadline_seconds=number(environ, "EMPANEL_HANDLER_DEADLINE_SECONDS", 570, 2, 599),
        grace_seconds=number(environ, "EMPANEL_GRACE_SECONDS", 8, 0, 3600),
        repair_seconds=number(environ, "EMPANEL_REPAIR_SECONDS", 60, 1, 60),
        provider_concurrency=integer(environ, "EMPANEL_PROVIDER_CONCURRENCY", 64, 1, 1000),
        request_slots=integer(environ, "EMPANEL_REQUEST_SLOTS", 80, 1, 1000),
        retention_days=integer(environ, "EMPANEL_RETENTION_DAYS", 400, 2, 3650),
        tenant_caps=tenant_caps(
            tables,
            day_requests=integer(environ, "EMPANEL_TENANT_DAY_REQUESTS", 0, 0, MOST_REQUESTS),
            day_cost_usd=number(environ, "EMPANEL_TENANT_DAY_COST_USD", 0, 0, MOST_USD),
            open_seats=integer(environ, "EMPANEL_TENANT_OPEN_SEATS", 0, 0, MOST_SEATS),
        ),
        webhook_secrets=_webhook_secrets(environ.get("EMPANEL_WEBHOOK_SECRETS", "")),
        webhook_loopback=flag(environ, "EMPANEL_WEBHOOK_ALLOW_LOOPBACK")
        and bool(environ.get("FIRESTORE_EMULATOR_HOST")),  # with emulators only
        operator_tenant=environ.get("EMPANEL_OPERATOR_TENANT", "").strip() or None,
        platform_checks_signatures=_platform_checks_signatures(environ),
        api_audience=environ.get("EMPANEL_API_AUDIENCE", "").strip() or None,
        api_accounts=accounts_of(tables),
        key_requests_per_minute=integer(
            environ, "EMPANEL_KEY_REQUESTS_PER_MINUTE", 0, 0, 1_000_000
        ),
        waits=integer(environ, "EMPANEL_WAITS", 64, 1, 1000),
        tenant_waits=integer(environ, "EMPANEL_TENANT_WAITS", 32, 1, 1000),
        stream_seconds=number(environ, "EMPANEL_STREAM_SECONDS", 240, 1, 3500),
        cors_origins=_origins(environ.get("EMPANEL_CORS_ORIGINS", "")),
    )
    _check_time_chain(settings)
    if settings.push_certs is not None and not settings.on_emulators:
        raise ConfigurationError("EMPANEL_PUSH_CERTS is for emulators only; unset it")
    if settings.api_audience is not None and settings.api_audience == settings.push_audience:
        raise ConfigurationError(
            f"EMPANEL_API_AUDIENCE={settings.api_audience!r} must not be EMPANEL_PUSH_AUDIENCE: "
            "a token for one of them must not open the other"
        )
    return settings


def require_audience(settings: Settings) -> None:
    """Refuse to serve accounts whose tokens could be meant for anyone.

    Raises:
        ConfigurationError: tenants have accounts, but no audience is set.
    """
    if settings.api_accounts and settings.api_audience is None:
        raise ConfigurationError(
            "EMPANEL_API_AUDIENCE is not set; the accounts in EMPANEL_TENANTS need it"
        )


def require_callers(settings: Settings) -> None:
    """Refuse to serve a push target whose callers could not be verified.

    Raises:
        ConfigurationError: audience or accounts are not set.
    """
    for name, value in (
        ("EMPANEL_PUSH_AUDIENCE", settings.push_audience),
        ("EMPANEL_PUSH_ACCOUNTS", settings.push_accounts),
    ):
        if not value:
            raise ConfigurationError(f"{name} is not set; push targets need it to verify callers")


def require_secrets(settings: Settings) -> None:
    """Refuse to serve the target that signs notifications without a secret to sign with.

    Raises:
        ConfigurationError: there is none.
    """
    if not settings.webhook_secrets:
        raise ConfigurationError(
            "EMPANEL_WEBHOOK_SECRETS is not set; notify needs it to sign notifications"
        )


def _platform_checks_signatures(environ: Mapping[str, str]) -> bool:
    """Whether callers' tokens come without the signature, because Cloud Run's guard has checked it.

    Cloud Run names itself in K_SERVICE; anywhere else such a token would prove nothing.
    """
    chosen = environ.get("EMPANEL_PUSH_SIGNATURE", "").strip() or "google"
    if chosen not in {"google", "platform"}:
        raise ConfigurationError(f"EMPANEL_PUSH_SIGNATURE={chosen!r} must be google or platform")
    if chosen == "platform" and not environ.get("K_SERVICE"):
        raise ConfigurationError("EMPANEL_PUSH_SIGNATURE='platform' is for Cloud Run only")
    return chosen == "platform"


def _webhook_secrets(text: str) -> tuple[str, ...]:
    """Return the signing secrets, newest first; no text shows what they are."""
    secrets = tuple(part.strip() for part in text.split(",") if part.strip())
    for place, secret in enumerate(secrets, 1):
        if not _is_secret(secret):
            raise ConfigurationError(
                f"EMPANEL_WEBHOOK_SECRETS: secret {place} must be whsec_ and the base64 of "
                f"{SECRET_BYTES[0]} to {SECRET_BYTES[1]} bytes"
            )
    return secrets


def _is_secret(secret: str) -> bool:
    prefix, _, encoded = secret.partition("_")
    try:
        key = base64.b64decode(encoded, validate=True)
    except ValueError:
        return False
    return prefix == "whsec" and SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]


def _check_time_chain(settings: Settings) -> None:
    """Provider deadline < handler deadline < push ack deadline, or two calls could overlap."""
    margin = settings.handler_deadline_seconds - settings.provider_deadline_seconds
    if margin < SETTLING_SECONDS:
        raise ConfigurationError(
            f"EMPANEL_PROVIDER_DEADLINE_SECONDS={settings.provider_deadline_seconds:g} must be "
            f"at least {SETTLING_SECONDS} s below "
            f"EMPANEL_HANDLER_DEADLINE_SECONDS={settings.handler_deadline_seconds:g}"
        )
    if settings.handler_deadline_seconds + CLEAN_UP_SECONDS >= PUSH_DEADLINE_SECONDS:
        raise ConfigurationError(
            f"EMPANEL_HANDLER_DEADLINE_SECONDS={settings.handler_deadline_seconds:g} must be "
            f"more than {CLEAN_UP_SECONDS} s below the push ack deadline of {PUSH_DEADLINE_SECONDS}"
        )


def _origins(text: str) -> frozenset[str]:
    """Return the origins whose pages may call the API from a browser; a wildcard is none."""
    origins = names(text)
    for origin in sorted(origins):
        if _ORIGIN.fullmatch(origin) is None:
            raise ConfigurationError(
                f"EMPANEL_CORS_ORIGINS: {origin!r} must be an origin as browsers spell it: scheme,"
                " host in lower case and at most a port, such as https://app.example.com"
            )
    return origins
