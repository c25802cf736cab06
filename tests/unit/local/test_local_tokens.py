"""The stack's identity tokens, checked the way a function checks Google's."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from google.auth import jwt

from infra.local.tokens import SigningKey, TokenSource, issue_token, new_signing_key

AUDIENCE = "https://empanel.local/push"
ACCOUNT = "push@project.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return new_signing_key()


def _decode(token: str, certificates: Path) -> dict[str, Any]:
    certs = json.loads(certificates.read_text())
    claims: dict[str, Any] = jwt.decode(token, certs=certs, audience=AUDIENCE)  # type: ignore[no-untyped-call]
    return claims


def test_a_token_verifies_with_the_published_certificates(key: SigningKey, tmp_path: Path) -> None:
    """A function that reads the certificates file can verify a token and sees Google's claims."""
    key.save_certificates(tmp_path / "certs.json")
    claims = _decode(issue_token(key, audience=AUDIENCE, account=ACCOUNT), tmp_path / "certs.json")
    assert set(claims) == {"aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub"}
    assert claims["iss"] == "https://accounts.google.com"
    assert claims["email"] == ACCOUNT
    assert claims["email_verified"] is True
    assert claims["exp"] - claims["iat"] == 3600


def test_a_token_of_another_stack_is_refused(key: SigningKey, tmp_path: Path) -> None:
    """Only the key whose public half was published can sign for this stack."""
    new_signing_key().save_certificates(tmp_path / "certs.json")
    with pytest.raises(ValueError, match="Certificate for key id"):
        _decode(issue_token(key, audience=AUDIENCE, account=ACCOUNT), tmp_path / "certs.json")


def test_the_private_half_is_not_in_the_certificates(key: SigningKey, tmp_path: Path) -> None:
    """The file for the functions holds public keys only, and only its owner can read it."""
    path = tmp_path / "certs.json"
    key.save_certificates(path)
    assert "PRIVATE" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_is_reused_while_it_is_fresh(key: SigningKey) -> None:
    """Signing happens about once an hour, not once per message."""
    source = TokenSource(key, audience=AUDIENCE, account=ACCOUNT)
    assert source.authorization() == source.authorization()
    assert source.authorization().startswith("Bearer ")
