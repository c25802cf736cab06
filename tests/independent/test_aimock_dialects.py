"""aimock speaks every dialect: what our providers make of its answers and errors."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from functions.core.jobs import Usage
from functions.core.verdicts import CallFailure, ProviderAnswer, Verdict, read_answer
from tests.independent.asking import KEY, RUBRIC, Asker, asker, provider_file

pytestmark = pytest.mark.asyncio(loop_scope="module")

DIALECTS = ("openai", "openai-responses", "anthropic", "gemini", "vertex", "azure", "openrouter")
TABLES = """
[providers.azure]
base_url = "{url}/openai/deployments/d"
query = {{ api-version = "2026-10-01" }}
[providers.openrouter]
base_url = "{url}/api/v1"
[providers.vertex]
project = "shop-1"
location = "global"
base_url = "{url}"
key_variable = "GEMINI_API_KEY"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ask(aimock_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asker]:
    """All dialects, at aimock."""
    folder = tmp_path_factory.mktemp("aimock")
    environ = {
        "OPENAI_BASE_URL": f"{aimock_url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": aimock_url,
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": aimock_url,
        "GEMINI_API_KEY": KEY,
        "AZURE_OPENAI_API_KEY": KEY,
        "OPENROUTER_API_KEY": KEY,
        "EMPANEL_PROVIDERS": provider_file(folder, TABLES.format(url=aimock_url)),
    }
    async with asker(environ) as asking:
        yield asking


@pytest.mark.parametrize("provider", DIALECTS)
async def test_an_answer_is_read_with_its_usage(ask: Asker, provider: str) -> None:
    """A finished answer is a verdict, with the tokens the server counted."""
    answer = await ask(provider, "answers")
    assert isinstance(answer, ProviderAnswer), answer
    verdict = read_answer(answer, RUBRIC)
    assert isinstance(verdict, Verdict), verdict
    assert (verdict.score, verdict.criteria) == (70, {"weight": 80, "battery": 60})
    assert answer.usage == Usage(input_tokens=120, output_tokens=30)
    # Anthropic's header is `request-id`, which aimock does not send.
    assert (answer.request_id is None) == (provider == "anthropic")


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_the_model_that_answered_is_kept(ask: Asker, provider: str) -> None:
    """The returned model is the server's word, not what was asked for."""
    answer = await ask(provider, "renamed")
    assert isinstance(answer, ProviderAnswer)
    assert answer.model_returned == "renamed-2026-11-01"


@pytest.mark.parametrize("provider", DIALECTS)
async def test_thinking_is_no_part_of_the_answer(ask: Asker, provider: str) -> None:
    """A verdict that the model only thought of is not read beside the one it gave."""
    answer = await ask(provider, "thinks")
    assert isinstance(answer, ProviderAnswer), answer
    assert isinstance(read_answer(answer, RUBRIC), Verdict)


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_truncated_answer_is_never_parsed(ask: Asker, provider: str) -> None:
    """Whatever the dialect calls it, an answer cut at the cap is not read as a verdict."""
    # aimock's incomplete response does not say why it is incomplete.
    expected = "invalid_output" if provider == "openai-responses" else "truncated"
    assert await _code(ask, provider, "cut") == expected


@pytest.mark.parametrize(
    ("provider", "code"),
    [
        ("openai", "content_blocked"),
        ("azure", "content_blocked"),
        ("openrouter", "content_blocked"),
        ("gemini", "content_blocked"),
        ("vertex", "content_blocked"),
        # A response that failed without saying why may do better.
        ("openai-responses", "provider_error"),
        ("anthropic", "invalid_output"),  # no stop reason of this vendor's
    ],
)
async def test_a_blocked_answer(ask: Asker, provider: str, code: str) -> None:
    """What the server blocked is no answer."""
    assert await _code(ask, provider, "filtered") == code


async def test_a_refusal_of_anthropics_is_a_200(ask: Asker) -> None:
    """The stop reason says that the model refused."""
    assert await _code(ask, "anthropic", "refuses") == "refused"


@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize("model", ["novel", "tools"])
async def test_only_known_finish_reasons_are_accepted(
    ask: Asker, provider: str, model: str
) -> None:
    """A reason nobody knows, and a call of a tool nobody offered, bring no verdict."""
    assert await _code(ask, provider, model) in {"invalid_output", "empty_response"}


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_blank_answer_is_none(ask: Asker, provider: str) -> None:
    """Blank text with a good finish reason is an empty answer."""
    assert await _code(ask, provider, "empty") == "empty_response"


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_rate_limit_comes_with_its_hint(ask: Asker, provider: str) -> None:
    """A 429 says how long to wait."""
    failure = await _failure(ask, provider, "limited")
    assert (failure.code, failure.http_status) == ("rate_limited", 429)
    assert failure.hint_seconds == 7


@pytest.mark.parametrize("provider", DIALECTS)
async def test_an_error_has_the_same_meaning_in_each_dialect(ask: Asker, provider: str) -> None:
    """Each dialect has its own form of error; ours is one, and no key stands in it."""
    models = ("busy", "broken", "wrong", "locked")
    failures = [await _failure(ask, provider, model) for model in models]
    assert [(failure.code, failure.http_status) for failure in failures] == [
        ("overloaded", 529),
        ("provider_error", 500),
        ("invalid_request", 400),
        ("invalid_credential", 401),
    ]
    assert not any(KEY in failure.message for failure in failures)


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_body_that_is_no_json(ask: Asker, provider: str) -> None:
    """A 200 with garbled JSON was answered by something; it is no answer."""
    failure = await _failure(ask, provider, "garbled")
    assert (failure.code, failure.http_status, failure.sent) == ("invalid_response", 200, True)


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_dropped_connection_may_have_been_paid_for(ask: Asker, provider: str) -> None:
    """The request was sent and nothing came back: no status, and it counts as sent."""
    failure = await _failure(ask, provider, "dropped")
    assert (failure.code, failure.http_status, failure.sent) == ("connection_error", None, True)


async def _failure(ask: Asker, provider: str, model: str) -> CallFailure:
    failure = await ask(provider, model)
    assert isinstance(failure, CallFailure), failure
    return failure


async def _code(ask: Asker, provider: str, model: str) -> str:
    return (await _failure(ask, provider, model)).code
