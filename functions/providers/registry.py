"""Which providers this process knows: `openai` from the environment, any other from a TOML file.

    [providers.local]                     # EMPANEL_PROVIDERS names the file
    base_url = "http://127.0.0.1:8081/v1"
    key_variable = "LOCAL_API_KEY"        # without it, requests carry no key
    token_field = "max_tokens"
    schema_mode = "json_schema"           # or json_object, prompt
    integers = true
    concurrency = 2

A provider whose `key_variable` is named but not set is absent. A table `[providers.openai]` changes
the options of `openai`.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

from functions.core.errors import ConfigurationError
from functions.providers import chat
from functions.providers.base import (
    DEFAULT_CONCURRENCY,
    Dialect,
    Endpoint,
    SchemaMode,
    normalized,
)
from functions.providers.http import READ_SECONDS, HttpProvider

PROVIDERS_VARIABLE = "EMPANEL_PROVIDERS"
OPENAI_URL = "https://api.openai.com/v1"
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_CONCURRENCY = 1024
MAX_STRING_BOUND = 1_000_000

DIALECTS: Mapping[str, Dialect] = {"chat": chat}

Options = Mapping[str, Any]
Environment = Mapping[str, str]


class _Rule(NamedTuple):
    """What an option's value must be, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


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
    tables: dict[str, Options] = {"openai": {}, **_tables(environ)}
    tables["openai"] = _openai(environ, tables["openai"])
    found = (_endpoint(name, options, environ, concurrency) for name, options in tables.items())
    return {
        endpoint.name: HttpProvider(endpoint, DIALECTS[endpoint.dialect], read_seconds=read_seconds)
        for endpoint in found
        if endpoint is not None
    }


def _openai(environ: Environment, options: Options) -> Options:
    """Complete the options of `openai`: its own server demands a key, another one may not."""
    base_url = environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
    _check("OPENAI_BASE_URL", "base_url", base_url)
    defaults: dict[str, Any] = {"base_url": base_url}
    has_key = bool(environ.get("OPENAI_API_KEY", "").strip())
    if has_key or normalized(str(options.get("base_url", base_url))) == OPENAI_URL:
        defaults["key_variable"] = "OPENAI_API_KEY"
    return {**defaults, **options}


def _tables(environ: Environment) -> dict[str, Options]:
    path = environ.get(PROVIDERS_VARIABLE, "").strip()
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
        raise ConfigurationError(f"{path}: providers={tables!r}: must be tables")
    for name, options in tables.items():
        _check_table(path, name, options)
    return tables


def _check_table(path: str, name: str, options: Any) -> None:
    if not name or len(name) > 64 or not NAME_CHARACTERS.issuperset(name):
        rule = "a provider's name has 1 to 64 letters, digits, '.', '_' or '-'"
        raise ConfigurationError(f"{path}: provider {name!r}: {rule}")
    if not isinstance(options, dict):
        raise ConfigurationError(f"{path}: providers.{name}={options!r}: must be a table")
    for option in options:
        if option not in _RULES:
            rule = f"unknown; known are {', '.join(sorted(_RULES))}"
            raise ConfigurationError(f"{path}: providers.{name}.{option}: {rule}")


def _endpoint(
    name: str, options: Options, environ: Environment, concurrency: int
) -> Endpoint | None:
    if "base_url" not in options:
        raise ConfigurationError(f"providers.{name}.base_url: required")
    for option, value in options.items():
        _check(f"providers.{name}.{option}", option, value)
    values = {"concurrency": concurrency, **options}
    variable = values.pop("key_variable", None)
    key = _key(environ, variable) if variable is not None else None
    return (
        None if variable is not None and key is None else Endpoint(name=name, api_key=key, **values)
    )


def _check(name: str, option: str, value: Any) -> None:
    rule = _RULES[option]
    if not rule.holds(value):
        shown = "(hidden)" if "@" in str(value) else repr(value)  # a URL may carry a password
        raise ConfigurationError(f"{name}={shown}: must be {rule.text}")


def _key(environ: Environment, variable: str) -> str | None:
    """Return the key, None when it is not set. Its value never enters a message."""
    key = environ.get(variable, "").strip()
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError(f"{variable}: must be printable ASCII without spaces")
    return key or None


def _is_url(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = "@" not in parts.netloc and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain and port_ok


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and NAME_CHARACTERS.issuperset(value)


def _is_whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


_TOKEN = _Rule("a name of letters, digits, '.', '_' or '-'", _is_token)
_RULES: Mapping[str, _Rule] = {
    "base_url": _Rule("an http or https URL without user, query or fragment", _is_url),
    "key_variable": _TOKEN,
    "dialect": _Rule(f"one of {', '.join(DIALECTS)}", lambda v: v in tuple(DIALECTS)),
    "auth_header": _TOKEN,
    "token_field": _TOKEN,
    "schema_mode": _Rule(
        f"one of {', '.join(get_args(SchemaMode))}", lambda v: v in get_args(SchemaMode)
    ),
    "integers": _Rule("true or false", lambda v: isinstance(v, bool)),
    "max_string_characters": _Rule(
        f"a whole number from 1 to {MAX_STRING_BOUND}", _is_whole(1, MAX_STRING_BOUND)
    ),
    "concurrency": _Rule(
        f"a whole number from 1 to {MAX_CONCURRENCY}", _is_whole(1, MAX_CONCURRENCY)
    ),
    "max_answer_bytes": _Rule("a whole number from 1 to 2^30", _is_whole(1, 2**30)),
}
