"""Settings: sound defaults; a bad value stops the start with its name, value and rule."""

import re
from pathlib import Path

import pytest

from functions.config import PUSH_DEADLINE_SECONDS, Settings, load, require_callers, require_secrets
from functions.core.errors import ConfigurationError

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = {"GOOGLE_CLOUD_PROJECT": "project"}


def loaded(**environ: str) -> Settings:
    return load(PROJECT | environ)


def refusal(**environ: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        loaded(**environ)
    return str(refused.value)


def test_a_project_is_all_that_is_needed() -> None:
    """Everything but the project has a default, and the defaults obey the time chain."""
    settings = loaded()
    assert settings.bucket == "project-empanel"
    assert settings.lease_seconds == 30
    assert settings.provider_deadline_seconds == 120
    assert settings.provider_deadline_seconds < settings.handler_deadline_seconds
    assert settings.handler_deadline_seconds < PUSH_DEADLINE_SECONDS
    assert not settings.on_emulators


def test_a_stream_ends_before_the_platform_cuts_it() -> None:
    """E01: the service's request timeout in Terraform is longer, with room for the end."""
    infra = (CHECKOUT / "infra" / "locals.tf").read_text()
    api = re.search(r"api = {.*?timeout\s*=\s*(\d+)", infra, re.DOTALL)
    assert api is not None
    assert loaded().stream_seconds + 30 <= int(api[1])


@pytest.mark.parametrize("project", [{}, {"GOOGLE_CLOUD_PROJECT": " "}])
def test_without_a_project_nothing_starts(project: dict[str, str]) -> None:
    """A missing or blank project is named."""
    with pytest.raises(ConfigurationError, match="GOOGLE_CLOUD_PROJECT"):
        load(project)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("EMPANEL_LEASE_SECONDS", "5", "600"),
        ("EMPANEL_PROVIDER_DEADLINE_SECONDS", "1", "540"),
        ("EMPANEL_HANDLER_DEADLINE_SECONDS", "2", "599"),
        ("EMPANEL_REPAIR_SECONDS", "1", "60"),
        ("EMPANEL_PROVIDER_CONCURRENCY", "1", "1000"),
        ("EMPANEL_REQUEST_SLOTS", "1", "1000"),
        ("EMPANEL_RETENTION_DAYS", "2", "3650"),
        ("EMPANEL_TENANT_OPEN_SEATS", "0", "1000000000"),
        ("EMPANEL_KEY_REQUESTS_PER_MINUTE", "0", "1000000"),
        ("EMPANEL_WAITS", "1", "1000"),
        ("EMPANEL_TENANT_WAITS", "1", "1000"),
        ("EMPANEL_STREAM_SECONDS", "1", "3500"),
    ],
)
def test_a_value_off_its_range_names_variable_value_and_rule(
    name: str, least: str, most: str
) -> None:
    """Just below, just above, no number, NaN and infinity are refused, and the text tells all."""
    for text in (str(float(least) - 0.5), str(float(most) + 0.5), "many", "nan", "inf", "-1"):
        message = refusal(**{name: text})
        assert name in message
        assert repr(text) in message
        assert f"from {least} to {most}" in message


@pytest.mark.parametrize("name", ["EMPANEL_PROVIDER_CONCURRENCY", "EMPANEL_RETENTION_DAYS"])
def test_a_fraction_where_a_count_is_needed_is_refused(name: str) -> None:
    """Half a slot is no slot."""
    message = refusal(**{name: "2.5"})
    assert name in message
    assert "whole number" in message


def test_blank_values_count_as_not_set() -> None:
    """An empty variable, as deploy tools leave them, means the default."""
    assert loaded(EMPANEL_LEASE_SECONDS=" ", EMPANEL_BUCKET="") == loaded()


def test_a_provider_deadline_that_outlives_the_handler_is_refused() -> None:
    """The time chain: a call must end before its handler, or it would be cut when paid for."""
    message = refusal(
        EMPANEL_PROVIDER_DEADLINE_SECONDS="120", EMPANEL_HANDLER_DEADLINE_SECONDS="120"
    )
    assert "EMPANEL_PROVIDER_DEADLINE_SECONDS=120" in message
    assert "EMPANEL_HANDLER_DEADLINE_SECONDS=120" in message


def test_waiting_takes_at_most_a_quarter_of_the_slots() -> None:
    """Deliveries that wait for another holder leave room for work; one may always wait."""
    assert loaded(EMPANEL_REQUEST_SLOTS="80").waiting_slots == 20
    assert loaded(EMPANEL_REQUEST_SLOTS="1").waiting_slots == 1


