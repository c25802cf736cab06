"""What OpenTelemetry calls a configured provider: by its preset, by its host, or as we do."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from functions.core.vendors import Vendor
from functions.providers.base import Endpoint

# Well-known values of `gen_ai.provider.name`, where they differ from the names of our presets.
_BY_NAME: Mapping[str, str] = {
    "openai-responses": "openai",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "azure": "azure.ai.openai",
}
# The same for tables with names of their own: who answers at these hosts.
_BY_HOST: Mapping[str, str] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.x.ai": "x_ai",
    "api.groq.com": "groq",
    "api.cohere.com": "cohere",
    "api.perplexity.ai": "perplexity",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
}
_PORTS = {"http": 80, "https": 443}


def vendor_of(endpoint: Endpoint) -> Vendor:
    """Return who answers at an endpoint; of its address only host and port."""
    parts = urlsplit(endpoint.base_url)
    host = parts.hostname or ""
    operation = "generate_content" if endpoint.dialect in {"gemini", "vertex"} else "chat"
    return Vendor(
        name=_BY_NAME.get(endpoint.name) or _by_host(host) or endpoint.name,
        operation=operation,
        address=host or None,
        port=parts.port or _PORTS.get(parts.scheme),
    )


def _by_host(host: str) -> str | None:
    """Return the vendor of a host or of one of its subdomains; Vertex has one host a region."""
    for known, vendor in _BY_HOST.items():
        if host == known or host.endswith((f".{known}", f"-{known}")):
            return vendor
    return None
