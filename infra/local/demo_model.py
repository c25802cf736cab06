"""Whom the demo asks: the first provider that the user configured, or the stack's own model.

The model is the one in `EMPANEL_DEMO_MODEL`, or is chosen from what the provider's server lists.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import httpx
from pydantic import BaseModel, Field, ValidationError

from functions.cli.exits import Misused
from functions.core.errors import ConfigurationError
from functions.providers import anthropic, gemini
from functions.providers.base import Endpoint, auth_headers, normalized
from functions.providers.presets import PRESETS, provider_variables
from functions.providers.registry import endpoints

DEFAULT_MODEL = "smollm2"
LISTING_TIMEOUT_SECONDS = 10.0
NAMED_AT_MOST = 10


@dataclass(frozen=True, kw_only=True)
class Family:
    """A vendor's models: the one to take, and the names to take the newest of where it is gone."""

    default: str
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DemoTarget:
    """The provider and the model that all seats of the demo ask.

    `hosted` models get no parameters: the newest ones refuse a temperature, and thinking needs room
    for more tokens than the examples give.
    """

    provider: str
    model: str
    hosted: bool = False


LOCAL = DemoTarget(provider="openai", model=DEFAULT_MODEL)
FAMILIES: Mapping[str, Family] = {
    "openai": Family(
        default="gpt-5.4-mini", patterns=(r"gpt-\d+(\.\d+)?-mini", r"gpt-\d+(\.\d+)?", r"gpt-4o")
    ),
    "anthropic": Family(default="claude-haiku-5-5", patterns=(r"claude-haiku-.*", r"claude-.*")),
    "gemini": Family(
        default="gemini-3.8-flash", patterns=(r"gemini-\d+(\.\d+)?-flash", r"gemini-.*")
    ),
}


class _Listed(BaseModel):
    id: str = ""
    name: str = ""


class _Listing(BaseModel):
    """A list of models: `data` with `id` (OpenAI, Anthropic), or `models` with `name` (Google)."""

    data: list[_Listed] = Field(default_factory=list)
    models: list[_Listed] = Field(default_factory=list)


async def choose_target(environ: Mapping[str, str]) -> DemoTarget:
    """Return whom to ask.

    Raises:
        Misused: no provider is complete, or several models are listed and none is named.
    """
    named = environ.get("EMPANEL_DEMO_MODEL")
    if not any(environ.get(name) for name in provider_variables()):
        return replace(LOCAL, model=named or DEFAULT_MODEL)
    endpoint = _first_endpoint(environ)
    family = _family(endpoint)
    return DemoTarget(
        provider=endpoint.name,
        model=named or _choose(await _listed(endpoint), endpoint, family),
        hosted=family is not None,
    )


def _first_endpoint(environ: Mapping[str, str]) -> Endpoint:
    try:
        found = endpoints(environ)
    except ConfigurationError as exc:
        raise Misused(str(exc)) from exc
    if not found:
        raise Misused("No configured provider has its key: see `Providers` in README.md")
    return next(iter(found.values()))


def _family(endpoint: Endpoint) -> Family | None:
    """Return the vendor's models, None for a server that may serve any."""
    if endpoint.dialect == "anthropic":
        return FAMILIES["anthropic"]
    if endpoint.dialect in ("gemini", "vertex"):
        return FAMILIES["gemini"]
    own = normalized(endpoint.base_url) == PRESETS["openai"].options["base_url"]
    return FAMILIES["openai"] if own else None


def _choose(listed: Sequence[str], endpoint: Endpoint, family: Family | None) -> str:
    default = family.default if family else DEFAULT_MODEL
    if default in listed or (not listed and (family or endpoint.name == LOCAL.provider)):
        return default
    if len(listed) == 1:
        return listed[0]
    for pattern in family.patterns if family else ():
        if matching := [name for name in listed if re.fullmatch(pattern, name)]:
            return max(matching, key=_version)
    raise Misused(f"{_what_is_listed(listed, endpoint)}. {_NAME_ONE}")


_NAME_ONE = "Name the one for the demo: EMPANEL_DEMO_MODEL=<model> make demo"


def _what_is_listed(listed: Sequence[str], endpoint: Endpoint) -> str:
    if not listed:
        return f"{endpoint.base_url} does not list its models"
    shown = ", ".join(listed[:NAMED_AT_MOST])
    more = f" and {len(listed) - NAMED_AT_MOST} more" if len(listed) > NAMED_AT_MOST else ""
    return f"{endpoint.base_url} serves {len(listed)} models ({shown}{more})"


def _version(name: str) -> tuple[int, ...]:
    """Return a model's version; longer numbers are dates."""
    return tuple(int(part) for part in re.findall(r"\d+", name) if len(part) < 4)


async def _listed(endpoint: Endpoint) -> list[str]:
    """Return the models the server lists; none when it cannot say, which not every server can."""
    path, headers, query = _listing_request(endpoint)
    url = normalized(endpoint.base_url) + path
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=LISTING_TIMEOUT_SECONDS) as http:
            response = await http.get(
                url,
                params={**endpoint.query, **query},
                headers={**headers, **endpoint.headers, **auth_headers(endpoint)},
            )
        response.raise_for_status()
        listing = _Listing.model_validate_json(response.content)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError, ValidationError):
        return []
    names = [model.id or model.name for model in (*listing.data, *listing.models)]
    return list(dict.fromkeys(name.removeprefix("models/") for name in names if name))


def _listing_request(endpoint: Endpoint) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return path, headers and query; where a vendor pages its list, one page holds it all."""
    if endpoint.dialect == "anthropic":
        return "/v1/models", {"anthropic-version": anthropic.VERSION}, {"limit": "1000"}
    if endpoint.dialect == "gemini":
        version = endpoint.api_version or gemini.API_VERSION
        return f"/{version}/models", {}, {"pageSize": "1000"}
    return "/models", {}, {}
