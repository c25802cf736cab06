"""One question, put through our own providers to servers that stand in for the vendors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from functions.core.prompts import Criterion, Rubric, Scale, answer_schema, build_prompt
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers import registry

RUBRIC = Rubric(
    instructions="Score the laptop for travellers.",
    criteria=(Criterion(name="weight"), Criterion(name="battery")),
    scale=Scale(minimum=0, maximum=100),
)
VERDICT = '{"criteria": {"weight": 80, "battery": 60}, "score": 70, "rationale": "light"}'
KEY = "sk-independent-0123456789"


def question(model: str) -> CallRequest:
    """Return the question, with an output cap and no other parameter."""
    system, user = build_prompt(RUBRIC, '{"name":"Aurora 14"}')
    return CallRequest(
        model=model,
        system=system,
        user=user,
        schema=answer_schema(RUBRIC),
        parameters={"max_output_tokens": 400},
    )


@asynccontextmanager
async def asker(environ: Mapping[str, str]) -> AsyncIterator["Asker"]:
    """Load the providers of an environment as a function does, and close them afterwards."""
    asking = Asker(environ)
    try:
        yield asking
    finally:
        await asking.aclose()


class Asker:
    """The providers of one environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._providers = registry.load(environ)

    async def __call__(self, provider: str, model: str) -> ProviderAnswer | CallFailure:
        """Ask one provider once."""
        return await self._providers[provider].call(question(model))

    async def aclose(self) -> None:
        """Close every connection."""
        for provider in self._providers.values():
            await provider.aclose()


def provider_file(folder: Path, text: str) -> str:
    """Write a file for `EMPANEL_PROVIDERS`, and return its path."""
    path = folder / "providers.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)
