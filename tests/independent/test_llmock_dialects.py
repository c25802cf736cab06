"""llmock answers from the schema that it is sent, and fails in each vendor's own words."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from functions.core.verdicts import CallFailure, ProviderAnswer, Verdict, read_answer
from tests.independent.asking import KEY, RUBRIC, VERDICT, Asker, asker, provider_file
from tests.independent.llmock import Llmock, fail, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRESETS = {"mistral": "v1", "groq": "openai/v1", "together": "v1", "xai": "v1"}
DIALECTS = ("openai", "openai-responses", "anthropic", "gemini", *PRESETS)
MEANINGS = {
    400: "invalid_request",
    401: "invalid_credential",
    403: "permission_denied",
    404: "model_not_found",
    408: "timeout",
    409: "provider_error",
    422: "invalid_request",
    429: "rate_limited",
    500: "provider_error",
    503: "overloaded",
    529: "overloaded",
}
# What is asked for a JSON object without a schema gets prose here.
SCHEMA_IS_READ = ("openai", "openai-responses", "gemini", "mistral", "together", "xai")


def environment(url: str, folder: Path) -> dict[str, str]:
    """Return the variables that send every dialect, and some presets, to llmock."""
    tables = "".join(
        f'[providers.{name}]\nbase_url = "{url}/{name}/{version}"\n'
        for name, version in PRESETS.items()
    )
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": f"{url}/anthropic",
        "ANTHROPIC_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": f"{url}/gemini",
        "GEMINI_API_KEY": KEY,
        **{f"{name.upper()}_API_KEY": KEY for name in PRESETS},
        "EMPANEL_PROVIDERS": provider_file(folder, tables),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ask(llmock_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asker]:
    """All dialects, at llmock."""
    async with asker(environment(llmock_url, tmp_path_factory.mktemp("llmock"))) as asking:
        yield asking


@pytest.mark.parametrize("provider", SCHEMA_IS_READ)
async def test_the_schema_reaches_the_server(ask: Asker, llmock: Llmock, provider: str) -> None:
    """An answer made from the schema that was sent is a verdict under the full one."""
    answer = await ask(provider, "any")
    assert isinstance(answer, ProviderAnswer), answer
    assert isinstance(read_answer(answer, RUBRIC), Verdict), answer.text


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_scripted_answer_is_read(ask: Asker, llmock: Llmock, provider: str) -> None:
    """An answer in the vendor's form is read to its text."""
    llmock.script(reply(VERDICT))
    answer = await ask(provider, "any")
    assert isinstance(answer, ProviderAnswer), answer
    assert answer.text == VERDICT
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


@pytest.mark.parametrize("provider", DIALECTS)
async def test_an_error_has_the_same_meaning_in_each_dialect(
    ask: Asker, llmock: Llmock, provider: str
) -> None:
    """Each vendor has its own form of error; ours is one."""
    seen = {}
    for status in MEANINGS:
        llmock.script(fail(status))
        failure = await ask(provider, "any")
        assert isinstance(failure, CallFailure)
        seen[status] = failure.code
        assert failure.http_status == status
    assert seen | {408: "timeout"} == MEANINGS
    assert seen[408] in {"timeout", "provider_error"}  # for Anthropic it has the name of a 500


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_hint_in_milliseconds_is_read(ask: Asker, llmock: Llmock, provider: str) -> None:
    """llmock rounds `retry-after` up and says the exact wait in `retry-after-ms`."""
    llmock.script(fail(429, retry_after=2.25))
    failure = await ask(provider, "any")
    assert isinstance(failure, CallFailure)
    assert failure.hint_seconds in (2.25, 3.0)


@pytest.mark.parametrize("provider", DIALECTS)
async def test_a_call_is_one_request(ask: Asker, llmock: Llmock, provider: str) -> None:
    """No layer below ours asks again, whatever the answer."""
    llmock.script(fail(503))
    await ask(provider, "any")
    assert [seen["status"] for seen in llmock.requests()] == [503]
