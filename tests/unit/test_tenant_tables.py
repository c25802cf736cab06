"""Tenants' tables: accounts, open seats, and what stops the start."""

from pathlib import Path

import pytest

from functions.config import Settings, load, require_audience
from functions.core.errors import ConfigurationError
from functions.tenant_tables import Account


def loaded(folder: Path, text: str, **environ: str) -> Settings:
    file = folder / "tenants.toml"
    file.write_text(text)
    return load({"GOOGLE_CLOUD_PROJECT": "p", "EMPANEL_TENANTS": str(file), **environ})


TWO = """
[tenants.catalog]
accounts = {"ann@example.com" = "operator", "import@p.iam.gserviceaccount.com" = "submitter"}
open_seats = 10
[tenants.prices]
accounts = {"bob@example.com" = "submitter"}
"""


def test_accounts_belong_to_one_tenant_each(tmp_path: Path) -> None:
    """Address, tenant and role as written; without a file there are none."""
    accounts = loaded(tmp_path, TWO).api_accounts
    assert accounts["ann@example.com"] == Account(tenant="catalog", role="operator")
    assert accounts["bob@example.com"] == Account(tenant="prices", role="submitter")
    assert len(accounts) == 3
    assert load({"GOOGLE_CLOUD_PROJECT": "p"}).api_accounts == {}


def test_open_seats_are_capped_for_all_or_for_one(tmp_path: Path) -> None:
    """A table's number goes before the one for all; 0 and nothing mean no cap."""
    caps = loaded(tmp_path, TWO, EMPANEL_TENANT_OPEN_SEATS="500").tenant_caps
    assert (caps.open_seats("catalog"), caps.open_seats("prices")) == (10, 500)
    free = loaded(tmp_path, "[tenants.a]\nopen_seats = 0\n", EMPANEL_TENANT_OPEN_SEATS="5")
    assert free.tenant_caps.open_seats("a") is None
    assert load({"GOOGLE_CLOUD_PROJECT": "p"}).tenant_caps.open_seats("a") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tenants.a]\naccounts = 'ann@example.com'\n", ["tenants.a.accounts", "roles"]),
        ("[tenants.a.accounts]\n'ann@example.com' = 'admin'\n", ["tenants.a.accounts", "operator"]),
        ("[tenants.a.accounts]\nann = 'operator'\n", ["tenants.a.accounts"]),
        ("[tenants.a]\nopen_seats = -1\n", ["tenants.a.open_seats=-1", "whole number"]),
        ("[tenants.a]\nopen_seats = true\n", ["tenants.a.open_seats=True"]),
        ("[tenants.'A b']\n", ["tenants.A b", "lower-case"]),
        (
            "[tenants.a.accounts]\n'x@y' = 'operator'\n[tenants.b.accounts]\n'x@y' = 'operator'\n",
            ["x@y", "a and b"],
        ),
    ],
)
def test_a_bad_table_stops_the_start(tmp_path: Path, text: str, words: list[str]) -> None:
    """The text says where and what the rule is."""
    with pytest.raises(ConfigurationError) as refused:
        loaded(tmp_path, text)
    for word in words:
        assert word in str(refused.value)


def test_accounts_need_an_audience_of_their_own(tmp_path: Path) -> None:
    """None would take a token meant for anyone; that of the push targets would open both."""
    with pytest.raises(ConfigurationError, match="EMPANEL_API_AUDIENCE"):
        require_audience(loaded(tmp_path, TWO))
    require_audience(loaded(tmp_path, TWO, EMPANEL_API_AUDIENCE="https://api"))
    require_audience(load({"GOOGLE_CLOUD_PROJECT": "p"}))
    with pytest.raises(ConfigurationError, match="EMPANEL_API_AUDIENCE"):
        loaded(tmp_path, TWO, EMPANEL_API_AUDIENCE="same", EMPANEL_PUSH_AUDIENCE="same")
