"""Google's tokens: real google-auth and a real signature, against an endpoint on the loopback."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from functions.core.verdicts import CallFailure
from functions.providers.credentials import Pass
from functions.providers.google_tokens import EARLY, GoogleCredentials
from tests.unit.providers.google_tokens_server import (
    EMAIL,
    TokenEndpoint,
    key_file,
    refusal,
    token_endpoint,
    token_of,
)
from tests.unit.providers.loopback import response
from tests.unit.providers.test_http_provider import unused_port

SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Watch:
    """A clock that is moved by hand, from the real time on."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    async with token_endpoint() as made:
        yield made


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def credentials(endpoint: TokenEndpoint, watch: Watch, tmp_path: Path) -> GoogleCredentials:
    return GoogleCredentials(file=key_file(tmp_path, endpoint.url), now=watch)


async def shown(credentials: GoogleCredentials) -> Pass:
    """Return a pass, which must be there."""
    result = await credentials.get()
    assert isinstance(result, Pass), result
    return result


async def failed(credentials: GoogleCredentials) -> CallFailure:
    """Return the failure to get a pass; nothing can have been sent to the provider."""
    result = await credentials.get()
    assert isinstance(result, CallFailure)
    assert (result.sent, result.http_status) == (False, None)
    return result


async def test_a_signed_assertion_becomes_a_token(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """The account's key signs who asks and for what; the token goes into the header."""
    got = await shown(credentials)
    assert got.headers == {"authorization": f"Bearer {token_of(1)}"}
    claims = endpoint.claims()
    assert (claims["iss"], claims["scope"]) == (EMAIL, SCOPE)
    assert claims["exp"] - claims["iat"] <= 3600


async def test_nothing_is_asked_before_the_first_call(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """Making credentials opens neither the file nor a connection."""
    GoogleCredentials(file=Path("no-such-file"))
    GoogleCredentials()
    assert endpoint.forms == []


async def test_a_token_is_kept(credentials: GoogleCredentials, endpoint: TokenEndpoint) -> None:
    """One token serves many calls."""
    passes = [await shown(credentials) for _ in range(3)]
    assert len(set(map(id, passes))) == len(endpoint.forms) == 1


async def test_many_callers_wait_for_one_fetch(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """64 callers at once ask the token endpoint once."""
    passes = await asyncio.gather(*(shown(credentials) for _ in range(64)))
    assert len(set(map(id, passes))) == len(endpoint.forms) == 1


async def test_the_loop_goes_on_while_a_token_is_fetched(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """The endpoint lives in this very loop: a fetch that blocked the loop would never end."""
    endpoint.open.clear()
    waiting = asyncio.create_task(shown(credentials))
    await asyncio.wait_for(endpoint.arrived.wait(), 5)
    assert not waiting.done()
    endpoint.open.set()
    await asyncio.wait_for(waiting, 5)


async def test_cancelling_one_caller_leaves_the_others_their_token(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """The fetch belongs to nobody: it ends although the caller who began it has left."""
    endpoint.open.clear()
    first = asyncio.create_task(credentials.get())
    second = asyncio.create_task(shown(credentials))
    await asyncio.wait_for(endpoint.arrived.wait(), 5)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    endpoint.open.set()
    await asyncio.wait_for(second, 5)
    assert len(endpoint.forms) == 1


async def test_a_token_that_ends_soon_is_renewed_beside_the_call(
    credentials: GoogleCredentials, endpoint: TokenEndpoint, watch: Watch
) -> None:
    """Shortly before its end the present token still serves, and the next one is fetched."""
    first = await shown(credentials)
    watch.ahead = timedelta(seconds=3600) - EARLY + timedelta(seconds=5)
    assert await shown(credentials) is first
    watch.ahead = timedelta(seconds=3600)
    assert await shown(credentials) is not first  # waits for the fetch that is under way
    assert len(endpoint.forms) == 2


async def test_no_call_uses_a_token_at_its_end(
    credentials: GoogleCredentials, endpoint: TokenEndpoint, watch: Watch
) -> None:
    """A token with seconds left is replaced before anything is sent."""
    await shown(credentials)
    watch.ahead = timedelta(seconds=3590)
    assert (await shown(credentials)).headers["authorization"].endswith(token_of(2))


async def test_a_renewal_that_fails_costs_no_call(
    credentials: GoogleCredentials, endpoint: TokenEndpoint, watch: Watch
) -> None:
    """As long as the present token lasts, trouble at the endpoint fails nobody."""
    first = await shown(credentials)
    endpoint.reply = refusal
    watch.ahead = timedelta(seconds=3600) - EARLY + timedelta(seconds=5)
    endpoint.arrived.clear()
    assert await shown(credentials) is first
    await asyncio.wait_for(endpoint.arrived.wait(), 5)
    assert await shown(credentials) is first


async def test_a_token_that_served_and_is_refused_is_worth_another(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """All callers that showed it may try again; together they fetch one new token."""
    old = await shown(credentials)
    credentials.accepted(old)
    assert [credentials.refused(old) for _ in range(3)] == [True] * 3
    passes = await asyncio.gather(*(shown(credentials) for _ in range(3)))
    assert len(set(map(id, passes))) == 1
    assert passes[0] is not old
    assert len(endpoint.forms) == 2


async def test_a_new_token_that_is_refused_is_a_wrong_credential(
    credentials: GoogleCredentials,
) -> None:
    """Whoever showed it fails for good, and it is not shown again."""
    new = await shown(credentials)
    assert [credentials.refused(new) for _ in range(3)] == [False] * 3
    assert await shown(credentials) is not new


async def test_a_late_refusal_leaves_the_new_token(credentials: GoogleCredentials) -> None:
    """A 401 for an old token does not drop its successor."""
    old = await shown(credentials)
    credentials.accepted(old)
    credentials.refused(old)
    new = await shown(credentials)
    assert credentials.refused(old)
    assert await shown(credentials) is new


async def test_an_endpoint_out_of_reach(tmp_path: Path) -> None:
    """Nobody there: worth another try, and nothing was sent to the provider."""
    url = f"http://127.0.0.1:{unused_port()}/token"
    failure = await failed(GoogleCredentials(file=key_file(tmp_path, url)))
    assert failure.code == "connection_error"


async def test_a_refused_account_and_its_secrets(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """A25: a refusal is permanent and says why; the assertion it repeats is masked."""
    endpoint.reply = refusal
    failure = await failed(credentials)
    assert failure.code == "invalid_credential"
    assert "invalid_grant" in failure.message
    assertion = endpoint.forms[0]["assertion"]
    assert assertion[:12] not in failure.message
    assert assertion[-12:] not in failure.message


async def test_a_failing_endpoint_is_a_passing_trouble(
    credentials: GoogleCredentials,
    endpoint: TokenEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A 503 of the token endpoint is worth another attempt, google-auth's own tries aside."""
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda seconds: None)
    endpoint.reply = lambda form: response(b"busy", "503 Service Unavailable")
    assert (await failed(credentials)).code == "provider_error"


async def test_a_hanging_endpoint_ends_the_wait(
    endpoint: TokenEndpoint, watch: Watch, tmp_path: Path
) -> None:
    """A call waits so long and not longer; the next one starts a fetch of its own."""
    file = key_file(tmp_path, endpoint.url)
    credentials = GoogleCredentials(file=file, wait_seconds=0.1, now=watch)
    endpoint.open.clear()
    for _ in range(2):
        assert (await failed(credentials)).code == "connection_error"
    await asyncio.wait_for(endpoint.asked(2), 5)
    endpoint.open.set()


async def test_a_redirect_takes_the_assertion_nowhere(
    credentials: GoogleCredentials, endpoint: TokenEndpoint
) -> None:
    """The token endpoint is asked once and no other address is."""
    endpoint.reply = lambda form: response(b"", "307 Moved", f"location: {endpoint.url}\r\n")
    assert (await failed(credentials)).code == "invalid_credential"
    assert len(endpoint.forms) == 1


async def test_environment_proxies_are_ignored(
    credentials: GoogleCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No proxy of the environment sees the assertion."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{unused_port()}")
    await shown(credentials)


@pytest.mark.parametrize("text", [None, "no json", "{}", '{"type": "service_account"}'])
async def test_a_file_that_is_no_key(text: str | None, tmp_path: Path) -> None:
    """A missing or broken file is a wrong credential, said in words."""
    file = tmp_path / "account.json"
    if text is not None:
        file.write_text(text)
    assert (await failed(GoogleCredentials(file=file))).code == "invalid_credential"


async def test_the_applications_default_credentials(
    endpoint: TokenEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file the credential is the process's own, with the project it bills."""
    path = key_file(tmp_path, endpoint.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "project-q")
    got = await shown(GoogleCredentials())
    assert got.headers["authorization"] == f"Bearer {token_of(1)}"
    assert got.headers["x-goog-user-project"] == "project-q"


async def test_no_credentials_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without an account is told so; its requests never leave."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setattr("google.auth.compute_engine._metadata._NO_GCE_CHECK", True)
    failure = await failed(GoogleCredentials())
    assert failure.code == "invalid_credential"
    assert "credentials" in failure.message


async def test_the_token_is_redacted(credentials: GoogleCredentials) -> None:
    """A25: what a pass shows, its redaction removes, whole or in part; printing it hides it."""
    got = await shown(credentials)
    token = token_of(1)
    assert got.redact(f"got {token} and {token[20:40]}") == "got [redacted] and [redacted]"
    assert token not in repr(got)


def test_each_loop_fetches_for_itself(tmp_path: Path) -> None:
    """Credentials that were used in a loop that is gone work in the next one."""
    kept: list[GoogleCredentials] = []

    async def hang() -> None:
        async with token_endpoint() as endpoint:
            endpoint.open.clear()
            kept.append(GoogleCredentials(file=key_file(tmp_path, endpoint.url)))
            waiting = asyncio.create_task(kept[0].get())
            await asyncio.wait_for(endpoint.arrived.wait(), 5)
            waiting.cancel()
            endpoint.open.set()

    async def use() -> None:
        async with token_endpoint() as endpoint:
            key_file(tmp_path, endpoint.url)
            await shown(kept[0])

    asyncio.run(hang())
    asyncio.run(use())