def test_local_certificates_are_for_emulators_only() -> None:
    """Keys that sign local push tokens are refused where the ledger is real."""
    assert "EMPANEL_PUSH_CERTS" in refusal(EMPANEL_PUSH_CERTS="certs.json")
    local = loaded(EMPANEL_PUSH_CERTS="certs.json", FIRESTORE_EMULATOR_HOST="127.0.0.1:1")
    assert local.on_emulators


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        ({}, "EMPANEL_PUSH_AUDIENCE"),
        ({"EMPANEL_PUSH_AUDIENCE": "a"}, "EMPANEL_PUSH_ACCOUNTS"),
        ({"EMPANEL_PUSH_AUDIENCE": "a", "EMPANEL_PUSH_ACCOUNTS": " , "}, "EMPANEL_PUSH_ACCOUNTS"),
    ],
)
def test_a_push_target_needs_to_know_its_callers(present: dict[str, str], missing: str) -> None:
    """A target that could verify nobody does not start; the missing variable is named."""
    with pytest.raises(ConfigurationError, match=missing):
        require_callers(loaded(**present))


def test_accounts_are_a_list() -> None:
    """Several accounts are separated by commas; spaces do not count."""
    settings = loaded(EMPANEL_PUSH_AUDIENCE="a", EMPANEL_PUSH_ACCOUNTS="one@x, two@x,")
    require_callers(settings)
    assert settings.push_accounts == {"one@x", "two@x"}


SECRET = "whsec_" + "A" * 43 + "="


def test_webhook_secrets_come_newest_first() -> None:
    """A list is read in its order; a process that has none cannot serve `notify`."""
    assert loaded(EMPANEL_WEBHOOK_SECRETS=f" {SECRET} , {SECRET}").webhook_secrets == (SECRET,) * 2
    with pytest.raises(ConfigurationError, match="EMPANEL_WEBHOOK_SECRETS is not set"):
        require_secrets(loaded())
    require_secrets(loaded(EMPANEL_WEBHOOK_SECRETS=SECRET))


@pytest.mark.parametrize("bad", ["whsec_", "whsec_short", SECRET[6:], "whsec_" + "A" * 90, "x y"])
def test_a_bad_webhook_secret_is_named_by_its_place(bad: str) -> None:
    """The text tells which secret breaks the rule, never the secret; nor do the settings' texts."""
    message = refusal(EMPANEL_WEBHOOK_SECRETS=f"{SECRET},{bad}")
    assert "secret 2 must be whsec_" in message
    assert SECRET not in message
    assert bad not in message.replace("whsec_ and", "")
    assert SECRET not in repr(loaded(EMPANEL_WEBHOOK_SECRETS=SECRET))


def test_loopback_receivers_need_emulators() -> None:
    """The switch counts only beside an emulator; another value than 0 or 1 is refused."""
    assert not loaded(EMPANEL_WEBHOOK_ALLOW_LOOPBACK="1").webhook_loopback
    on = loaded(EMPANEL_WEBHOOK_ALLOW_LOOPBACK="1", FIRESTORE_EMULATOR_HOST="127.0.0.1:1")
    assert on.webhook_loopback
    assert not loaded(FIRESTORE_EMULATOR_HOST="127.0.0.1:1").webhook_loopback
    assert "EMPANEL_WEBHOOK_ALLOW_LOOPBACK" in refusal(EMPANEL_WEBHOOK_ALLOW_LOOPBACK="yes")


def test_pages_of_named_origins_may_call() -> None:
    """None by default; a list is read as it is spelled."""
    assert loaded().cors_origins == frozenset()
    origins = "https://app.example.com, http://127.0.0.1:3000,"
    assert loaded(EMPANEL_CORS_ORIGINS=origins).cors_origins == {
        "https://app.example.com",
        "http://127.0.0.1:3000",
    }


@pytest.mark.parametrize(
    "bad",
    [
        "*",
        "https://*.example.com",
        "app.example.com",
        "https://app.example.com/",
        "null",
        "https://APP.example.com",
        "ftp://example.com",
        "https://a b",
        "https://u@example.com",
    ],
)
def test_what_is_no_origin_is_refused(bad: str) -> None:
    """A wildcard, a path, another scheme: none of these is an exact origin."""
    message = refusal(EMPANEL_CORS_ORIGINS=f"https://fine.example.com,{bad}")
    assert f"EMPANEL_CORS_ORIGINS: {bad!r} must be an origin" in message
