"""The `generateContent` dialect through Vertex AI: Gemini's words at an address of one's project.

Project and location are steps of the base URL, so they are part of the endpoint's digest. The
credential is a Google access token (`functions.providers.google_tokens`), or a key that a proxy in
Google's place takes.
"""

import re

from functions.core.errors import ConfigurationError
from functions.core.verdicts import CallFailure, CallRequest
from functions.providers import gemini
from functions.providers.base import Endpoint, WireRequest
from functions.providers.gemini import read

__all__ = ["base_url", "build", "read"]

API_VERSION = "v1"
# Locations of more than one region; as in Google's and Anthropic's SDKs.
MULTI_REGIONS = frozenset({"us", "eu"})

_LOCATION = re.compile(r"[a-z][a-z0-9-]{0,62}")
# Old projects carry their domain: `example.com:name`.
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z0-9-]+")


def base_url(
    *, project: str, location: str, server: str | None = None, api_version: str | None = None
) -> str:
    """Return the address under which a project's models are, in a location.

    Args:
        project: ID or number.
        location: `global`, a multi-region (`us`, `eu`) or a region.
        server: another server's address in Google's place, with its path if it has one.
        api_version: `v1` when None.

    Raises:
        ConfigurationError: project, location or version cannot be part of an address.
    """
    version = api_version or API_VERSION
    _check("project", project, _PROJECT)
    _check("location", location, _LOCATION)
    _check("api_version", version, _LOCATION)
    root = server.rstrip("/") if server else f"https://{_host(location)}"
    return f"{root}/{version}/projects/{project}/locations/{location}/publishers/google"


def build(endpoint: Endpoint, request: CallRequest) -> WireRequest | CallFailure:
    """Return the request for one question; the endpoint's base URL is one of `base_url`."""
    return gemini.build_at(gemini.model_path(request.model), endpoint, request)


def _host(location: str) -> str:
    if location == "global":
        return "aiplatform.googleapis.com"
    if location in MULTI_REGIONS:
        return f"aiplatform.{location}.rep.googleapis.com"
    return f"{location}-aiplatform.googleapis.com"


def _check(name: str, value: str, form: re.Pattern[str]) -> None:
    if form.fullmatch(value) is None:
        raise ConfigurationError(f"vertex: {name}={value!r}: cannot be part of an address")
