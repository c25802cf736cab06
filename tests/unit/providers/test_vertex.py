"""Vertex AI: addresses by location, and Google's tokens on the way to a provider."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from functions.core.errors import ConfigurationError
from functions.core.jobs import Outcome
from functions.core.retries import outcome_of
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers import gemini, vertex
from functions.providers.base import Endpoint, WireRequest, digest_of
from functions.providers.google_tokens import GoogleCredentials
from functions.providers.http import HttpProvider
from tests.unit.providers.google_tokens_server import (
    TokenEndpoint,
    key_file,
    refusal,
    token_endpoint,
    token_of,
)
from tests.unit.providers.loopback import Loopback, response, serving
from tests.unit.providers.test_gemini import VERDICT, generated, google_error
from tests.unit.providers.test_http_provider import unused_port

QUESTION = CallRequest(model="gemini-x", system="s", user="u", schema={"type": "object"})


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-central1", "us-central1-aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ],
)
def test_the_address_of_a_location(location: str, host: str) -> None:
    """The global place, a multi-region and a region each have a host of their own form."""
    assert vertex.base_url(project="project-a", location=location) == (
        f"https://{host}/v1/projects/project-a/locations/{location}/publishers/google"
    )


def test_another_server_and_version() -> None:
    """A proxy in Google's place keeps its own path; old projects carry a domain."""
    url = vertex.base_url(
        project="example.com:old", location="us", server="http://h:1/vertex/", api_version="v1beta1"
    )
    assert url == (
        "http://h:1/vertex/v1beta1/projects/example.com:old/locations/us/publishers/google"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"project": ""},
        {"project": "a/b"},
        {"location": ""},
        {"location": "us.evil.example"},
        {"location": "evil.example/"},
        {"location": "US"},
        {"api_version": "v1/../x"},
    ],
)
def test_nothing_else_gets_into_an_address(wrong: dict[str, Any]) -> None:
    """A name that would lead the token elsewhere is refused, with its option."""
    [name] = wrong
    with pytest.raises(ConfigurationError, match=name):
        vertex.base_url(**{"project": "project-a", "location": "us", **wrong})


def test_project_and_location_are_part_of_the_identity() -> None:
    """Another project or location is another endpoint in every work key; Gemini's is a third."""
    digests = {
        digest_of(
            Endpoint(
                name="vertex",
                dialect="vertex",
                base_url=vertex.base_url(project=project, location=location),
            )
        )
        for project in ("project-a", "project-b")
        for location in ("us", "global")
    }
    assert len(digests) == 4


def test_the_words_are_geminis() -> None:
    """Body and reading are the Gemini API's; only the path is shorter, the rest is in the base."""
    endpoint = Endpoint(name="vertex", dialect="vertex", base_url="https://h")
    here, there = vertex.build(endpoint, QUESTION), gemini.build(endpoint, QUESTION)
    assert isinstance(here, WireRequest)
    assert isinstance(there, WireRequest)
    assert here.path == "/models/gemini-x:generateContent"
    assert here.body == there.body
    assert vertex.read is gemini.read


class Town:
    """A Vertex server, a token endpoint and a provider between them."""

    def __init__(self, server: Loopback, tokens: TokenEndpoint, client: HttpProvider) -> None:
        self.server = server
        self.tokens = tokens
        self.client = client
        self.good = {token_of(number) for number in range(1, 100)}

    async def ask(self) -> ProviderAnswer | CallFailure:
        return await self.client.call(QUESTION)

    async def failed(self) -> CallFailure:
        result = await self.ask()
        assert isinstance(result, CallFailure), result
        return result

    def shown(self) -> list[str]:
        """Return the token of each request that the server got."""
        found = (re.search(rb"(?i)authorization: Bearer (\S+)", r) for r in self.server.requests)
        return [match[1].decode() if match else "" for match in found]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with running(tmp_path) as made:
        yield made


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[Town]:
    """Run a town whose server takes the tokens in `good` and repeats the ones it refuses."""
    made: list[Town] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        [here] = made
        token = here.shown()[-1]
        if token in here.good:
            data = response(json.dumps(generated()).encode())
        else:
            refused = google_error(401, "UNAUTHENTICATED", f"bad token {token}")
            data = response(json.dumps(refused).encode(), "401 Unauthorized")
        writer.write(data)
        await writer.drain()

    async with token_endpoint() as tokens, serving(behave) as server:
        url = vertex.base_url(
            project="project-a", location="us", server=server.url.removesuffix("/v1")
        )
        endpoint = Endpoint(
            name="vertex",
            dialect="vertex",
            base_url=url,
            credentials=GoogleCredentials(file=key_file(folder, tokens.url)),
            **options,
        )
        client = HttpProvider(endpoint, vertex)
        made.append(Town(server, tokens, client))
        yield made[0]
        await client.aclose()


