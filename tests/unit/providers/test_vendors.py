"""What telemetry calls the configured providers."""

from typing import Any

import pytest

from functions.core.vendors import Vendor
from functions.providers.base import Endpoint
from functions.providers.registry import endpoints
from functions.providers.vendors import vendor_of


@pytest.mark.parametrize(
    ("fields", "vendor"),
    [
        (
            {"name": "openai-responses", "base_url": "https://api.openai.com/v1"},
            Vendor(name="openai", address="api.openai.com", port=443),
        ),
        (
            {"name": "vertex", "base_url": "https://europe-west1-aiplatform.googleapis.com"},
            Vendor(
                name="gcp.vertex_ai", address="europe-west1-aiplatform.googleapis.com", port=443
            ),
        ),
        (
            {"name": "ours", "base_url": "https://x.openai.azure.com/openai/v1"},
            Vendor(name="azure.ai.openai", address="x.openai.azure.com", port=443),
        ),
        (
            {"name": "local", "base_url": "http://127.0.0.1:8081/v1"},
            Vendor(name="local", address="127.0.0.1", port=8081),
        ),
        (
            {"name": "evil", "base_url": "https://notapi.openai.com.example.com/v1"},
            Vendor(name="evil", address="notapi.openai.com.example.com", port=443),
        ),
        (
            {"name": "gemini", "base_url": "http://[::1]:9", "dialect": "gemini"},
            Vendor(name="gcp.gemini", operation="generate_content", address="::1", port=9),
        ),
    ],
)
def test_well_known_where_one_fits_else_our_own(fields: dict[str, Any], vendor: Vendor) -> None:
    """By the preset's name, else by the host, else the configured name."""
    assert vendor_of(Endpoint(**fields)) == vendor


def test_no_part_of_an_address_but_host_and_port_is_told() -> None:
    """A path or a user in it may be a secret."""
    found = vendor_of(Endpoint(name="x", base_url="https://user:pass@host.example/key-1/v1"))
    assert found == Vendor(name="x", address="host.example", port=443)


def test_every_vendor_of_its_own_variable_is_known() -> None:
    """The names that come with a key alone are those of the conventions."""
    keys = ("OPENAI", "ANTHROPIC", "GEMINI", "MISTRAL", "DEEPSEEK", "XAI", "GROQ")
    found = endpoints({f"{name}_API_KEY": "k" for name in keys})
    assert {name: vendor_of(endpoint).name for name, endpoint in found.items()} == {
        "openai": "openai",
        "openai-responses": "openai",
        "anthropic": "anthropic",
        "gemini": "gcp.gemini",
        "mistral": "mistral_ai",
        "deepseek": "deepseek",
        "xai": "x_ai",
        "groq": "groq",
    }
