"""The options of a provider's table, and the rule each value must keep."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args
from urllib.parse import SplitResult, urlsplit

import rfc8785

from functions.core.errors import ConfigurationError
from functions.providers.base import SEAT_PARAMETERS, Prices, SchemaMode
from functions.providers.presets import AUTH_HEADERS, PRESETS, Options

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_CONCURRENCY = 1024
MAX_STRING_BOUND = 1_000_000
MAX_USD = 10_000  # per million tokens; sums of costs stay within 64 bits of nano-dollars
DIALECT_NAMES = ("chat", "responses", "anthropic", "gemini", "vertex")

# What a request says itself, or what would change how its answer has to be read.
_OWN_BODY = frozenset({"model", "messages", "input", "contents", "instructions", "stream", "n"})
_OWN_FIELDS = _OWN_BODY | {"response_format"}
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
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

# Options whose values are words or numbers; in any other a key may have been put by mistake.
_PLAIN = frozenset(
    {
        "api_version",
        "concurrency",
        "dialect",
        "integers",
        "location",
        "max_answer_bytes",
        "max_string_characters",
        "parameter_names",
        "preset",
        "prices",
        "project",
        "refused_parameters",
        "schema_mode",
        "token_field",
    }
)
_HIDDEN = "(hidden)"
_KEY_LIKE = re.compile(r"(?=[a-z]*[0-9])[a-z0-9]{10,}|[a-z0-9]{20,}", re.IGNORECASE)


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
        raise ConfigurationError(f"{path}: providers.{name}={_HIDDEN}: must be a table")
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
    """Refuse an option that the provider's dialect would silently ignore, or that hides another.

    Raises:
        ConfigurationError: names the option and the dialects that have it, or the other option.
    """
    _check_headers(name, options)
    _check_names(name, options)
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


def _check_headers(name: str, options: Options) -> None:
    """Refuse an idempotency header that would replace the credential or a fixed header."""
    header = str(options.get("idempotency_header", "")).lower()
    dialect = options.get("dialect", "chat")
    auth_header = options.get("auth_header") or AUTH_HEADERS.get(dialect, "authorization")
    fixed = {fixed.lower() for fixed in options.get("headers", {})}
    if header and header in {auth_header.lower(), *fixed}:
        rule = "must not be a header that carries something else"
        raise ConfigurationError(f"providers.{name}.idempotency_header={header!r}: {rule}")


def _check_names(name: str, options: Options) -> None:
    """Refuse two parameters of a seat under one name on the wire."""
    renamed = options.get("parameter_names", {})
    kept = _RENAMED - renamed.keys() | {options.get("token_field", "max_completion_tokens")}
    for parameter, new in renamed.items():
        if new in kept:
            rule = "must not be the name of another parameter"
            raise ConfigurationError(
                f"providers.{name}.parameter_names.{parameter}={new!r}: {rule}"
            )


def _shown(option: str, value: Any) -> str:
    """Return a bad value without what may be a secret in it.

    People put keys where names belong, and into addresses.
    """
    if type(value) in (int, float, bool) or str(value).lower() in _OWN_HEADERS:
        return repr(value)
    if option == "base_url" and isinstance(value, str):
        return _shown_url(value)
    if isinstance(value, dict) and option not in _PLAIN:
        names = [
            name if _is_name(name) and not _KEY_LIKE.search(name) else _HIDDEN for name in value
        ]
        return f"({', '.join(names)})"
    shown = repr(value)
    return shown if option in _PLAIN and not _KEY_LIKE.search(shown) else _HIDDEN


def _shown_url(value: str) -> str:
    """Return scheme, host and path of a URL; of anything else only a short word."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return _HIDDEN
    if "@" in value or _KEY_LIKE.search(parts.path):
        return _HIDDEN
    marks = SplitResult(
        parts.scheme,
        parts.netloc,
        parts.path,
        _HIDDEN if parts.query else "",
        _HIDDEN if parts.fragment else "",
    )
    return repr(marks.geturl())


def _is_url(value: Any) -> bool:
    if not isinstance(value, str) or any(c.isspace() or not c.isprintable() for c in value):
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


def _is_variable(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) is not None


def _is_field(value: Any) -> bool:
    return _is_name(value) and value not in _OWN_FIELDS


def _is_free_header(value: Any) -> bool:
    return _is_name(value) and value.lower() not in _OWN_HEADERS


def _is_auth_header(value: Any) -> bool:
    return _is_name(value) and value.lower() not in _OWN_HEADERS - {"authorization"}


def _is_whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_printable(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and all(" " <= c <= "~" for c in value)


def _is_usd(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= MAX_USD


def _are_prices(value: Any) -> bool:
    known = {"input", "output", "cached_input", "cache_write"}
    if not isinstance(value, dict) or not {"input", "output"} <= value.keys() <= known:
        return False
    return all(map(_is_usd, value.values()))


def _are_new_names(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _RENAMED:
        return False
    names = list(value.values())
    return all(map(_is_field, names)) and len(set(names)) == len(names)


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
    "key_variable": Rule(
        "the name of an environment variable: letters, digits and '_'", _is_variable
    ),
    "dialect": _one_of(DIALECT_NAMES),
    "auth_header": Rule(f"{_NAME.text}, not a header of HTTP's own", _is_auth_header),
    "headers": Rule(
        "a table of headers with printable values, without those that a request has itself",
        _are_headers,
    ),
    "idempotency_header": Rule(f"{_NAME.text}, not a header of HTTP's own", _is_free_header),
    "token_field": Rule(f"{_NAME.text}, not a field that a request has itself", _is_field),
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
        f"million tokens from 0 to {MAX_USD}",
        _are_prices,
    ),
    "project": _PROJECT,
    "location": _NAME,
    "api_version": _NAME,
}
