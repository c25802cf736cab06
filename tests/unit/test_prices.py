"""Prices: figures of the vendors' lists, as genai-prices 0.2.3 (10 November 2026) has them.

Each figure is worked out by hand from the rates per million tokens in the comment beside it, which
stand on the vendors' pricing pages. A newer data set may change them; then look there.
"""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.core.jobs import Usage
from functions.providers.base import Endpoint, Prices
from functions.providers.prices import GenaiPrices, UnknownPrices, vendor_of

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
PLAIN = Usage(input_tokens=1_000_000, output_tokens=100_000)

URLS = {
    "openai": "https://api.openai.com/v1",
    "openai-responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "vertex": "https://europe-west4-aiplatform.googleapis.com",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com",
    "xai": "https://api.x.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "together": "https://api.together.xyz/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "azure": "https://panel.openai.azure.com/openai/v1",
    "local": "http://127.0.0.1:8080/v1",
}


def book(**changes: Any) -> GenaiPrices:
    """Return a book over all vendors' own addresses; `changes` go to every endpoint."""
    endpoints = {
        name: Endpoint(**{"name": name, "base_url": url} | changes) for name, url in URLS.items()
    }
    return GenaiPrices(endpoints)


@pytest.mark.parametrize(
    ("provider", "model", "usd"),
    [
        ("openai", "gpt-4o", 3.5),  # 2.50 in, 10 out
        ("openai", "gpt-4o-2024-08-06", 3.5),  # a dated name of the same
        ("openai-responses", "gpt-5", 2.25),  # 1.25 in, 10 out
        ("openai", "gpt-4o-mini", 0.21),  # 0.15 in, 0.60 out
        ("anthropic", "claude-sonnet-5-5", 3.0),  # 2 in, 10 out
        ("anthropic", "claude-haiku-4-5-20251001", 1.5),  # 1 in, 5 out
        ("anthropic", "claude-opus-4-7", 7.5),  # 5 in, 25 out
        ("gemini", "gemini-2.5-flash", 0.55),  # 0.30 in, 2.50 out
        ("gemini", "gemini-3.7-flash", 1.125),  # 0.75 in, 3.75 out until the end of 2026
        ("vertex", "gemini-2.5-flash", 0.55),
        ("mistral", "mistral-large-2512", 0.65),  # 0.50 in, 1.50 out
        ("mistral", "mistral-small-latest", 0.21),  # 0.15 in, 0.60 out
        ("mistral", "codestral-latest", 0.39),  # 0.30 in, 0.90 out
        ("deepseek", "deepseek-v4-flash", 0.21),  # 0.15 in, 0.60 out, off-peak
        ("xai", "grok-4", 4.5),  # 3 in, 15 out
        ("groq", "llama-3.3-70b-versatile", 0.669),  # 0.59 in, 0.79 out
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", 0.968),  # 0.88 both
        ("openrouter", "openai/gpt-4o", 3.5),
        ("azure", "gpt-4o-2024-08-06", 3.5),
    ],
)
def test_a_vendors_model_costs_what_its_list_says(provider: str, model: str, usd: float) -> None:
    """A million tokens in and a hundred thousand out, at the standard rates."""
    assert book().cost_usd(provider, model, PLAIN, AT) == usd
    assert book().cost_usd("local", model, PLAIN, AT) is None


@pytest.mark.parametrize(
    ("provider", "model", "usage", "usd"),
    [
        # Cached input of gpt-4o is 1.25: 600 of 1,000.
        ("openai", "gpt-4o", Usage(input_tokens=1000, cached_tokens=600), 0.00175),
        # claude-opus-4-7 writes at 6.25 and reads at 0.50 beside 5.
        (
            "anthropic",
            "claude-opus-4-7",
            Usage(input_tokens=1000, cached_tokens=300, cache_write_tokens=200),
            0.0039,
        ),
        # Reasoning is part of the output and not counted twice.
        ("openai", "gpt-5", Usage(output_tokens=1000, reasoning_tokens=900), 0.01),
        # A model without a price for cached input takes the full one.
        ("groq", "llama-3.3-70b-versatile", Usage(input_tokens=1000, cached_tokens=500), 0.00059),
        # A count that cannot be, more cached than there was, is bounded.
        ("openai", "gpt-4o", Usage(input_tokens=1000, cached_tokens=5000), 0.00125),
        ("deepseek", "deepseek-v4-flash", Usage(input_tokens=1, cached_tokens=1), 3e-9),
    ],
)
def test_the_parts_of_a_usage_have_prices_of_their_own(
    provider: str, model: str, usage: Usage, usd: float
) -> None:
    """Cached and written input are parts of the input; reasoning is part of the output."""
    assert book().cost_usd(provider, model, usage, AT) == usd


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [
        (272_000, 272_000 * 4 / 1e6 + 0.02),  # gpt-5.6-sol: 4 in, 20 out
        (272_001, 272_001 * 8 / 1e6 + 0.03),  # above the threshold 8 in, 30 out, for all tokens
    ],
)
def test_above_the_context_threshold_all_tokens_cost_more(tokens: int, usd: float) -> None:
    """The threshold is the data set's: 272,000 input tokens for gpt-5.6."""
    usage = Usage(input_tokens=tokens, output_tokens=1000)
    assert book().cost_usd("openai", "gpt-5.6", usage, AT) == pytest.approx(usd, abs=1e-12)


