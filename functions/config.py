"""Settings, read once from the environment and checked as a whole before anything starts."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from functions.core.errors import ConfigurationError
from functions.tenant_caps import MOST_REQUESTS, MOST_USD, TenantCaps, tenant_caps

PUSH_DEADLINE_SECONDS = 600  # the longest ack deadline of a Pub/Sub subscription
SETTLING_SECONDS = 10  # what a handler keeps for looking, storing and settling beside a call
SECRET_BYTES = (24, 64)  # the length of a signing key, as Standard Webhooks has it
CLEAN_UP_SECONDS = 5  # what a handler past its deadline may take to leave in order
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
        push_accounts=_names(environ.get("EMPANEL_PUSH_ACCOUNTS", "")),
        push_certs=Path(certs) if (certs := environ.get("EMPANEL_PUSH_CERTS")) else None,
        lease_seconds=_number(environ, "EMPANEL_LEASE_SECONDS", 30, 5, 600),
        provider_deadline_seconds=_number(
            environ, "EMPANEL_PROVIDER_DEADLINE_SECONDS", 120, 1, 540
        ),
        handler_deadline_seconds=_number(environ, "EMPANEL_HANDLER_DEADLINE_SECONDS", 570, 2, 599),
        grace_seconds=_number(environ, "EMPANEL_GRACE_SECONDS", 8, 0, 3600),
        repair_seconds=_number(environ, "EMPANEL_REPAIR_SECONDS", 60, 1, 60),
        provider_concurrency=_integer(environ, "EMPANEL_PROVIDER_CONCURRENCY", 64, 1, 1000),
        request_slots=_integer(environ, "EMPANEL_REQUEST_SLOTS", 80, 1, 1000),
        retention_days=_integer(environ, "EMPANEL_RETENTION_DAYS", 400, 2, 3650),
        tenant_caps=tenant_caps(
            environ,
            day_requests=_integer(environ, "EMPANEL_TENANT_DAY_REQUESTS", 0, 0, MOST_REQUESTS),
            day_cost_usd=_number(environ, "EMPANEL_TENANT_DAY_COST_USD", 0, 0, MOST_USD),
        ),
        webhook_secrets=_webhook_secrets(environ.get("EMPANEL_WEBHOOK_SECRETS", "")),
        webhook_loopback=_flag(environ, "EMPANEL_WEBHOOK_ALLOW_LOOPBACK")
        and bool(environ.get("FIRESTORE_EMULATOR_HOST")),  # with emulators only
    )
    _check_time_chain(settings)
    if settings.push_certs is not None and not settings.on_emulators:
        raise ConfigurationError("EMPANEL_PUSH_CERTS is for emulators only; unset it")
    return settings


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


def _webhook_secrets(text: str) -> tuple[str, ...]:
    """Return the signing secrets, newest first; no text shows what they are."""
    secrets = tuple(part.strip() for part in text.split(",") if part.strip())
    for number, secret in enumerate(secrets, 1):
        if not _is_secret(secret):
            raise ConfigurationError(
                f"EMPANEL_WEBHOOK_SECRETS: secret {number} must be whsec_ and the base64 of "
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


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip() or "0"
    if text not in ("0", "1"):
        raise ConfigurationError(f"{name}={text!r} must be 0 or 1")
    return text == "1"


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


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _number(
    environ: Mapping[str, str], name: str, default: float, least: float, most: float
) -> float:
    text = environ.get(name, "").strip()
    rule = f"must be a number from {least:g} to {most:g}"
    if not text:
        return default
    try:
        value = float(text)
    except ValueError as exc:
        raise ConfigurationError(f"{name}={text!r} {rule}") from exc
    if not least <= value <= most:
        raise ConfigurationError(f"{name}={text!r} {rule}")
    return value


def _integer(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = _number(environ, name, default, least, most)
    if value != int(value):
        raise ConfigurationError(f"{name}={environ[name]!r} must be a whole number")
    return int(value)
