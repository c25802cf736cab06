"""What a call costs: an operator's own prices, else those of a maintained data set, else unknown.

The data set is the `genai-prices` package, read offline: its updater, which would start a thread
and fetch, is never used. It knows context thresholds, introductory and daily prices. Importing it
takes some 0.15 s, so a process does it at the first call to a vendor, and one with local servers
only never does.

Prices are a vendor's only at the vendor's own address: the provider `openai` pointed at another
server asks something else. A service tier counts where the configuration asks for one
(`extra_body`); the tier of an answer is not looked at.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from functions.core.jobs import Usage
from functions.core.money import usd
from functions.providers.base import Endpoint, Prices, normalized

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

PACKAGE = "genai-prices"
PER_MILLION = 1_000_000

# Hosts as the data set has them, by its provider IDs; a leading dot or dash means "ends with".
_VENDORS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "google",
    "aiplatform.googleapis.com": "google",
    "-aiplatform.googleapis.com": "google",
    ".rep.googleapis.com": "google",
    "api.mistral.ai": "mistral",
    "api.deepseek.com": "deepseek",
    "api.x.ai": "x-ai",
    "api.groq.com": "groq",
    "api.together.xyz": "together",
    "openrouter.ai": "openrouter",
    ".openai.azure.com": "azure",
    ".services.ai.azure.com": "azure",
}


_TIER_FIELDS = ("service_tier", "speed")
_STANDARD_TIERS = frozenset({"default", "auto", "standard", "standard_only"})


class _Listed(NamedTuple):
    """A model as the data set has it, and the service tier it is asked for with."""

    provider: "Provider"
    model: "ModelInfo"
    tier: dict[str, str]


class UnknownPrices:
    """A price book without prices: every cost is unknown."""

    def cost_usd(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Return None."""
        return None

    def estimate_usd(
        self, provider: str, model: str, *, input_tokens: int, output_tokens: int, at: datetime
    ) -> float | None:
        """Return None."""
        return None


class GenaiPrices:
    """The price book over `genai-prices`. Implements `functions.core.ports.PriceBook`."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Take the configured endpoints by provider name; nothing is imported or read yet."""
        self._endpoints = dict(endpoints)

    @property
    def source(self) -> str:
        """Where the prices that nobody overrode come from."""
        return f"{PACKAGE} {version(PACKAGE)}"

    def cost_usd(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Return what a call with this usage cost, by the prices that were valid at that time."""
        endpoint = self._endpoints.get(provider)
        if endpoint is None:
            return None
        if endpoint.prices is not None:
            return _own_cost(endpoint.prices, usage)
        listed = _listed(endpoint, model)
        return _listed_cost(listed, usage, at) if listed else None

    def estimate_usd(
        self, provider: str, model: str, *, input_tokens: int, output_tokens: int, at: datetime
    ) -> float | None:
        """Return the most that such a call costs on the day of `at`.

        Whatever of the input may be read from a cache or written to one, and of the output be
        reasoning: by the dearest of these, at the dearest hours of the day. Some models' cached
        input costs more than the other.
        """
        endpoint = self._endpoints.get(provider)
        if endpoint is None:
            return None
        extremes = _extremes(input_tokens, output_tokens)
        if endpoint.prices is not None:
            return max(_own_cost(endpoint.prices, usage) for usage in extremes)
        listed = _listed(endpoint, model)
        if listed is None:
            return None
        moments = _moments(listed.model, at)
        costs = [_listed_cost(listed, usage, moment) for usage in extremes for moment in moments]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None


def vendor_of(base_url: str) -> str | None:
    """Return the data set's ID of the vendor whose own address this is, None for any other."""
    parts = urlsplit(normalized(base_url))
    if parts.scheme != "https":
        return None
    for host, vendor in _VENDORS.items():
        if parts.netloc == host or (host[0] in ".-" and parts.netloc.endswith(host)):
            return vendor
    return None


def _extremes(input_tokens: int, output_tokens: int) -> list[Usage]:
    """Return usages of which one costs the most: a cost is a sum of parts, each at its price."""
    plain = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    inputs = (
        plain,
        replace(plain, cached_tokens=input_tokens),
        replace(plain, cache_write_tokens=input_tokens),
    )
    return [*inputs, *(replace(usage, reasoning_tokens=output_tokens) for usage in inputs)]


def _own_cost(prices: Prices, usage: Usage) -> float:
    cached, written = _parts(usage)
    cached_price = prices.input if prices.cached_input is None else prices.cached_input
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    total = (
        (usage.input_tokens - cached - written) * prices.input
        + cached * cached_price
        + written * write_price
        + usage.output_tokens * prices.output
    )
    return usd(total / PER_MILLION)


def _parts(usage: Usage) -> tuple[int, int]:
    """Return cached and written input tokens, together no more than the input itself."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    return cached, min(usage.cache_write_tokens, usage.input_tokens - cached)


@cache
def _vendors() -> dict[str, "Provider"]:
    from genai_prices.data import providers  # slow, see above

    return {provider.id: provider for provider in providers}


@lru_cache(maxsize=1024)  # callers choose the names
def _find(vendor: str, model: str) -> "tuple[Provider, ModelInfo] | None":
    """Return the data set's entry for a model; it knows aliases and dated names."""
    provider = _vendors()[vendor]
    found = provider.find_model(model, all_providers=list(_vendors().values()))
    return (provider, found) if found else None


def _listed(endpoint: Endpoint, model: str) -> "_Listed | None":
    vendor = vendor_of(endpoint.base_url)
    found = _find(vendor, model) if vendor else None
    if found is None:
        return None
    asked = {name: endpoint.extra_body.get(name, "default") for name in _TIER_FIELDS}
    tier = {name: str(value) for name, value in asked.items() if value not in _STANDARD_TIERS}
    return _Listed(*found, tier)


def _listed_cost(listed: "_Listed", usage: Usage, at: datetime) -> float | None:
    from genai_prices import Usage as Counted

    provider, model, tier = listed
    if not _has_prices(model.get_prices(at)) or (tier and not _has_tier(listed, at)):
        return None
    cached, written = _parts(usage)
    counted = Counted(
        input_tokens=usage.input_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens),
    )
    price = model.calc_price(
        counted, provider, genai_request_timestamp=at, price_context=tier or None
    )
    return usd(float(price.total_price))


def _has_tier(listed: "_Listed", at: datetime) -> bool:
    """Whether the data set has prices for the configured tier; it would fall back silently."""
    own = any(listed.model is model for model in listed.provider.models)
    variants = listed.model.price_variants or ()
    return own and any(
        variant.when == listed.tier and (not variant.constraint or variant.constraint.active(at))
        for variant in variants
    )


def _has_prices(prices: "ModelPrice") -> bool:
    """Whether both directions have a price, be it 0; without one the sum would leave tokens out."""
    return prices.input_mtok is not None and prices.output_mtok is not None


def _moments(model: "ModelInfo", at: datetime) -> list[datetime]:
    """Return `at` and the beginnings of the daily price windows on its day."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint

    if isinstance(model.prices, ModelPrice):
        return [at]
    constraints = (entry.constraint for entry in model.prices)
    starts = [c.start_time for c in constraints if isinstance(c, TimeOfDateConstraint)]
    return [at, *(datetime.combine(at.date(), start) for start in starts)]