@pytest.mark.parametrize(
    ("provider", "model", "at", "usd"),
    [
        ("gemini", "gemini-3.7-flash", datetime(2026, 12, 31, 23, tzinfo=UTC), 1.125),
        ("gemini", "gemini-3.7-flash", datetime(2027, 1, 1, tzinfo=UTC), 2.25),  # 1.50, 7.50
        ("deepseek", "deepseek-v4-flash", datetime(2026, 11, 30, 2, tzinfo=UTC), 0.42),  # peak
        ("deepseek", "deepseek-v4-flash", datetime(2026, 11, 30, 5, tzinfo=UTC), 0.21),
    ],
)
def test_a_price_is_that_of_its_time(provider: str, model: str, at: datetime, usd: float) -> None:
    """Introductory prices end on their day; dear hours are dear, whenever it is computed."""
    assert book().cost_usd(provider, model, PLAIN, at) == usd


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-6.2-sol"),
        ("openai", "no-such-model"),
        ("anthropic", "gpt-4o"),
        ("azure", "our-deployment"),
        ("local", "gpt-4o"),
        ("nobody", "gpt-4o"),
    ],
)
def test_what_nobody_lists_is_unknown(provider: str, model: str) -> None:
    """Unknown is None, never 0: for costs and for estimates."""
    assert book().cost_usd(provider, model, PLAIN, AT) is None
    assert book().estimate_usd(provider, model, input_tokens=1, output_tokens=1, at=AT) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/v1",
        "http://api.openai.com/v1",
        "https://api.openai.com:8443/v1",
        "https://api.openai.com.example.org/v1",
        "https://example.org/api.openai.com",
        "https://eu.api.openai.com/v1",  # other prices than the list's
        "https://evil-openai.azure.com.example.org",
    ],
)
def test_a_vendors_prices_hold_only_at_its_own_address(url: str) -> None:
    """The provider `openai` pointed at another server, local or not, has no prices."""
    prices = GenaiPrices({"openai": Endpoint(name="openai", base_url=url)})
    assert vendor_of(url) is None
    assert prices.cost_usd("openai", "gpt-4o", PLAIN, AT) is None


def test_an_operators_prices_win_everywhere() -> None:
    """They hold for every model of the provider, at a vendor's address and at a local one."""
    own = book(prices=Prices(input=1.0, output=10.0, cached_input=0.1, cache_write=2.0))
    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=500, cache_write_tokens=100)
    for provider in ("openai", "local"):
        assert own.cost_usd(provider, "gpt-4o", usage, AT) == 0.00165
        assert own.cost_usd(provider, "any", PLAIN, AT) == 2.0
    assert own.estimate_usd("local", "any", input_tokens=1000, output_tokens=100, at=AT) == 0.003


def test_an_operator_may_say_that_it_costs_nothing() -> None:
    """0 is a price when somebody gave it; parts without a price cost what input does."""
    free = book(prices=Prices(input=0.0, output=0.0))
    assert free.cost_usd("local", "any", PLAIN, AT) == 0.0
    plain = book(prices=Prices(input=1.0, output=0.0))
    usage = Usage(input_tokens=1000, cached_tokens=500, cache_write_tokens=100)
    assert plain.cost_usd("local", "any", usage, AT) == 0.001