async def test_a_question_goes_to_the_projects_model_with_a_token(town: Town) -> None:
    """Real google-auth gets the token, the request shows it, the answer comes back."""
    answer = await town.ask()
    assert isinstance(answer, ProviderAnswer)
    assert answer.text == VERDICT
    path = b"/v1/projects/project-a/locations/us/publishers/google/models/gemini-x:generateContent"
    assert town.server.requests[0].startswith(b"POST " + path + b" HTTP/1.1")
    assert town.shown() == [token_of(1)]


async def test_calls_at_once_share_a_token(town: Town) -> None:
    """Sixteen calls are sixteen requests with one token."""
    await asyncio.gather(*(town.ask() for _ in range(16)))
    assert town.shown() == [token_of(1)] * 16
    assert len(town.tokens.forms) == 1


async def test_a_token_revoked_early_costs_one_attempt(town: Town) -> None:
    """One attempt is one request: it fails retryable, and the next one has a new token."""
    await town.ask()
    town.good.discard(token_of(1))
    failure = await town.failed()
    assert (failure.code, failure.http_status) == ("provider_error", 401)
    assert outcome_of(failure) is Outcome.RETRYABLE
    assert len(town.server.requests) == 2
    assert isinstance(await town.ask(), ProviderAnswer)
    assert town.shown() == [token_of(1), token_of(1), token_of(2)]


async def test_a_new_token_that_is_refused_ends_the_seat(town: Town) -> None:
    """A first token that is refused, or the one after a revoked one, is a wrong credential."""
    town.good.clear()
    first = await town.failed()
    assert (first.code, outcome_of(first)) == ("invalid_credential", Outcome.PERMANENT)
    town.good.add(token_of(2))
    await town.ask()
    town.good.clear()
    codes = [(await town.failed()).code for _ in range(2)]
    assert codes == ["provider_error", "invalid_credential"]


async def test_a_revoked_token_meets_many_calls_and_is_replaced_once(town: Town) -> None:
    """Calls that were under way with the old token all retry; one new token is fetched."""
    await town.ask()
    town.good.discard(token_of(1))
    failures = await asyncio.gather(*(town.failed() for _ in range(8)))
    assert {failure.code for failure in failures} == {"provider_error"}
    await asyncio.gather(*(town.ask() for _ in range(8)))
    assert len(town.tokens.forms) == 2


async def test_a25_the_token_is_in_nothing_that_is_kept(town: Town) -> None:
    """The server repeats the token it refuses; the failure does not."""
    town.good.clear()
    failure = await town.failed()
    assert "bad token [redacted]" in failure.message
    assert token_of(1)[:12] not in failure.message


async def test_without_a_token_nothing_is_sent(town: Town) -> None:
    """A refused account is a failure of a request that never left."""
    town.tokens.reply = refusal
    failure = await town.failed()
    assert (failure.code, failure.sent, failure.http_status) == ("invalid_credential", False, None)
    assert town.server.requests == []


async def test_an_unreachable_token_endpoint_is_retryable(tmp_path: Path) -> None:
    """Nothing was sent, and another attempt may find the endpoint again."""
    file = key_file(tmp_path, f"http://127.0.0.1:{unused_port()}/token")
    endpoint = Endpoint(
        name="vertex",
        dialect="vertex",
        base_url="http://127.0.0.1:1",
        credentials=GoogleCredentials(file=file),
    )
    failure = await HttpProvider(endpoint, vertex).call(QUESTION)
    assert isinstance(failure, CallFailure)
    assert (failure.code, failure.sent) == ("connection_error", False)
    assert outcome_of(failure) is Outcome.RETRYABLE


async def test_a_cancelled_call_leaves_the_token_to_the_next(town: Town) -> None:
    """A call that is cut while it waits for a token sends nothing."""
    town.tokens.open.clear()
    cut = asyncio.create_task(town.ask())
    await asyncio.wait_for(town.tokens.arrived.wait(), 5)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    assert town.server.requests == []
    town.tokens.open.set()
    assert isinstance(await town.ask(), ProviderAnswer)
    assert len(town.tokens.forms) == 1


async def test_no_fixed_header_replaces_the_token(tmp_path: Path) -> None:
    """A billing project goes along; an authorization of the configuration does not."""
    headers = {"X-Goog-User-Project": "project-q", "Authorization": "Bearer other"}
    async with running(tmp_path, headers=headers) as town:
        assert isinstance(await town.ask(), ProviderAnswer)
        head = town.server.requests[0].lower()
        assert b"x-goog-user-project: project-q" in head
        assert b"bearer other" not in head


def test_a_hint_pauses_project_and_location() -> None:
    """Google counts quotas per project and location: those make the scope, not the account."""

    def scope(**names: str) -> str:
        url = vertex.base_url(**{"project": "project-a", "location": "us", **names})
        credentials = GoogleCredentials()
        endpoint = Endpoint(name="vertex", base_url=url, credentials=credentials)
        return HttpProvider(endpoint, vertex).pause_scope

    assert scope() == scope()
    assert len({scope(), scope(project="project-b"), scope(location="eu")}) == 3
