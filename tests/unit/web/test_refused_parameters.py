"""A29: what a provider cannot be asked is refused before the job is accepted, not at its call."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from functions.core.verdicts import CallFailure, CallRequest
from functions.providers.base import SEAT_PARAMETERS
from functions.providers.http import HttpProvider
from functions.providers.presets import PRESETS
from functions.providers.registry import DIALECTS, load
from functions.web import strict_json
from functions.web.problems import Problem
from functions.web.requests import read_submission

KEY = "sk-test-0123456789"
EXAMPLES: Mapping[str, Any] = {
    "max_output_tokens": 800,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 7,
    "reasoning_effort": "low",
}
REFUSED = {
    "openai-responses": {"seed"},
    "anthropic": {"seed"},
    "deepseek": {"temperature", "top_p"},
}


@pytest.fixture
def providers(tmp_path: Path) -> dict[str, HttpProvider]:
    """Every preset, with a key, and one table that refuses a parameter."""
    file = tmp_path / "providers.toml"
    names = "".join(f"[providers.{name}]\n" for name in PRESETS if name != "azure")
    azure = '[providers.azure]\nbase_url = "https://r.openai.azure.com/openai/v1"\n'
    mine = '[providers.mine]\nbase_url = "https://h/v1"\nrefused_parameters = ["top_p"]\n'
    file.write_text(names + azure + mine, encoding="utf-8")
    keys = {
        str(p.options["key_variable"]): KEY
        for p in PRESETS.values()
        if p.options.get("key_variable")
    }
    google = {"GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": "eu"}
    return load({**keys, **google, "EMPANEL_PROVIDERS": str(file)})


def submit(providers: Mapping[str, HttpProvider], *seats: dict[str, Any]) -> None:
    """Read a job with these seats as the routes do."""
    body = {"facts": {"a": 1}, "rubric": {"instructions": "Score it."}, "seats": seats}
    read_submission(
        strict_json.parse(json.dumps(body).encode()),
        tenant="acme",
        default_owner="acme",
        endpoints={name: provider.endpoint for name, provider in providers.items()},
        refused_parameters=lambda name, given: providers[name].refused_parameters(given),
        idempotency_key=None,
        traceparent=None,
    )


def test_each_preset_takes_or_refuses_what_its_vendor_does(
    providers: Mapping[str, HttpProvider],
) -> None:
    """All parameters of all presets, and those of a table that refuses one."""
    expected = {name: REFUSED.get(name, set()) for name in PRESETS} | {"mine": {"top_p"}}
    found = {name: set(p.refused_parameters(EXAMPLES)) for name, p in providers.items()}
    assert found == expected


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_a_value_may_be_refused_as_well(providers: Mapping[str, HttpProvider], effort: str) -> None:
    """Gemini has no thinking level `max`; all the others it has."""
    refused = providers["gemini"].refused_parameters({"reasoning_effort": effort})
    assert bool(refused) == (effort == "max")


def test_acceptance_and_call_cannot_disagree(providers: Mapping[str, HttpProvider]) -> None:
    """What acceptance lets through can be built, alone and together; what it refuses cannot."""
    for provider in providers.values():
        dialect = DIALECTS[provider.configuration.dialect]
        refused = provider.refused_parameters(EXAMPLES)
        assert refused.keys() <= SEAT_PARAMETERS
        taken = {name: value for name, value in EXAMPLES.items() if name not in refused}
        whole = dialect.build(provider.configuration, _asking(taken))
        assert not isinstance(whole, CallFailure)
        for name in refused:
            one = dialect.build(provider.configuration, _asking({name: EXAMPLES[name]}))
            assert isinstance(one, CallFailure)
            assert not one.sent


def test_the_field_is_named(providers: Mapping[str, HttpProvider]) -> None:
    """422 with a pointer to each refused parameter, and nothing said of the good seat."""
    seats = (
        {"provider": "openai", "model": "m", "parameters": EXAMPLES},
        {"provider": "anthropic", "model": "m", "parameters": {"seed": 7}},
        {"provider": "deepseek", "model": "m", "parameters": {"temperature": 0, "top_p": 1}},
    )
    with pytest.raises(Problem) as caught:
        submit(providers, *seats)
    assert caught.value.status == 422
    told = {(fault.pointer, fault.detail) for fault in caught.value.errors}
    assert {pointer for pointer, _ in told} == {
        "/seats/1/parameters/seed",
        "/seats/2/parameters/temperature",
        "/seats/2/parameters/top_p",
    }
    assert ("/seats/1/parameters/seed", SEED) in told


SEED = "cannot be asked of anthropic: parameters not supported: seed"


def test_what_is_taken_is_accepted(providers: Mapping[str, HttpProvider]) -> None:
    """The same seats without the refused parameters are a job."""
    submit(
        providers,
        {"provider": "openai", "model": "m", "parameters": EXAMPLES},
        {"provider": "anthropic", "model": "m", "parameters": {"max_output_tokens": 5}},
        {"provider": "deepseek", "model": "m", "parameters": {"reasoning_effort": "low"}},
    )


def _asking(parameters: Mapping[str, Any]) -> CallRequest:
    return CallRequest(model="m", system="s", user="u", schema={}, parameters=parameters)