@pytest.mark.parametrize(
    ("provider", "model", "usd"),
    [
        ("openai", "gpt-4o", 3.5),
        ("anthropic", "claude-opus-4-7", 8.75),  # all input written to the cache: 6.25
        ("deepseek", "deepseek-v4-flash", 0.42),  # the day's dear hours
        ("openai", "gpt-5.6", 13.0),  # above its threshold: 10 for writing, 30 out
    ],
)
def test_an_estimate_is_the_worst_of_the_day(provider: str, model: str, usd: float) -> None:
    """No usage within its tokens costs more than the estimate."""
    estimate = book().estimate_usd(
        provider, model, input_tokens=1_000_000, output_tokens=100_000, at=AT
    )
    assert estimate == usd
    for cached, written in ((0, 0), (1_000_000, 0), (0, 1_000_000)):
        usage = Usage(
            input_tokens=1_000_000,
            output_tokens=100_000,
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        cost = book().cost_usd(provider, model, usage, AT)
        assert cost is not None
        assert cost <= usd


def test_a_configured_service_tier_has_its_own_price_or_none() -> None:
    """Flex is half; a tier that the data set does not have for the model is unknown."""
    flex = book(extra_body={"service_tier": "flex"})
    assert flex.cost_usd("openai", "gpt-5", PLAIN, AT) == 1.125
    assert flex.cost_usd("anthropic", "claude-opus-4-7", PLAIN, AT) is None
    assert book(extra_body={"service_tier": "auto"}).cost_usd("openai", "gpt-5", PLAIN, AT) == 2.25


def test_every_listed_model_can_be_priced_or_says_unknown() -> None:
    """No entry of the data set raises, and none costs nothing for want of a price."""
    from genai_prices.data import providers

    usage = Usage(
        input_tokens=1000,
        output_tokens=500,
        cached_tokens=200,
        cache_write_tokens=100,
        reasoning_tokens=50,
    )
    ids = {vendor_of(url): name for name, url in URLS.items()}
    seen = 0
    for provider in providers:
        if (name := ids.get(provider.id)) is None:
            continue
        for model in provider.models:
            cost = book().cost_usd(name, model.id, usage, AT)
            assert cost is None or cost >= 0
            seen += cost is not None
    assert seen > 500


PARTS = (
    Usage(),
    Usage(cached_tokens=2000),
    Usage(cache_write_tokens=2000),
    Usage(reasoning_tokens=500),
    Usage(cached_tokens=900, cache_write_tokens=1000, reasoning_tokens=100),
    Usage(
        cached_tokens=9000, cache_write_tokens=9000, reasoning_tokens=9000
    ),  # more than there are
)


def test_no_listed_model_costs_more_than_its_estimate() -> None:
    """Whatever part of a usage is cached or reasoning; some models' cached input is dearer."""
    from genai_prices.data import providers

    ids = {vendor_of(url): name for name, url in URLS.items()}
    for provider in providers:
        for model in provider.models if provider.id in ids else ():
            asked = ids[provider.id], model.id
            estimate = book().estimate_usd(*asked, input_tokens=2000, output_tokens=500, at=AT)
            for parts in PARTS:
                usage = replace(parts, input_tokens=2000, output_tokens=500)
                cost = book().cost_usd(*asked, usage, AT)
                assert (cost is None) == (estimate is None)
                assert cost is None or estimate is None or cost <= estimate


def test_an_own_price_of_cached_input_may_be_the_dearest() -> None:
    """An operator's prices are estimated by their dearest part as well."""
    own = book(prices=Prices(input=1.0, output=0.0, cached_input=3.0, cache_write=2.0))
    estimate = own.estimate_usd("local", "any", input_tokens=1_000_000, output_tokens=1, at=AT)
    assert estimate == 3.0


def test_a_book_without_prices_knows_none() -> None:
    """Where no prices are wired every cost is unknown."""
    assert UnknownPrices().cost_usd("openai", "gpt-4o", PLAIN, AT) is None
    estimate = UnknownPrices().estimate_usd("a", "b", input_tokens=1, output_tokens=1, at=AT)
    assert estimate is None


def test_the_source_of_the_prices_is_named() -> None:
    """The data set and its version, for whoever reads a figure."""
    assert book().source == "genai-prices 0.2.3"


OFFLINE = """
import socket, sys, threading

def refuse(*args, **kwargs):
    raise SystemExit("the network was asked for")

socket.socket.connect = socket.getaddrinfo = refuse
from dataclasses import replace
from datetime import UTC, datetime
from functions.core.jobs import Usage
from functions.providers.base import Endpoint
from functions.providers.prices import GenaiPrices

prices = GenaiPrices({
    "local": Endpoint(name="local", base_url="http://127.0.0.1:1/v1"),
    "openai": Endpoint(name="openai", base_url="https://api.openai.com/v1"),
})
usage, at = Usage(input_tokens=1), datetime.now(UTC)
assert prices.cost_usd("local", "m", usage, at) is None
assert "genai_prices" not in sys.modules, "imported for a local server"
assert prices.cost_usd("openai", "gpt-4o", usage, at) == 2.5e-06
assert threading.active_count() == 1, threading.enumerate()
"""


def test_prices_need_no_network_and_no_thread_and_are_imported_late() -> None:
    """The data set is read from the package, at the first call to a vendor."""
    ran = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
