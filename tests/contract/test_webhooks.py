"""The webhook adapter against receivers at real sockets."""

import asyncio
import base64
import json
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from standardwebhooks import WebhookVerificationError

from functions.adapters.webhook import DRAIN_BYTES, HttpWebhooks
from functions.core.webhooks import WebhookCall, WebhookOutcome
from tests.receiver import GONE, Received, receiving, status

OLD, NEW = ("whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"o", b"n"))
DELIVERED, BLOCKED = WebhookOutcome.DELIVERED, WebhookOutcome.BLOCKED
RETRYABLE = WebhookOutcome.RETRYABLE
NAMED = "https://hook.example:8443/hook"


def call(url: str, body: bytes = b"{}", at: datetime | None = None) -> WebhookCall:
    return WebhookCall(url=url, id="dec_x.1", body=body, at=at or datetime.now(UTC))


def sender(*secrets: str, **options: Any) -> HttpWebhooks:
    return HttpWebhooks(secrets or (NEW,), **{"allow_loopback": True} | options)


def resolving(*answers: Sequence[str]) -> Any:
    """Return a name server that gives these answers in order, then the last one for ever."""
    left = list(answers)

    async def resolve(_: str, __: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def test_a_call_can_be_verified() -> None:
    """The receiver gets the bytes as they are, an ID, a fresh time and a valid signature."""
    body = json.dumps({"type": "job.succeeded"}).encode()
    async with receiving() as receiver:
        answer = await sender().send(call(receiver.url, body))
        [received] = receiver.received
    assert (answer.outcome, answer.http_status) == (DELIVERED, 200)
    assert answer.latency_seconds is not None
    assert (received.line, received.body) == ("POST /hook?to=team HTTP/1.1", body)
    assert received.headers["webhook-id"] == "dec_x.1"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    received.verify(NEW)


@pytest.mark.parametrize("title", ["\U0001f60a r\u00e9sum\u00e9", "re\u0301sume\u0301", "\x7f\x00"])
async def test_signature_and_length_count_bytes(title: str) -> None:
    """Emoji and both forms of an accent verify: length and signature are those of UTF-8 bytes."""
    body = json.dumps({"title": title}, ensure_ascii=False).encode()
    async with receiving() as receiver:
        await sender().send(call(receiver.url, body))
        [received] = receiver.received
    assert int(received.headers["content-length"]) == len(body)
    assert received.body == body
    received.verify(NEW)


async def test_rotation_signs_with_both() -> None:
    """While two secrets are set either one verifies; once the old one is gone, only the new."""
    async with receiving() as receiver:
        await sender(NEW, OLD).send(call(receiver.url))
        await sender(NEW).send(call(receiver.url))
        both, alone = receiver.received
    assert len(both.headers["webhook-signature"].split(" ")) == 2
    both.verify(NEW)
    both.verify(OLD)
    alone.verify(NEW)
    with pytest.raises(WebhookVerificationError):
        alone.verify(OLD)


async def test_each_call_is_signed_for_its_own_time() -> None:
    """The same bytes two hours later carry a time of then; the signature covers it."""
    now = datetime.now(UTC)
    async with receiving() as receiver:
        await sender().send(call(receiver.url, at=now - timedelta(hours=2)))
        await sender().send(call(receiver.url, at=now))
        early, late = receiver.received
    assert int(late.headers["webhook-timestamp"]) - int(early.headers["webhook-timestamp"]) == 7200
    late.verify(NEW)
    forged = replace(
        early, headers={**early.headers, "webhook-timestamp": str(int(now.timestamp()))}
    )
    with pytest.raises(WebhookVerificationError):
        forged.verify(NEW)


@pytest.mark.parametrize(
    ("answer", "outcome", "reason", "hint"),
    [
        (status(204), DELIVERED, "accepted", None),
        (GONE, WebhookOutcome.GONE, "gone", None),
        (status(404), RETRYABLE, "refused", None),
        (status(429, "Retry-After: 120"), RETRYABLE, "refused", 120.0),
        (status(503, "Retry-After: 7"), RETRYABLE, "server_error", 7.0),
        (status(500, "Retry-After: soon"), RETRYABLE, "server_error", None),
        (b"", RETRYABLE, "no_answer", None),
        (b"nonsense\r\n\r\n", RETRYABLE, "no_answer", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", DELIVERED, "accepted", None),
    ],
)
async def test_what_an_answer_means(
    answer: bytes, outcome: WebhookOutcome, reason: str, hint: float | None
) -> None:
    """2xx is delivered, 410 ends it, all else may be tried again, after the receiver's hint."""
    async with receiving(answer) as receiver:
        found = await sender().send(call(receiver.url))
    assert (found.outcome, found.reason, found.hint_seconds) == (outcome, reason, hint)


async def test_redirects_are_not_followed() -> None:
    """A redirect is an answer like another: where it leads is never connected to."""
    async with receiving() as other:
        async with receiving(status(307, f"Location: {other.url}")) as receiver:
            answer = await sender().send(call(receiver.url))
        assert (answer.outcome, answer.reason) == (RETRYABLE, "redirect")
        assert other.connections == 0


async def test_cookies_are_not_kept() -> None:
    """What a receiver sets is sent to nobody, not even to itself."""
    webhooks = sender()
    async with receiving(status(200, "Set-Cookie: a=b; Path=/")) as receiver:
        await webhooks.send(call(receiver.url))
        await webhooks.send(call(receiver.url))
        assert all("cookie" not in received.headers for received in receiver.received)


async def test_an_endless_body_ends_nothing() -> None:
    """Of 5 MB, or of a body without end, a little is read and nothing is kept."""
    written = 0

    async def flood(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"SECRET.." * 512 + b"\r\n")
            written += 4096
            await writer.drain()

    big = status(500, body=b"SECRET" * 900_000)
    async with receiving(big, flood) as receiver:
        webhooks = sender()
        for _ in range(2):
            answer = await webhooks.send(call(receiver.url))
            assert (answer.outcome, answer.http_status) == (RETRYABLE, 500)
            assert "SECRET" not in repr(answer)
    assert written < 20_000_000  # what buffers took; without a cap it would never end
    assert DRAIN_BYTES < 100_000


async def test_a_drip_does_not_hold_the_call() -> None:
    """A receiver that answers at once and then drips its body is taken by its status."""

    async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with receiving(drip) as receiver:
        answer = await asyncio.wait_for(sender().send(call(receiver.url)), 10)
    assert answer.outcome is DELIVERED


async def test_a_receiver_that_hangs_is_left() -> None:
    """Without an answer the call ends at its limit, whatever trickles in before the headers."""

    async def hang(_: Received, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with receiving(hang) as receiver:
        answer = await asyncio.wait_for(sender(call_seconds=0.5).send(call(receiver.url)), 20)
    assert (answer.outcome, answer.http_status) == (RETRYABLE, None)
    assert answer.reason in ("timeout", "no_answer")


async def test_a_closed_port_may_be_tried_again() -> None:
    """Nobody listens: that can change."""
    async with receiving() as receiver:
        url = receiver.url
    answer = await sender().send(call(url))
    assert (answer.outcome, answer.reason) == (RETRYABLE, "not_connected")


@pytest.mark.parametrize("address", ["127.0.0.79", "::1", "::ffff:127.0.0.79", "169.254.169.254"])
async def test_a_name_that_leads_inside_is_not_connected_to(address: str) -> None:
    """The address behind a name is checked before anything is sent to it: no connection is made."""
    async with receiving(host="127.0.0.79", port=8443) as receiver:
        answer = await sender(resolve=resolving([address])).send(call(NAMED))
        assert (answer.outcome, answer.reason) == (BLOCKED, "address_refused")
        mixed = await sender(resolve=resolving(["8.8.8.8", address])).send(call(NAMED))
        assert mixed.outcome is BLOCKED
        assert receiver.connections == 0


async def test_loopback_is_refused_outside_the_local_stack() -> None:
    """A stored URL of loopback is not called by a process that does not admit it."""
    async with receiving() as receiver:
        answer = await sender(allow_loopback=False).send(call(receiver.url))
        assert (answer.outcome, answer.reason) == (BLOCKED, "url_refused")
        assert receiver.connections == 0


async def test_rebinding_reaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the one connected to; a later answer is checked anew."""
    tried = connections(monkeypatch)
    webhooks = sender(resolve=resolving(["203.0.114.7"], ["169.254.169.254"]))
    first = await webhooks.send(call(NAMED))
    second = await webhooks.send(call(NAMED))
    assert (first.outcome, second.outcome) == (RETRYABLE, BLOCKED)
    assert tried == ["203.0.114.7"]


async def test_the_last_fence_stands_at_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when the first check let an address pass, the one at the socket refuses it."""
    tried = connections(monkeypatch)
    answers = iter([True, False])
    webhooks = sender(resolve=resolving(["10.0.0.1"]), admits=lambda _: next(answers))
    answer = await webhooks.send(call(NAMED))
    assert (answer.outcome, tried) == (BLOCKED, [])


async def test_a_name_that_is_unknown_may_be_tried_again() -> None:
    """A name server's failure is no refusal."""

    async def unknown(_: str, __: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    answer = await sender(resolve=unknown).send(call(NAMED))
    assert answer == replace(answer, outcome=RETRYABLE, reason="name_unknown", http_status=None)


async def test_tls_is_checked_against_the_name(tmp_path: Path) -> None:
    """The connection goes to the address, the certificate must be the name's; the next is tried."""
    server, client = certificates("hook.example", tmp_path)
    wrong, trusting_wrong = certificates("other.example", tmp_path)

    def named(tls: ssl.SSLContext) -> HttpWebhooks:
        addresses = ["127.0.0.78", "127.0.0.77"]  # nobody listens at the first
        return sender(resolve=resolving(addresses), admits=lambda _: True, tls=tls)

    async with receiving(host="127.0.0.77", port=8443, tls=server) as receiver:
        assert (await named(client).send(call(NAMED))).outcome is DELIVERED
        assert receiver.received[0].headers["host"] == "hook.example:8443"
    async with receiving(host="127.0.0.77", port=8443, tls=wrong) as receiver:
        answer = await named(trusting_wrong).send(call(NAMED))
        assert (answer.outcome, answer.reason) == (RETRYABLE, "tls_failed")
        assert receiver.received == []


async def test_no_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Neither secrets nor signatures are logged, at any level."""
    with caplog.at_level(logging.DEBUG):
        async with receiving(status(500)) as receiver:
            webhooks = sender(NEW, OLD)
            await webhooks.send(call(receiver.url))
            signature = receiver.received[0].headers["webhook-signature"]
    for secret in (NEW, OLD, NEW[6:], OLD[6:]):
        assert secret not in caplog.text
    ours = [record for record in caplog.records if record.name.startswith("empanel")]
    assert not [record for record in ours if signature in record.getMessage()]


def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every address that is connected to, and refuse the connection."""
    tried: list[str] = []

    async def connect(_: Any, host: str, *__: Any, **___: Any) -> httpcore.AsyncNetworkStream:
        tried.append(host)
        raise httpcore.ConnectError("not here")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    return tried


def certificates(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context with a certificate of its own, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / f"{name}.pem"
    path.write_bytes(private + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=pem.decode())
