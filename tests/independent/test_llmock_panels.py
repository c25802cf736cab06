"""Whole panels at llmock, which grades its clients by their retries; and the demo there."""

import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from functions.providers.presets import provider_variables
from infra.local.demo import Example, demo, load_examples
from infra.local.demo_model import DemoTarget
from infra.local.options import StackOptions
from infra.local.stack import Stack
from tests.e2e.waiting import until
from tests.independent.asking import VERDICT
from tests.independent.llmock import Llmock, fail, reply
from tests.independent.test_llmock_dialects import environment

DEMO_VERDICT = (
    '{"criteria": {"portability": 80, "battery": 60, "connections": 50}, "score": 70,'
    ' "rationale": "light"}'
)
pytestmark = pytest.mark.asyncio(loop_scope="module")

TERMINAL_STATES = {"succeeded", "failed", "expired", "canceled"}
PATHS = {
    "openai": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/anthropic/v1/messages",
    "gemini": "/gemini/v1beta/models/*",
    "mistral": "/mistral/v1/chat/completions",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(llmock_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack in one process whose providers all are llmock."""
    folder = tmp_path_factory.mktemp("llmock")
    options = StackOptions(
        folder=folder / ".local",
        project=f"test-{uuid.uuid4().hex[:12]}",
        model=False,
        embedded=True,
        environment={
            **environment(llmock_url, folder),
            "EMPANEL_REPAIR_SECONDS": "1",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EMPANEL_REQUIRE_EMULATORS", raising=False)
        async with Stack(options) as running:
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with httpx.AsyncClient(trust_env=False, timeout=30, base_url=stack.info.api) as client:
        client.headers["Authorization"] = f"Bearer {stack.info.api_key}"
        yield client


async def test_every_dialect_recovers_and_the_verdict_is_clean(
    api: httpx.AsyncClient, llmock: Llmock
) -> None:
    """Rate limits with a hint, then an error without: each seat succeeds at its third request.

    llmock finds nothing: hints kept, backoff growing, nothing given up.
    """
    for path in PATHS.values():
        match = {"path": path}
        llmock.script(
            fail(429, retry_after=1.5, match=match),
            fail(503, match=match),
            reply(VERDICT, match=match),
        )
    job = await _panel(api, list(PATHS), "Aurora 14")
    assert {seat["state"] for seat in job["seats"]} == {"succeeded"}, job
    assert _statuses(llmock) == {(path, status): 1 for path in PATHS for status in (429, 503, 200)}
    verdict = llmock.verdict()
    assert verdict["faults_injected"] == 2 * len(PATHS)
    assert (verdict["passed"], verdict["findings"]) == (True, []), verdict


async def test_backoff_without_a_hint_grows(api: httpx.AsyncClient, llmock: Llmock) -> None:
    """Two failures in a row without any hint: the second wait is longer than the first."""
    match = {"path": PATHS["openai"]}
    llmock.script(fail(500, times=2, match=match), reply(VERDICT, match=match))
    job = await _panel(api, ["openai"], "Aurora 15")
    assert job["seats"][0]["state"] == "succeeded", job
    verdict = llmock.verdict()
    assert (verdict["attempts"], verdict["findings"]) == (3, []), verdict


async def test_what_cannot_recover_is_asked_once(api: httpx.AsyncClient, llmock: Llmock) -> None:
    """Bad requests and bad keys are never asked again, in any dialect."""
    for status, path in zip((400, 401, 403, 404, 422), PATHS.values(), strict=True):
        llmock.script(fail(status, times=None, match={"path": path}))
    job = await _panel(api, list(PATHS), "Aurora 16")
    assert {seat["state"] for seat in job["seats"]} == {"failed"}, job
    verdict = llmock.verdict()
    assert (verdict["attempts"], verdict["findings"]) == (len(PATHS), []), verdict


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("anthropic", ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")),
        ("gemini", ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY")),
        ("openai", ("OPENAI_BASE_URL", "OPENAI_API_KEY")),
    ],
)
async def test_the_demo_goes_where_the_variables_say(
    stack: Stack,
    llmock: Llmock,
    llmock_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    variables: tuple[str, str],
) -> None:
    """With one vendor's two variables and no others, the demo's panels run there and succeed."""
    everything = environment(llmock_url, tmp_path)
    for name in ("EMPANEL_DEMO_MODEL", *provider_variables()):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, everything[name])
    if provider == "openai":  # a server there may serve anything, so that nothing is guessed
        monkeypatch.setenv("EMPANEL_DEMO_MODEL", "gpt-4o")
    llmock.script(reply(DEMO_VERDICT, times=None))
    assert not StackOptions().serves_model
    monkeypatch.setattr("infra.local.demo.load_examples", _renamed)  # three demos, one stack
    assert await demo(stack.info) == 0
    asked = [seen["path"] for seen in llmock.requests() if seen["method"] == "POST"]
    assert len(asked) == 6
    assert all(path.startswith(PATHS[provider].rstrip("*")) for path in asked)


def _renamed(folder: Path, target: DemoTarget) -> list[Example]:
    """Return the examples under names of their own, and so with idempotency keys of their own."""
    return [
        replace(example, name=f"{example.name}-{target.provider}")
        for example in load_examples(folder, target)
    ]


def _statuses(llmock: Llmock) -> Counter[tuple[str, int]]:
    """How often each provider's path was answered with each status."""
    names = {path.rstrip("*"): name for name, path in PATHS.items()}
    return Counter(
        (
            next(name for path, name in names.items() if seen["path"].startswith(path)),
            seen["status"],
        )
        for seen in llmock.requests()
    )


async def _panel(api: httpx.AsyncClient, providers: list[str], name: str) -> dict[str, Any]:
    """Run a job about a laptop with a seat for each provider, and return it at its end."""
    body = {
        "facts": {"name": name},
        "rubric": {
            "instructions": "Score the laptop for travellers.",
            "criteria": [{"name": "weight"}, {"name": "battery"}],
            "scale": {"min": 0, "max": 100},
        },
        "seats": [{"seat": name, "provider": name, "model": "any"} for name in providers],
        "policy": {"max_attempts": 6},
    }
    accepted = await api.post("/v1/jobs", json=body)
    assert accepted.status_code == httpx.codes.ACCEPTED, accepted.text

    async def job() -> dict[str, Any]:
        seen: dict[str, Any] = (await api.get(accepted.headers["Location"])).json()
        return seen

    return await until(job, lambda seen: seen["state"] in TERMINAL_STATES, what="the job ends")
