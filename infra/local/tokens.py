"""Identity tokens as Pub/Sub push and Cloud Scheduler send them, signed by a key of this stack.

The private key stays with the stack; functions get the public keys as a JSON file
(`EMPANEL_PUSH_CERTS`: key ID to PEM, the form that `google.auth.jwt.decode` takes).
"""

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

from infra.local.files import write_atomically

ISSUER = "https://accounts.google.com"
LIFETIME_SECONDS = 3600
RENEW_BEFORE_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """An RSA key pair in PEM, named by its key ID."""

    key_id: str
    private_pem: str
    public_pem: str

    def save_certificates(self, path: Path) -> None:
        """Write the public half as the functions read it."""
        write_atomically(path, json.dumps({self.key_id: self.public_pem}))


def new_signing_key() -> SigningKey:
    """A fresh key; 2048 bits, as Google's own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return SigningKey(
        key_id=secrets.token_hex(8),
        private_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
        public_pem=key.public_key()
        .public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        .decode(),
    )


def issue_token(
    key: SigningKey, *, audience: str, account: str, lifetime_seconds: int = LIFETIME_SECONDS
) -> str:
    """A token with the claims that Google documents for authenticated push.

    Source: "Authenticate push subscriptions", claims `aud`, `azp`, `email`, `email_verified`,
    `exp`, `iat`, `iss`, `sub`.
    """
    now_seconds = int(time.time())
    subject = str(int.from_bytes(account.encode()[:8].ljust(8, b"0")))
    claims = {
        "aud": audience,
        "azp": subject,
        "email": account,
        "email_verified": True,
        "exp": now_seconds + lifetime_seconds,
        "iat": now_seconds,
        "iss": ISSUER,
        "sub": subject,
    }
    signer = crypt.RSASigner.from_string(key.private_pem, key.key_id)  # type: ignore[no-untyped-call]
    token: bytes = jwt.encode(signer, claims)  # type: ignore[no-untyped-call]
    return token.decode()


class TokenSource:
    """The current token of one account for one audience, issued again before it runs out."""

    def __init__(self, key: SigningKey, *, audience: str, account: str) -> None:
        self._key = key
        self._audience = audience
        self._account = account
        self._token = ""
        self._renew_at = 0.0

    def authorization(self) -> str:
        """The value of the `Authorization` header."""
        if time.time() >= self._renew_at:
            self._token = issue_token(self._key, audience=self._audience, account=self._account)
            self._renew_at = time.time() + LIFETIME_SECONDS - RENEW_BEFORE_SECONDS
        return f"Bearer {self._token}"
