"""The HTTP call against a real socket: sent once, bounded, closed when nobody waits any more."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers import chat
from functions.providers.base import Endpoint
from functions.providers.http import HttpProvider
from tests.unit.providers.loopback import (
    Behaviour,
    Loopback,
    answering,
    drip,
    response,
    serving,
    silence,
)

KEY = "sk-test-ABCDEFGH12345678"
QUESTION = CallRequest(model="m", system="s", user="u", schema={"type": "object"})
COMPLETION = json.dumps(
    {"model": "m-1", "choices": [{"finish_reason": "stop", "message": {"content": "{}"}}]}
).encode()
GOOD = response(COMPLETION)

Pair = tuple[HttpProvider, Loopback]


@asynccontextmanager
async def provider(
    behaviour: Behaviour, *, read_seconds: float = 5.0, max_answer_bytes: int = 10_000
) -> AsyncIterator[Pair]:
    """Yield a provider and the loopback server it talks to."""
    async with serving(behaviour) as server:
        endpoint = Endpoint(
            name="loop", base_url=server.url, api_key=KEY, max_answer_bytes=max_answer_bytes
        )
        client = HttpProvider(endpoint, chat, read_seconds=read_seconds)
        try:
            yield client, server
        finally:
            await client.aclose()


def unused_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def failed(client: HttpProvider) -> CallFailure:
    """Return the failure of one call."""
    result = await client.call(QUESTION)
    assert isinstance(result, CallFailure)
    return result


async def test_a_question_goes_out_once_and_its_answer_comes_back() -> None:
    """The request is the dialect's, the answer is read whole, the connection is used again."""
    async with provider(answering(GOOD)) as (client, server):
        for _ in range(3):
            assert await client.call(QUESTION) == ProviderAnswer(text="{}", model_returned="m-1")
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1")
        assert f"Bearer {KEY}".encode() in head
        assert json.loads(body)["model"] == "m"
        assert (len(server.requests), server.connections) == (3, 1)


async def test_an_unsendable_question_is_not_sent() -> None:
    """What the dialect cannot say never reaches the server."""
    question = CallRequest(model="m", system="s", user="u", schema={}, parameters={"n": 2})
    async with provider(answering(GOOD)) as (client, server):
        result = await client.call(question)
        assert isinstance(result, CallFailure)
        assert (result.code, result.sent, server.connections) == ("invalid_request", False, 0)


async def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment sees no request and no key."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{unused_port()}")
    async with provider(answering(GOOD)) as (client, _):
        assert isinstance(await client.call(QUESTION), ProviderAnswer)


async def test_a_redirect_is_not_followed() -> None:
    """A redirect is a permanent failure; the key goes nowhere else."""
    moved = response(b"", "307 Temporary Redirect", "location: /other\r\n")
    async with provider(answering(moved)) as (client, server):
        failure = await failed(client)
        assert (failure.code, failure.http_status) == ("invalid_request", 307)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Error", "503 Unavailable"])
async def test_a32_nothing_below_retries_a_status(status: str) -> None:
    """One call is one request, whatever the status invites to."""
    busy = response(b"{}", status, "retry-after: 0\r\n")
    async with provider(answering(busy)) as (client, server):
        await failed(client)
        assert len(server.requests) == 1


async def test_a32_a_post_on_a_connection_closed_by_the_server_is_sent_once() -> None:
    """A kept connection that dies under a request is lost and unknown, never silently repeated."""
    turns = iter([answering(GOOD), answering(b"", close=True)])

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next(turns)(reader, writer)

    async with provider(behave) as (client, server):
        assert isinstance(await client.call(QUESTION), ProviderAnswer)
        failure = await failed(client)
        assert (failure.code, failure.sent, failure.http_status) == ("connection_error", True, None)
        assert (len(server.requests), server.connections) == (2, 1)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="A27-nothing"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + COMPLETION, id="A27-short-body"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n"
            % (len(COMPLETION), COMPLETION),
            id="A27-no-last-chunk",
        ),
        pytest.param(b"not http at all\r\n\r\n", id="no-http"),
    ],
)
async def test_a_cut_answer_is_sent_and_unknown(data: bytes) -> None:
    """A27: a partial body is never read as an answer; the request counts as sent, once."""
    async with provider(answering(data, close=True)) as (client, server):
        failure = await failed(client)
        assert (failure.code, failure.sent, failure.http_status) == ("connection_error", True, None)
        assert len(server.requests) == 1


