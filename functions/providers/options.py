"""The options of a provider's table, and the rule each value must keep."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args
from urllib.parse import urlsplit

import rfc8785

from functions.core.errors import ConfigurationError
from functions.providers.base import SEAT_PARAMETERS, Prices, SchemaMode
from functions.providers.presets import PRESETS, Options

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_CONCURRENCY = 1024
MAX_STRING_BOUND = 1_000_000
DIALECT_NAMES = ("chat", "responses", "anthropic", "gemini", "vertex")

# What a request says itself, or what would change how its answer has to be read.
_OWN_BODY = frozenset({"model", "messages", "input", "contents", "instructions", "stream", "n"})
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
    }
)
_ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "project": ("vertex",),
    "location": ("vertex",),
    "api_version": ("gemini", "vertex"),
    "token_field": ("chat",),
    "parameter_names": ("chat",),
    "max_string_characters": ("chat", "responses"),
}
_RENAMED = SEAT_PARAMETERS - {"max_output_tokens"}  # `token_field` renames that one


class Rule(NamedTuple):
    """What an option's value must be, in words and as a test."""

    text: str
    holds: Callable[[Any], bool]


def check_table(path: str, name: str, options: Any) -> None:
    """Refuse a table that is none, has an impossible name or an unknown option.

    Raises:
        ConfigurationError: names file, table, option and rule.
    """
    if not name or len(name) > 64 or not NAME_CHARACTERS.issuperset(name):
        rule = "a provider's name has 1 to 64 letters, digits, '.', '_' or '-'"
        raise ConfigurationError(f"{path}: provider {name!r}: {rule}")
    if not isinstance(options, dict):
        raise ConfigurationError(f"{path}: providers.{name}={options!r}: must be a table")
    for option in options:
        if option not in RULES:
            rule = f"unknown; known are {', '.join(sorted(RULES))}"
            raise ConfigurationError(f"{path}: providers.{name}.{option}: {rule}")


def check(name: str, option: str, value: Any) -> None:
    """Refuse a value that breaks its option's rule.

    Raises:
        ConfigurationError: names option, value and rule.
    """
    rule = RULES[option]
    if not rule.holds(value):
        raise ConfigurationError(f"{name}={_shown(option, value)}: must be {rule.text}")


def check_together(name: str, options: Options) -> None:
    """Refuse an option that the provider's dialect would silently ignore.

    Raises:
        ConfigurationError: names the option and the dialects that have it.
    """
    dialect = options.get("dialect", "chat")
    for option, dialects in _ONLY_IN.items():
        if option in options and dialect not in dialects:
            rule = f"only the dialect {' or '.join(dialects)} has it, this provider's is {dialect}"
            raise ConfigurationError(f"providers.{name}.{option}: {rule}")


def endpoint_values(options: Options) -> dict[str, Any]:
    """Return checked options in the types of `Endpoint`."""
    values = dict(options)
    if "prices" in values:
        values["prices"] = Prices(**{part: float(usd) for part, usd in values["prices"].items()})
    if "refused_parameters" in values:
        values["refused_parameters"] = tuple(values["refused_parameters"])
    return values


def _shown(option: str, value: Any) -> str:
    """Return a bad value without what may be a secret in it."""
    if option == "headers" and isinstance(value, dict):
        return f"({', '.join(value)})"
    return "(hidden)" if "@" in str(value) else repr(value)  # a URL may carry a password


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


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and NAME_CHARACTERS.issuperset(value)


def _is_whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_printable(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and all(" " <= c <= "~" for c in value)


def _is_usd(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _are_prices(value: Any) -> bool:
    known = {"input", "output", "cached_input", "cache_write"}
    if not isinstance(value, dict) or not {"input", "output"} <= value.keys() <= known:
        return False
    return all(map(_is_usd, value.values()))


def _are_new_names(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _RENAMED:
        return False
    names = list(value.values())
    return all(map(_is_name, names)) and len(set(names)) == len(names)


def _are_parameters(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, str) and v in SEAT_PARAMETERS for v in value
    )


def _is_body(value: Any) -> bool:
    if not isinstance(value, dict) or _OWN_BODY & value.keys():
        return False
    try:
        rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError):
        return False
    return True


def _are_headers(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    names = {name.lower() for name in value}
    well_formed = all(_is_name(name) and _is_printable(text) for name, text in value.items())
    return well_formed and len(names) == len(value) and not _OWN_HEADERS & names


def _is_query(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_name(name) and _is_printable(text) for name, text in value.items())


def _one_of(names: tuple[str, ...]) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda value: value in names)


_NAME = Rule("a name of letters, digits, '.', '_' or '-'", _is_name)
_PROJECT = Rule(
    "a Google Cloud project's ID or number",
    lambda value: isinstance(value, str) and _is_name(value.replace(":", "-")),
)

RULES: Mapping[str, Rule] = {
    "preset": _one_of(tuple(PRESETS)),
    "base_url": Rule("an http or https URL without user, query or fragment", _is_url),
    "query": Rule("a table of query parameters with printable values", _is_query),
    "key_variable": _NAME,
    "dialect": _one_of(DIALECT_NAMES),
    "auth_header": _NAME,
    "headers": Rule(
        "a table of headers with printable values, without those that a request has itself",
        _are_headers,
    ),
    "idempotency_header": _NAME,
    "token_field": _NAME,
    "schema_mode": _one_of(get_args(SchemaMode)),
    "integers": Rule("true or false", lambda value: isinstance(value, bool)),
    "max_string_characters": Rule(
        f"a whole number from 1 to {MAX_STRING_BOUND}", _is_whole(1, MAX_STRING_BOUND)
    ),
    "parameter_names": Rule(
        f"a table of new names for {', '.join(sorted(_RENAMED))}, all different", _are_new_names
    ),
    "refused_parameters": Rule(f"a list of {', '.join(sorted(SEAT_PARAMETERS))}", _are_parameters),
    "extra_body": Rule(
        f"a table of JSON values without {', '.join(sorted(_OWN_BODY))} at its top", _is_body
    ),
    "concurrency": Rule(
        f"a whole number from 1 to {MAX_CONCURRENCY}", _is_whole(1, MAX_CONCURRENCY)
    ),
    "max_answer_bytes": Rule("a whole number from 1 to 2^30", _is_whole(1, 2**30)),
    "prices": Rule(
        "a table of input and output, and if need be cached_input and cache_write, each in USD per "
        "million tokens from 0",
        _are_prices,
    ),
    "project": _PROJECT,
    "location": _NAME,
    "api_version": _NAME,
}
