"""A real model behind llama.cpp's server, which nobody here wrote, through the preset `llamacpp`.

At its size the content of its answers means nothing; form, counts and refusals are real.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from functions.core.verdicts import CallFailure, ProviderAnswer, Verdict, read_answer
from functions.providers import registry
from functions.providers.http import HttpProvider
from infra.local.emulators import emulators_required
from infra.local.errors import StackError
from infra.local.model import ALIAS, KEY_VARIABLE, ModelServer, require_packages
from infra.local.network import free_port, wait_until_ready
from infra.local.processes import Children, child_environment
from tests.independent.asking import KEY, RUBRIC, provider_file, question

LOAD_SECONDS = 120.0

Running = tuple[Children, asyncio.Runner]


@pytest.fixture(scope="module")
def server(children: Running) -> ModelServer:
    """The served model; skipped where its packages are not installed."""
    try:
        require_packages()
    except StackError as exc:
        if emulators_required():
            raise
        pytest.skip(str(exc))
    processes, runner = children
    found = ModelServer(port=free_port(), key=KEY)
    environment = child_environment() | {KEY_VARIABLE: KEY}
    child = processes.start("real-model", found.command(), environment)
    runner.run(wait_until_ready(child, found.health_url, LOAD_SECONDS))
    return found


@pytest.fixture
async def ask(server: ModelServer, tmp_path: Path) -> AsyncIterator["Ask"]:
    """Ask through the preset, with the right key or another."""
    text = (
        '[providers.real]\npreset = "llamacpp"\nkey_variable = "REAL_KEY"\n'
        f'base_url = "{server.base_url}"\nmax_string_characters = 80\n'
    )
    asking = Ask({"EMPANEL_PROVIDERS": provider_file(tmp_path, text)})
    yield asking
    await asking.aclose()


class Ask:
    """The provider `real`, once for each key."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._providers: list[HttpProvider] = []

    async def __call__(
        self, *, key: str = KEY, user: str | None = None, **parameters: Any
    ) -> ProviderAnswer | CallFailure:
        """Ask once; the model answers the same way each time."""
        provider = registry.load({**self._environ, "REAL_KEY": key})["real"]
        self._providers.append(provider)
        asked = question(ALIAS)
        given = {**asked.parameters, "temperature": 0.0, "seed": 7, **parameters}
        return await provider.call(replace(asked, parameters=given, user=user or asked.user))

    async def aclose(self) -> None:
        """Close every connection."""
        for provider in self._providers:
            await provider.aclose()


async def test_its_answer_is_a_verdict_by_our_full_schema(ask: Ask) -> None:
    """The grammar made of the sent schema holds, and counts and model are read."""
    answer = await ask()
    assert isinstance(answer, ProviderAnswer)
    verdict = read_answer(answer, RUBRIC)
    assert isinstance(verdict, Verdict)
    assert verdict.criteria.keys() == {"weight", "battery"}
    assert answer.model_returned is not None
    assert answer.usage is not None
    assert answer.usage.input_tokens > 100
    assert 10 < answer.usage.output_tokens <= 400


async def test_a14_a_cap_that_is_too_small_truncates(ask: Ask) -> None:
    """A cut answer is a failure with its cost, never a shorter verdict."""
    failure = await ask(max_output_tokens=4)
    assert isinstance(failure, CallFailure)
    assert failure.code == "truncated"
    assert failure.usage is not None
    assert failure.usage.output_tokens == 4


async def test_a_wrong_key_is_refused_and_not_shown(ask: Ask) -> None:
    """The server's own words for it are understood."""
    failure = await ask(key="sk-another-0123456789")
    assert isinstance(failure, CallFailure)
    assert failure.code == "invalid_credential"
    assert "another-0123" not in failure.message


async def test_a_question_beyond_its_context_is_too_large(ask: Ask) -> None:
    """Its error has a number where others have a word, and is permanent all the same."""
    failure = await ask(user="weight and battery " * 2000)
    assert isinstance(failure, CallFailure)
    assert failure.code == "input_too_large"