async def test_no_connection_is_not_sent() -> None:
    """A refused connection reached nobody."""
    endpoint = Endpoint(name="gone", base_url=f"http://127.0.0.1:{unused_port()}/v1")
    client = HttpProvider(endpoint, chat)
    failure = await failed(client)
    await client.aclose()
    assert (failure.code, failure.sent) == ("connection_error", False)


async def test_an_unknown_host_is_not_sent() -> None:
    """A name that does not resolve reached nobody."""
    client = HttpProvider(Endpoint(name="gone", base_url="http://empanel.invalid/v1"), chat)
    failure = await failed(client)
    await client.aclose()
    assert (failure.code, failure.sent) == ("connection_error", False)


async def test_a_failed_tls_handshake_is_not_sent() -> None:
    """A server that does not speak TLS got no question."""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        client = HttpProvider(Endpoint(name="plain", base_url=url), chat)
        failure = await failed(client)
        await client.aclose()
    assert (failure.code, failure.sent) == ("connection_error", False)


async def test_silence_ends_with_the_read_timeout() -> None:
    """A server that never answers is a timeout of a request that was sent."""
    async with provider(silence, read_seconds=0.1) as (client, server):
        failure = await failed(client)
        assert (failure.code, failure.sent, failure.http_status) == ("timeout", True, None)
        await asyncio.wait_for(server.left.wait(), 2)
        assert len(server.requests) == 1


async def test_a26_a_dripping_answer_ends_by_the_callers_deadline() -> None:
    """Bytes that keep coming do not keep a call alive, and the connection is closed."""
    async with provider(drip, read_seconds=1.0) as (client, server):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.call(QUESTION)
        assert time.monotonic() - began < 1.0
        await asyncio.wait_for(server.left.wait(), 2)


async def cut_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send half of the headers, then nothing more."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-")
    await reader.read()


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(silence, id="before-the-answer"),
        pytest.param(cut_headers, id="within-the-headers"),
        pytest.param(drip, id="within-the-body"),
    ],
)
async def test_cancelling_closes_the_socket_at_once(behaviour: Behaviour) -> None:
    """The server sees the client leave as soon as the task is cancelled, wherever the call was."""
    async with provider(behaviour) as (client, server):
        task = asyncio.create_task(client.call(QUESTION))
        await asyncio.wait_for(server.arrived.wait(), 2)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 2)
        assert time.monotonic() - began < 0.5


async def test_a_cancelled_call_frees_its_place() -> None:
    """With room for one call, the next one goes through after a cancellation."""
    turns: list[Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]] = [
        answering(GOOD),
        silence,
    ]

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await turns.pop()(reader, writer)

    async with serving(behave) as server:
        client = HttpProvider(Endpoint(name="one", base_url=server.url, concurrency=1), chat)
        task = asyncio.create_task(client.call(QUESTION))
        await asyncio.wait_for(server.arrived.wait(), 2)
        task.cancel()
        await asyncio.wait({task})
        assert isinstance(await client.call(QUESTION), ProviderAnswer)
        await client.aclose()


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_an_endless_answer_is_cut_off(framing: str) -> None:
    """Past the size limit reading stops, the connection is closed, the answer is no answer."""
    head = b"content-length: 100000000" if framing == "length" else b"transfer-encoding: chunked"
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n" if framing == "chunks" else b"x" * 0x8000

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        while True:
            writer.write(chunk)
            await writer.drain()

    async with provider(flood) as (client, server):
        failure = await failed(client)
        assert (failure.code, failure.http_status) == ("response_too_large", 200)
        await asyncio.wait_for(server.left.wait(), 2)


