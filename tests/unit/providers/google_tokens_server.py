"""A service account's key file, and a token endpoint on the loopback that checks its signature."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from tests.unit.providers.loopback import response, serving

EMAIL = "panel@project-a.iam.gserviceaccount.com"
AUDIENCE = "https://oauth2.googleapis.com/token"  # wherever the endpoint is
JSON = "content-type: application/json\r\n"

_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
_PUBLIC = _KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)

Reply = Callable[[dict[str, str]], bytes]


def token_of(number: int) -> str:
    """Return the token that the endpoint hands out in answer to a request."""
    return f"ya29.token-{number:04}-" + "Zx9" * 40


@dataclass
class TokenEndpoint:
    """The running endpoint: the forms it was sent; `reply` answers, while `open` is set."""

    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    seconds: int = 3600
    reply: Reply | None = None

    async def asked(self, times: int) -> None:
        """Wait until so many requests have come."""
        while len(self.forms) < times:
            self.arrived.clear()
            await self.arrived.wait()

    def claims(self, number: int = -1) -> dict[str, Any]:
        """Return the verified claims of an assertion that was sent."""
        assertion = self.forms[number]["assertion"]
        claims: dict[str, Any] = jwt.decode(  # type: ignore[no-untyped-call]
            assertion, certs=_PUBLIC, audience=AUDIENCE
        )
        return claims


@asynccontextmanager
async def token_endpoint() -> AsyncIterator[TokenEndpoint]:
    """Serve tokens; an assertion that the account's key did not sign is refused."""
    endpoint = TokenEndpoint()
    endpoint.open.set()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = server.requests[-1].partition(b"\r\n\r\n")[2].decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        endpoint.forms.append(form)
        endpoint.arrived.set()
        await endpoint.open.wait()
        writer.write(endpoint.reply(form) if endpoint.reply else _granted(endpoint))
        await writer.drain()

    async with serving(behave) as server:
        endpoint.url = server.url.replace("/v1", "/token")
        yield endpoint


def refusal(form: dict[str, str]) -> bytes:
    """Refuse, and repeat the secret that was sent."""
    said = {"error": "invalid_grant", "error_description": f"bad: {form['assertion']}"}
    return response(json.dumps(said).encode(), "400 Bad Request", JSON)


def key_file(folder: Path, token_url: str) -> Path:
    """Write a service account's key file that names this token endpoint."""
    pem = _KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "project-a",
        "private_key_id": "key-1",
        "private_key": pem.decode(),
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": token_url,
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    return path


def _granted(endpoint: TokenEndpoint) -> bytes:
    endpoint.claims()
    granted = {
        "access_token": token_of(len(endpoint.forms)),
        "expires_in": endpoint.seconds,
        "token_type": "Bearer",
    }
    return response(json.dumps(granted).encode(), headers=JSON)
