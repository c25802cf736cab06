"""Which providers this process knows: from the vendors' own variables and from a TOML file.

    [providers.mistral]                   # EMPANEL_PROVIDERS names the file
    concurrency = 16                      # a preset's name: the rest is known

    [providers.local]
    preset = "llamacpp"                   # any name with a preset's options
    base_url = "http://127.0.0.1:8081/v1"

    [providers.other]                     # no preset
    base_url = "https://example.com/v1"
    key_variable = "OTHER_API_KEY"        # without it, requests carry no key
    token_field = "max_tokens"

A preset that needs nothing but its key is there as soon as its key variable is set. A provider
whose key is missing is absent, and a request that names it is refused.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from functions.core.errors import ConfigurationError
from functions.providers import anthropic, chat, gemini, responses, vertex
from functions.providers.base import DEFAULT_CONCURRENCY, Dialect, Endpoint, normalized
from functions.providers.google_tokens import GoogleCredentials
from functions.providers.http import READ_SECONDS, HttpProvider
from functions.providers.options import check, check_table, check_together, endpoint_values
from functions.providers.presets import AUTH_HEADERS, PRESETS, PROVIDERS_VARIABLE, Options, Preset

DIALECTS: Mapping[str, Dialect] = {
    "chat": chat,
    "responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "vertex": vertex,
}

Environment = Mapping[str, str]

_NO_PRESET = Preset(options={})


def load(
    environ: Environment,
    *,
    concurrency: int = DEFAULT_CONCURRENCY,
    read_seconds: float = READ_SECONDS,
) -> dict[str, HttpProvider]:
    """Return the configured providers by name. Nothing is opened.

    Args:
        environ: the process environment.
        concurrency: calls in flight per provider, where its table does not say.
        read_seconds: longest silence within an answer.

    Raises:
        ConfigurationError: an option breaks its rule; the text names option, value and rule.
    """
    found = endpoints(environ, concurrency=concurrency)
    return {
        name: HttpProvider(endpoint, DIALECTS[endpoint.dialect], read_seconds=read_seconds)
        for name, endpoint in found.items()
    }


def endpoints(
    environ: Environment, *, concurrency: int = DEFAULT_CONCURRENCY
) -> dict[str, Endpoint]:
    """Return how each provider is configured, by name: the vendors' own first, then the tables.

    Raises:
        ConfigurationError: as `load`.
    """
    tables: dict[str, Options] = {**_by_environment(environ), **_tables(environ)}
    found = (_endpoint(name, table, environ, concurrency) for name, table in tables.items())
    return {endpoint.name: endpoint for endpoint in found if endpoint is not None}


def _by_environment(environ: Environment) -> dict[str, Options]:
    """Return an empty table for each preset that the environment alone may complete."""
    names = [name for name, preset in PRESETS.items() if preset.key_is_enough]
    if _value(environ, "GOOGLE_CLOUD_LOCATION"):
        names.append("vertex")
    return {name: {} for name in names}


def _tables(environ: Environment) -> dict[str, Options]:
    path = _value(environ, PROVIDERS_VARIABLE)
    if not path:
        return {}
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        rule = f"must name a readable TOML file ({exc})"
        raise ConfigurationError(f"{PROVIDERS_VARIABLE}={path!r}: {rule}") from exc
    tables = document.pop("providers", {})
    for name in document:
        raise ConfigurationError(f"{path}: {name!r}: only [providers.NAME] tables are known")
    if not isinstance(tables, dict):
        raise ConfigurationError(f"{path}: providers: must be tables")
    for name, options in tables.items():
        check_table(path, name, options)
    return tables


def _endpoint(name: str, table: Options, environ: Environment, concurrency: int) -> Endpoint | None:
    """Return the endpoint of a table, None when its key is not there."""
    for option, value in table.items():
        check(f"providers.{name}.{option}", option, value)
    preset = PRESETS.get(table.get("preset", name), _NO_PRESET)
    options = {"concurrency": concurrency, **preset.options, **_address(preset, environ), **table}
    options.pop("preset", None)
    check_together(name, options)
    if (header := AUTH_HEADERS.get(options.get("dialect", "chat"))) is not None:
        options.setdefault("auth_header", header)
    if options.get("dialect") == "vertex":
        options = _at_google(name, options, environ)
    if "base_url" not in options:
        raise ConfigurationError(f"providers.{name}.base_url: required")
    variable = options.pop("key_variable", None)
    key = _key(environ, variable) if variable is not None else None
    if key is None and variable is not None and not _may_go_without_key(preset, table, options):
        return None
    return Endpoint(name=name, api_key=key, **endpoint_values(options))


def _address(preset: Preset, environ: Environment) -> Options:
    """Return the base URL that the vendor's own variable names, nothing without one."""
    variable = preset.url_variable
    url = _value(environ, variable) if variable else ""
    if not variable or not url:
        return {}
    check(variable, "base_url", url)
    return {"base_url": url}


def _may_go_without_key(preset: Preset, table: Options, options: Options) -> bool:
    """Whether a provider is offered although its key is not set.

    A vendor's own server demands a key, another one in its place may not. A table that names a key
    variable means it.
    """
    if "key_variable" in table:
        return False
    if preset.key_optional:
        return True
    own = preset.options.get("base_url")
    elsewhere = own is not None and normalized(options["base_url"]) != normalized(own)
    return preset.url_variable is not None and elsewhere


def _at_google(name: str, options: Options, environ: Environment) -> dict[str, Any]:
    """Return the options of a Vertex AI provider: its address, and Google's credentials.

    With a key variable the key goes instead of a token, to a server in Google's place.
    """
    rest = dict(options)
    project = rest.pop("project", None) or _value(environ, "GOOGLE_CLOUD_PROJECT")
    location = rest.pop("location", None) or _value(environ, "GOOGLE_CLOUD_LOCATION")
    for option, value in (("project", project), ("location", location)):
        if not value:
            rule = f"required, or GOOGLE_CLOUD_{option.upper()}"
            raise ConfigurationError(f"providers.{name}.{option}: {rule}")
        check(f"providers.{name}.{option}", option, value)
    if "key_variable" not in rest:
        rest["credentials"] = GoogleCredentials()
    rest["base_url"] = vertex.base_url(
        project=project,
        location=location,
        server=rest.get("base_url"),
        api_version=rest.pop("api_version", None),
    )
    return rest


def _value(environ: Environment, variable: str) -> str:
    return environ.get(variable, "").strip()


def _key(environ: Environment, variable: str) -> str | None:
    """Return the key, None when it is not set. Its value never enters a message."""
    key = _value(environ, variable)
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(f"{variable}: must be printable ASCII without spaces")
    return key or None