async def test_a_compressed_flood_is_cut_off() -> None:
    """Compression is not asked for; a server that compresses anyway meets the same limit."""
    packed = gzip.compress(b" " * 10_000_000)
    flood = response(packed, headers="content-encoding: gzip\r\n")
    async with provider(answering(flood)) as (client, server):
        assert (await failed(client)).code == "response_too_large"
        assert b"accept-encoding: identity" in server.requests[0].lower()


async def test_a_broken_encoding_is_no_answer() -> None:
    """A body that does not unpack is an invalid response, not an exception."""
    broken = response(b"no gzip", headers="content-encoding: gzip\r\n")
    async with provider(answering(broken)) as (client, _):
        assert (await failed(client)).code == "invalid_response"


async def test_a25_no_key_in_the_text_of_an_error() -> None:
    """A key in an address that fails does not enter the failure's message."""
    url = f"http://127.0.0.1:{unused_port()}/{KEY}"
    client = HttpProvider(Endpoint(name="gone", base_url=url, api_key=KEY), chat)
    failure = await failed(client)
    await client.aclose()
    assert KEY[:12] not in failure.message


GATEWAY_KEY = "gw-0123456789abcdef"
TICKET = "ticket-ABCDEFGHIJKLMN"


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_a25_no_fixed_secret_in_what_is_kept(status: str) -> None:
    """A gateway's own key, in a header or in the query, is masked like the provider's."""
    said = f"{KEY} {GATEWAY_KEY} {TICKET} version-2026-11-29"
    message = {"content": said}
    body = {
        "model": said,
        "error": {"message": said} if status.startswith("400") else None,
        "choices": [{"finish_reason": "stop", "message": message}],
    }
    answer = response(json.dumps(body).encode(), status, f"x-request-id: {said}\r\n")
    async with serving(answering(answer)) as server:
        endpoint = Endpoint(
            name="loop",
            base_url=server.url,
            api_key=KEY,
            headers={"cf-aig-authorization": GATEWAY_KEY, "x-version": "version-2026-11-29"},
            query={"access_token": TICKET},
        )
        client = HttpProvider(endpoint, chat)
        result = await client.call(QUESTION)
        await client.aclose()
    kept = f"{result} {endpoint}"
    assert not any(secret[:12] in kept for secret in (KEY, GATEWAY_KEY, TICKET))
    assert "version-2026-11-29" in str(result)


@pytest.mark.parametrize(
    "headers",
    [
        "retry-after: \xff\xfe\r\n",
        "retry-after: 3\r\nretry-after: 5\r\n",
        "x-request-id: \x80\xc3(\r\nx-request-id: two\r\n",
        "content-type: text/event-stream\r\nset-cookie: a=b; Domain=.test\r\n",
        "x-should-retry: maybe\r\nretry-after-ms: -1\r\n",
        f"x-request-id: {'r' * 7000}\r\n",
    ],
)
async def test_headers_of_every_odd_form_are_borne(headers: str) -> None:
    """Bytes that are no text, names given twice and absurd lengths end no call as an exception."""
    head = f"HTTP/1.1 429 Busy\r\ncontent-length: 2\r\n{headers}\r\n{{}}"
    async with provider(answering(head.encode("latin-1"))) as (client, _):
        failure = await failed(client)
    assert failure.code == "rate_limited"
    assert failure.request_id is None or len(failure.request_id) <= 200


async def test_many_calls_share_the_pool() -> None:
    """64 calls at once are 64 requests on at most 64 connections."""
    async with provider(answering(GOOD)) as (client, server):
        results = await asyncio.gather(*(client.call(QUESTION) for _ in range(64)))
        assert all(isinstance(result, ProviderAnswer) for result in results)
        assert len(server.requests) == 64
        assert server.connections <= 64


