"""Tokens as Cloud Run hands them on once its own guard has checked them: without a signature."""

import json
from pathlib import Path

import pytest

from functions import config
from functions.adapters.tokens import REMOVED_SIGNATURE, TokenVerifier
from functions.core.errors import CallerRefused, CallersUnknown, ConfigurationError
from infra.local.tokens import SigningKey, issue_token, new_signing_key

AUDIENCE = "https://empanel-evaluate.p.internal"
ACCOUNT = "empanel-push@p.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return new_signing_key()


def verifier(tmp_path: Path, *, signature_checked: bool = True) -> TokenVerifier:
    certs = tmp_path / "certs.json"
    certs.write_text(json.dumps({}))
    return TokenVerifier(
        audience=AUDIENCE,
        accounts=frozenset({ACCOUNT}),
        certs=certs,
        signature_checked=signature_checked,
    )


def handed_on(key: SigningKey, audience: str = AUDIENCE, account: str = ACCOUNT, **how: int) -> str:
    token = issue_token(key, audience=audience, account=account, **how)
    return token.rpartition(".")[0] + REMOVED_SIGNATURE


async def test_a_token_that_cloud_run_has_checked_is_taken(key: SigningKey, tmp_path: Path) -> None:
    """Behind the guard the claims decide; no certificate is needed."""
    assert await verifier(tmp_path).verify(handed_on(key)) == ACCOUNT


@pytest.mark.parametrize(
    ("audience", "account", "lifetime"),
    [
        ("https://empanel-notify.p.internal", ACCOUNT, 60),
        (AUDIENCE, "evil@q.iam.gserviceaccount.com", 60),
        (AUDIENCE, ACCOUNT, -60),
    ],
)
async def test_its_claims_are_checked_all_the_same(
    key: SigningKey, tmp_path: Path, audience: str, account: str, lifetime: int
) -> None:
    """Another audience, another account or an expired token is refused: B09."""
    token = handed_on(key, audience, account, lifetime_seconds=lifetime)
    with pytest.raises(CallerRefused):
        await verifier(tmp_path).verify(token)


async def test_nobody_else_takes_a_token_without_signature(key: SigningKey, tmp_path: Path) -> None:
    """Without Cloud Run's guard, anybody could write those words: nothing vouches for the token."""
    with pytest.raises((CallerRefused, CallersUnknown)):
        await verifier(tmp_path, signature_checked=False).verify(handed_on(key))


async def test_a_wrong_signature_is_not_a_removed_one(key: SigningKey, tmp_path: Path) -> None:
    """Only the words themselves stand for a checked signature."""
    token = handed_on(key).removesuffix("GOOGLE") + "OTHERS"
    with pytest.raises((CallerRefused, CallersUnknown)):
        await verifier(tmp_path).verify(token)


async def test_an_unreadable_token_is_refused(tmp_path: Path) -> None:
    """Whatever stands before those words."""
    with pytest.raises(CallerRefused):
        await verifier(tmp_path).verify("x.y" + REMOVED_SIGNATURE)


def test_only_cloud_run_can_be_told_so() -> None:
    """The setting stops the start anywhere else, and so does a word that is neither."""
    told = {"GOOGLE_CLOUD_PROJECT": "p", "EMPANEL_PUSH_SIGNATURE": "platform"}
    assert config.load(told | {"K_SERVICE": "empanel-evaluate"}).platform_checks_signatures
    with pytest.raises(ConfigurationError, match="Cloud Run only"):
        config.load(told)
    with pytest.raises(ConfigurationError, match="google or platform"):
        config.load(told | {"EMPANEL_PUSH_SIGNATURE": "none"})
    assert not config.load({"GOOGLE_CLOUD_PROJECT": "p"}).platform_checks_signatures
