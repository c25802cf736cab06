"""What each function process insists on before it serves anything."""

from pathlib import Path

import pytest

from functions import config
from functions.core.errors import ConfigurationError
from functions.serving import _checked

CALLERS = {"EMPANEL_PUSH_AUDIENCE": "https://svc", "EMPANEL_PUSH_ACCOUNTS": "pusher@p.iam"}
SECRET = {"EMPANEL_WEBHOOK_SECRETS": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
PUSHED = [target for target in config.TARGETS if target != "api"]


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with a project and nothing else of ours."""
    for name in (*CALLERS, *SECRET, "EMPANEL_TENANTS", "EMPANEL_API_AUDIENCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")


def given(monkeypatch: pytest.MonkeyPatch, **environ: str) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_every_target_but_the_api_is_called_by_machines() -> None:
    """The four whose callers are verified by their tokens."""
    assert set(PUSHED) == {"evaluate", "notify", "reconcile", "dead_letter"}


@pytest.mark.parametrize("target", PUSHED)
@pytest.mark.parametrize("left_out", [*CALLERS, None])
def test_without_callers_a_machines_target_does_not_start(
    monkeypatch: pytest.MonkeyPatch, target: str, left_out: str | None
) -> None:
    """Neither unset nor half set: it would take nobody, or anybody."""
    kept = {name: value for name, value in CALLERS.items() if left_out and name != left_out}
    given(monkeypatch, **SECRET, **kept)
    with pytest.raises(ConfigurationError, match="EMPANEL_PUSH_A"):
        _checked(target)


@pytest.mark.parametrize("target", PUSHED)
def test_with_callers_it_starts(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """The same configuration serves all four."""
    given(monkeypatch, **SECRET, **CALLERS)
    assert _checked(target).push_audience == CALLERS["EMPANEL_PUSH_AUDIENCE"]


def test_notify_needs_a_secret_to_sign_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could verify what it sends."""
    given(monkeypatch, **CALLERS)
    with pytest.raises(ConfigurationError, match="EMPANEL_WEBHOOK_SECRETS"):
        _checked("notify")


def test_the_api_needs_an_audience_for_accounts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With accounts and no audience, a token for any service would open it."""
    assert _checked("api").api_accounts == {}
    file = tmp_path / "tenants.toml"
    file.write_text("[tenants.a.accounts]\n'ann@example.com' = 'operator'\n")
    given(monkeypatch, EMPANEL_TENANTS=str(file))
    with pytest.raises(ConfigurationError, match="EMPANEL_API_AUDIENCE"):
        _checked("api")
    given(monkeypatch, EMPANEL_API_AUDIENCE="https://api")
    assert _checked("api").api_audience == "https://api"