def test_each_loop_gets_its_own_client() -> None:
    """A provider made before any loop works in one loop after another."""
    with_port: list[HttpProvider] = []

    async def ask() -> ProviderAnswer | CallFailure:
        async with serving(answering(GOOD)) as server:
            client = HttpProvider(Endpoint(name="loop", base_url=server.url), chat)
            with_port.append(client)
            result = await client.call(QUESTION)
            await client.aclose()
            return result

    async def ask_again() -> CallFailure:
        return await failed(with_port[0])

    assert isinstance(asyncio.run(ask()), ProviderAnswer)
    assert asyncio.run(ask_again()).code == "connection_error"


def _sent_headers(request: bytes) -> list[tuple[str, str]]:
    """Return the headers of a request as it came, names in lower case."""
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return [(name.lower(), text.strip()) for name, _, text in (x.partition(":") for x in lines)]


async def test_a33_the_attempts_key_goes_out_where_the_endpoint_names_a_header() -> None:
    """The key is visible at the server under the configured name, the same at every sending."""
    keyed = replace(QUESTION, attempt_key="att_1")
    async with serving(answering(GOOD)) as server:
        endpoint = Endpoint(name="loop", base_url=server.url, idempotency_header="Idempotency-Key")
        client = HttpProvider(endpoint, chat)
        for question in (keyed, keyed, QUESTION):
            await client.call(question)
        await client.aclose()
        sent = [dict(_sent_headers(request)).get("idempotency-key") for request in server.requests]
        assert sent == ["att_1", "att_1", None]


async def test_a33_no_header_no_key() -> None:
    """An endpoint that names no header is sent no key, under any name."""
    async with provider(answering(GOOD)) as (client, server):
        await client.call(replace(QUESTION, attempt_key="att_1"))
        assert b"att_1" not in server.requests[0]


async def test_fixed_headers_go_along_each_name_once() -> None:
    """The endpoint's headers replace the dialect's, in any case, and never the credential."""
    headers = {"ACCEPT": "application/vnd.x+json", "X-Org": "o-1", "AUTHORIZATION": "Bearer other"}
    async with serving(answering(GOOD)) as server:
        endpoint = Endpoint(name="loop", base_url=server.url, api_key=KEY, headers=headers)
        client = HttpProvider(endpoint, chat)
        await client.call(QUESTION)
        await client.aclose()
        sent = _sent_headers(server.requests[0])
        assert len(dict(sent)) == len(sent)
        assert dict(sent)["accept"] == "application/vnd.x+json"
        assert dict(sent)["x-org"] == "o-1"
        assert dict(sent)["authorization"] == f"Bearer {KEY}"


async def test_no_cookie_is_kept() -> None:
    """What a server sets with one call does not travel with the next one."""
    setting = response(COMPLETION, headers="set-cookie: session=abc; Path=/\r\n")
    async with serving(answering(setting)) as server:
        url = server.url.replace("127.0.0.1", "localhost")  # cookie jars distrust bare addresses
        client = HttpProvider(Endpoint(name="loop", base_url=url), chat)
        await client.call(QUESTION)
        await client.call(QUESTION)
        await client.aclose()
        assert b"abc" not in server.requests[1]


async def test_endless_headers_are_cut_off() -> None:
    """The limit holds before the body as well: the answer is lost, the connection closed."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nx-long: ")
        while True:
            writer.write(b"x" * 0x8000)
            await writer.drain()

    async with provider(flood) as (client, server):
        failure = await failed(client)
        assert (failure.code, failure.sent, failure.http_status) == ("connection_error", True, None)
        await asyncio.wait_for(server.left.wait(), 2)


@pytest.mark.parametrize(
    "other", [{"api_key": "k-2"}, {"base_url": "http://g/v1"}, {"headers": {"x-org": "o-2"}}]
)
def test_what_a_hint_pauses(other: dict[str, Any]) -> None:
    """A hint pauses those with the same address, key and fixed headers; the name shows no key."""
    same: dict[str, Any] = {"base_url": "http://h/v1", "api_key": KEY, "headers": {"x-org": "o-1"}}

    def scope(**options: Any) -> str:
        return HttpProvider(Endpoint(name="p", **{**same, **options}), chat).pause_scope

    assert scope() == scope()
    assert scope() != scope(**other)
    assert KEY not in scope()
