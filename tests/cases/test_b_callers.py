"""B09: who may call the machine targets: one audience, one account, proved, or nothing is read."""

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.auth import crypt, jwt
from starlette.requests import Request
from starlette.responses import Response

from functions.adapters.tokens import TokenVerifier
from functions.config import load, require_callers
from functions.core.errors import ConfigurationError
from functions.core.ports import Callers
from functions.web.application import Application
from functions.web.authentication import KeyRing
from functions.web.dead_letter_push import answer_dead_letter
from functions.web.notify_push import answer_notify
from functions.web.push import answer_evaluate, answer_reconcile
from infra.local.tokens import SigningKey, new_signing_key
from tests.faults.world import World, request

AUDIENCE, PUSHER = "https://svc/push", "pusher@p.iam"
TARGETS = (answer_evaluate, answer_notify, answer_reconcile, answer_dead_letter)
GOOD: Mapping[str, Any] = {
    "iss": "https://accounts.google.com",
    "aud": AUDIENCE,
    "email": PUSHER,
    "email_verified": True,
}


@cache
def key(name: str) -> SigningKey:
    """Return a key pair, made at its first use."""
    return new_signing_key()


def token(signed_by: str = "ours", *, seconds: int = 600, **changes: Any) -> str:
    """Return a signed token; a change to None leaves the claim out."""
    pair = key(signed_by)
    now = int(time.time())
    times = {"iat": min(now, now + seconds - 60), "exp": now + seconds}
    claims = {n: v for n, v in ({**GOOD, **times} | changes).items() if v is not None}
    signer = crypt.RSASigner.from_string(pair.private_pem, pair.key_id)  # type: ignore[no-untyped-call]
    made: bytes = jwt.encode(signer, claims)  # type: ignore[no-untyped-call]
    return made.decode()


@pytest.fixture
def verifier(tmp_path: Path) -> TokenVerifier:
    """A verifier that takes one account, and the tokens of one key."""
    key("ours").save_certificates(tmp_path / "certs.json")
    return TokenVerifier(
        audience=AUDIENCE, accounts=frozenset({PUSHER}), certs=tmp_path / "certs.json"
    )


async def called(
    world: World, callers: Callers | None, authorization: str | None, answer: Callable[..., Any]
) -> Response:
    """Call a target with a body that must not be read."""
    services = world.evaluator.services
    scope = request(b"", query="mode=repair").scope
    bearer = [] if authorization is None else [(b"authorization", authorization.encode())]
    scope["headers"] = [*bearer, (b"content-type", b"application/json")]

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body of a stranger was read")

    application = Application(services=services, keys=KeyRing(services.ledger), callers=callers)
    response: Response = await answer(application, Request(scope, receive))
    return response


@pytest.mark.parametrize("issuer", ["accounts.google.com", "https://accounts.google.com"])
async def test_b09_the_configured_caller_is_taken_under_both_spellings_of_the_issuer(
    verifier: TokenVerifier, issuer: str
) -> None:
    """Audience, account and signature right: the account is known, and the target works."""
    assert await verifier.verify(token(iss=issuer)) == PUSHER
    world = World()
    answer = await called(world, verifier, f"Bearer {token(iss=issuer)}", answer_reconcile)
    assert answer.status_code == 200


STRANGERS: dict[str, Callable[[], str | None]] = {
    "another audience": lambda: f"Bearer {token(aud='https://other')}",
    "our audience as a prefix": lambda: f"Bearer {token(aud=AUDIENCE + '/x')}",
    "no audience": lambda: f"Bearer {token(aud=None)}",
    "another project's account": lambda: f"Bearer {token(email='evil@q.iam')}",
    "an account in other letters": lambda: f"Bearer {token(email=PUSHER.upper())}",
    "an address not verified": lambda: f"Bearer {token(email_verified=False)}",
    "an address verified in words": lambda: f"Bearer {token(email_verified='true')}",
    "nothing said of verification": lambda: f"Bearer {token(email_verified=None)}",
    "no address": lambda: f"Bearer {token(email=None, email_verified=None)}",
    "another issuer": lambda: f"Bearer {token(iss='https://accounts.google.com.evil.example')}",
    "no issuer": lambda: f"Bearer {token(iss=None)}",
    "expired": lambda: f"Bearer {token(seconds=-120)}",
    "another key": lambda: f"Bearer {token('another')}",
    "cut short": lambda: f"Bearer {token().rpartition('.')[0]}.",
    "nonsense": lambda: "Bearer a.b.c",
    "another scheme": lambda: f"Basic {token()}",
    "an empty token": lambda: "Bearer ",
    "no header": lambda: None,
}


@pytest.mark.parametrize("forge", STRANGERS.values(), ids=STRANGERS.keys())
async def test_b09_nobody_else_is_taken_and_nothing_of_theirs_is_read(
    verifier: TokenVerifier, forge: Callable[[], str | None]
) -> None:
    """401 or 403 at every target before the body is read; no record is left."""
    world = World()
    for answer in TARGETS:
        response = await called(world, verifier, forge(), answer)
        assert response.status_code in (401, 403)
    assert world.ledger.documents() == {}


async def test_b09_without_configuration_every_caller_is_refused() -> None:
    """A process that was told no audience and no account takes nobody, a valid token included."""
    world = World()
    for answer in TARGETS:
        assert (await called(world, None, f"Bearer {token()}", answer)).status_code == 401
    assert world.ledger.documents() == {}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"EMPANEL_PUSH_AUDIENCE": AUDIENCE},
        {"EMPANEL_PUSH_ACCOUNTS": PUSHER},
        {"EMPANEL_PUSH_AUDIENCE": AUDIENCE, "EMPANEL_PUSH_ACCOUNTS": ","},
    ],
)
def test_b09_half_a_configuration_does_not_start(environ: dict[str, str]) -> None:
    """Audience alone would take any project's tokens, accounts alone those for other services."""
    with pytest.raises(ConfigurationError, match="EMPANEL_PUSH_A"):
        require_callers(load({"GOOGLE_CLOUD_PROJECT": "p", **environ}))
