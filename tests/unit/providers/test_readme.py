"""What the README shows about providers is true: its tables load, its preset and dialect work."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers import presets, registry
from functions.providers.base import SEAT_PARAMETERS, Endpoint, Prices, WireRequest, auth_headers
from functions.providers.options import RULES

README = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
KEYS = dict.fromkeys(
    ("OPENAI_API_KEY", "DEEPSEEK_API_KEY", "AZURE_OPENAI_API_KEY", "MINE_API_KEY"), "sk-0123456789"
)


def blocks(language: str) -> list[str]:
    """Return the README's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_tables_load(tmp_path: Path) -> None:
    """The example file names the providers it says, with the options it says."""
    (text,) = blocks("toml")
    file = tmp_path / "providers.toml"
    file.write_text(text, encoding="utf-8")
    found = registry.endpoints({**KEYS, "EMPANEL_PROVIDERS": str(file)})
    assert found.keys() == {"openai", "openai-responses", "deepseek", "azure-eu", "mine"}
    assert found["openai"].prices == Prices(input=1.25, output=10.0, cached_input=0.125)
    assert found["deepseek"].extra_body == {"thinking": {"type": "disabled"}}
    assert found["deepseek"].refused_parameters == ()
    assert found["azure-eu"].query == {"api-version": "2026-10-01"}
    assert found["mine"].token_field == "max_tokens"


def test_every_provider_and_option_is_told() -> None:
    """Each preset has its place in the table of providers, each option in that of options."""
    shown = set(re.findall(r"`([^`\s]+)`", README))
    assert presets.PRESETS.keys() <= shown
    assert RULES.keys() <= shown


def test_the_example_preset_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry makes a provider of its vendor's key."""
    entry = next(block for block in blocks("python") if "Preset(" in block)
    added = eval("{" + entry + "}", {"Preset": presets.Preset})
    monkeypatch.setattr(registry, "PRESETS", {**presets.PRESETS, **added})
    acme = registry.endpoints({"ACME_API_KEY": "sk-0123456789"})["acme"]
    assert (acme.base_url, acme.schema_mode) == ("https://api.acme.example/v1", "json_object")


def test_the_example_dialect_works() -> None:
    """Its two functions build a request and read what comes back."""
    build, read = _example_dialect()
    endpoint = Endpoint(name="acme", base_url="https://h", api_key="sk-0123456789")
    request = CallRequest(model="m", system="s", user="u", schema={"type": "object"})
    wire = build(endpoint, request)
    assert isinstance(wire, WireRequest)
    assert json.loads(wire.body)["prompt"] == "s\n\nu"
    assert auth_headers(endpoint).items() <= wire.headers.items()
    refused = build(endpoint, CallRequest(
        model="m", system="s", user="u", schema={}, parameters=dict.fromkeys(SEAT_PARAMETERS, 1)
    ))  # fmt: skip
    assert isinstance(refused, CallFailure)
    assert refused.code == "invalid_request"
    now = datetime(2026, 11, 29, tzinfo=UTC)
    good = read(200, {}, b'{"ended": "done", "text": "{}"}', now)
    assert good == ProviderAnswer(text="{}")
    bodies = {b'{"ended": "cap", "text": "{"}': "truncated", b"<html>": "invalid_response"}
    assert {body: read(200, {}, body, now).code for body in bodies} == bodies
    assert read(429, {"retry-after": "3"}, b"{}", now).hint_seconds == 3


def _example_dialect() -> tuple[Any, Any]:
    source = next(block for block in blocks("python") if "def build" in block)
    names: dict[str, Any] = {}
    exec(source, names)
    return names["build"], names["read"]
