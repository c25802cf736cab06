"""Environment variables read one by one, each value held against its rule."""

from collections.abc import Mapping

from functions.core.errors import ConfigurationError


def flag(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a variable is 1; 0 when it is not set.

    Raises:
        ConfigurationError: it breaks its rule; the text gives name, value and rule.
    """
    text = environ.get(name, "").strip() or "0"
    if text not in ("0", "1"):
        raise ConfigurationError(f"{name}={text!r} must be 0 or 1")
    return text == "1"


def names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def number(
    environ: Mapping[str, str], name: str, default: float, least: float, most: float
) -> float:
    """Return the number in a variable, `default` when it is not set.

    Raises:
        ConfigurationError: it breaks its rule; the text gives name, value and rule.
    """
    text = environ.get(name, "").strip()
    rule = f"must be a number from {least:.15g} to {most:.15g}"  # never as 1e+09
    if not text:
        return default
    try:
        value = float(text)
    except ValueError as exc:
        raise ConfigurationError(f"{name}={text!r} {rule}") from exc
    if not least <= value <= most:
        raise ConfigurationError(f"{name}={text!r} {rule}")
    return value


def integer(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """Return the whole number in a variable, `default` when it is not set.

    Raises:
        ConfigurationError: it breaks its rule; the text gives name, value and rule.
    """
    value = number(environ, name, default, least, most)
    if value != int(value):
        raise ConfigurationError(f"{name}={environ[name]!r} must be a whole number")
    return int(value)
