"""Caps of tenants' days from the environment and a TOML file: read once, checked as a whole."""

from pathlib import Path

import pytest

from functions.config import load
from functions.core.budgets import Caps
from functions.core.errors import ConfigurationError
from functions.tenant_caps import TenantCaps

DOLLAR = 10**9


def loaded(**environ: str) -> TenantCaps:
    return load({"GOOGLE_CLOUD_PROJECT": "project", **environ}).tenant_caps


def table(folder: Path, text: str) -> str:
    file = folder / "tenants.toml"
    file.write_text(text)
    return str(file)


def test_nothing_is_capped_by_default() -> None:
    """Without a setting, and with 0, no tenant's day has a cap."""
    zero = {"EMPANEL_TENANT_DAY_REQUESTS": "0", "EMPANEL_TENANT_DAY_COST_USD": "0"}
    assert loaded() == loaded(**zero) == TenantCaps()
    assert not loaded().of("anyone").any


def test_one_cap_is_for_all_tenants() -> None:
    """Requests are whole, money is in dollars."""
    caps = loaded(EMPANEL_TENANT_DAY_REQUESTS="500", EMPANEL_TENANT_DAY_COST_USD="2.5")
    assert caps.of("anyone") == Caps(requests=500, nano_usd=5 * DOLLAR // 2)


def test_a_tenant_may_have_its_own(tmp_path: Path) -> None:
    """A table changes what it names; the rest is as for all, and 0 takes a cap away."""
    text = "[tenants.small]\nday_requests = 5\n[tenants.big-one]\nday_cost_usd = 0\n"
    caps = loaded(
        EMPANEL_TENANT_DAY_REQUESTS="500",
        EMPANEL_TENANT_DAY_COST_USD="2",
        EMPANEL_TENANTS=table(tmp_path, text),
    )
    assert caps.of("small") == Caps(requests=5, nano_usd=2 * DOLLAR)
    assert caps.of("big-one") == Caps(requests=500)
    assert caps.of("another") == Caps(requests=500, nano_usd=2 * DOLLAR)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EMPANEL_TENANT_DAY_REQUESTS", "-1"),
        ("EMPANEL_TENANT_DAY_REQUESTS", "1.5"),
        ("EMPANEL_TENANT_DAY_COST_USD", "nan"),
        ("EMPANEL_TENANT_DAY_COST_USD", "much"),
    ],
)
def test_a_bad_cap_stops_the_start(name: str, value: str) -> None:
    """The text gives name and value."""
    with pytest.raises(ConfigurationError, match=name) as refused:
        loaded(**{name: value})
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tenants.a]\nday_requests = -1\n", ["tenants.a.day_requests=-1", "whole number"]),
        ("[tenants.a]\nday_requests = 1.5\n", ["tenants.a.day_requests=1.5"]),
        ("[tenants.a]\nday_requests = true\n", ["tenants.a.day_requests=True"]),
        ("[tenants.a]\nday_cost_usd = nan\n", ["tenants.a.day_cost_usd=nan"]),
        ("[tenants.a]\nday_cost = 1\n", ["tenants.a.day_cost", "unknown", "day_cost_usd"]),
        ("[tenants]\na = 1\n", ["tenants.a=1", "a table"]),
        ("[tenant.a]\nday_requests = 1\n", ["only [tenants.NAME] tables"]),
        ("tenants = 3\n", ["only [tenants.NAME] tables"]),
        ("no toml", ["EMPANEL_TENANTS", "readable TOML"]),
    ],
)
def test_a_bad_table_stops_the_start(tmp_path: Path, text: str, words: list[str]) -> None:
    """The text gives place, value and rule."""
    with pytest.raises(ConfigurationError) as refused:
        loaded(EMPANEL_TENANTS=table(tmp_path, text))
    for word in words:
        assert word in str(refused.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """A path that leads nowhere is no absence of caps."""
    with pytest.raises(ConfigurationError, match="EMPANEL_TENANTS"):
        loaded(EMPANEL_TENANTS=str(tmp_path / "none.toml"))
