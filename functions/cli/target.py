"""Where the API is and which key opens it: the environment first, then the local stack's file."""

import os
from collections.abc import Mapping
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.cli.exits import Misused, Unreachable

CHECKOUT = Path(__file__).resolve().parents[2]


class Target(BaseModel):
    """The API's address and key, named as in `.local/stack.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    api: str
    api_key: str | None = None


def find_target(environ: Mapping[str, str] = os.environ, checkout: Path | None = None) -> Target:
    """The target of this call.

    Raises `Misused` for a bad address or key, `Unreachable` when neither the environment nor a
    running local stack names an address.
    """
    url, key = environ.get("EMPANEL_URL"), environ.get("EMPANEL_API_KEY")
    if url:
        # The stack's key is an operator's: it is never sent to an address from elsewhere.
        return _checked(Target(api=url, api_key=key or None), "EMPANEL_URL")
    stack = _stack((checkout or CHECKOUT) / ".local" / "stack.json")
    return _checked(Target(api=stack.api, api_key=key or stack.api_key), ".local/stack.json")


def _stack(path: Path) -> Target:
    try:
        return Target.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise Unreachable(
            "No local stack is running and EMPANEL_URL is not set. "
            "Start one with `make up`, or set EMPANEL_URL and EMPANEL_API_KEY."
        ) from None
    except (OSError, ValidationError) as exc:
        raise Unreachable(f"{path} cannot be read as a stack file: {exc}") from exc


def _checked(target: Target, source: str) -> Target:
    try:
        url = httpx.URL(target.api)
    except httpx.InvalidURL as exc:
        raise Misused(f"{source}: {target.api!r} is not an address: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Misused(f"{source}: {target.api!r} must begin with http:// or https:// and a host.")
    if target.api_key is not None and not sendable(target.api_key):
        raise Misused("The API key must be printable ASCII without spaces around it.")
    return target


def sendable(value: str) -> bool:
    """Whether an HTTP header can carry the value unchanged (RFC 9110, section 5.5)."""
    return value.isascii() and value.isprintable() and value == value.strip() != ""
