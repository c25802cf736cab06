"""Who is let in: keys by their records, accounts by their tokens, both in `Authorization` alone."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from functions.adapters.tokens import TokenVerifier
from functions.bootstrap import assemble
from functions.core.access import key_hash
from functions.core.documents import api_key_path
from functions.core.ports import Update
from functions.tenant_tables import Account
from functions.web import authentication
from functions.web.application import Application
from functions.web.authentication import Accounts
from tests.cases.scenes import strike_next
from tests.cases.test_b_callers import AUDIENCE, PUSHER, key, token
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import TENANT, World
from tests.unit.web.asking import UNREAD, api_over, ask, give_key

KEY = "ek_known"
API_AUDIENCE = "https://api.example"
ANN = "ann@example.com"


@pytest.fixture
def clock_stands(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The process's own clock, by which the ring forgets keys: moved by hand."""
    moment = [1000.0]
    monkeypatch.setattr("functions.web.authentication.time.monotonic", lambda: moment[0])
    return moment


def accounts(folder: Path, **changes: Any) -> Accounts:
    """Accounts whose tokens are signed by the key `ours`, for the API's audience."""
    key("ours").save_certificates(folder / "certs.json")
    known = {ANN: Account(tenant="tenant-a", role="operator"), **changes}
    verifier = TokenVerifier(
        audience=API_AUDIENCE, accounts=frozenset(known), certs=folder / "certs.json"
    )
    return Accounts(verifier=verifier, known=known)


async def noted(application: Application) -> None:
    """Wait until nothing is being written beside the requests."""
    await asyncio.gather(*application.keys._noting)


def record(world: World, text: str = KEY) -> dict[str, Any]:
    return world.ledger.stored()[api_key_path(key_hash(text))]


async def change(world: World, text: str = KEY, **fields: Any) -> None:
    await world.ledger.commit(Update(path=api_key_path(key_hash(text)), fields=fields))


async def test_a_known_key_is_let_in_and_nobody_else_is() -> None:
    """No key, an unknown one, another scheme and a key of absurd length are all 401."""
    world = World()
    api = api_over(world)
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
    basic = {"authorization": f"Basic {KEY}"}
    answers = [
        await ask(api, "GET", "/v1/jobs"),
        await ask(api, "GET", "/v1/jobs", key="ek_unknown"),
        await ask(api, "GET", "/v1/jobs", headers=basic),
        await ask(api, "GET", "/v1/jobs", key="k" * 5000),
    ]
    assert [answer.status for answer in answers] == [401] * 4
    assert all(answer.headers["www-authenticate"].startswith("Bearer") for answer in answers)


async def test_a_revoked_key_is_forgotten_within_ten_seconds(clock_stands: list[float]) -> None:
    """A warm process takes it for the time it remembers a key, and then never again."""
    world = World()
    api = api_over(world)
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
    await noted(api)
    await change(world, revoked_at=world.clock.now())
    clock_stands[0] += authentication.CACHE_SECONDS + 0.1
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 401
    assert (await ask(api_over(world), "GET", "/v1/jobs", key=KEY)).status == 401


async def test_a_key_ends_when_it_expires(clock_stands: list[float]) -> None:
    """Not even a process that remembers the key takes it past that moment."""
    world = World()
    api = api_over(world)
    expires_at = world.clock.now() + timedelta(seconds=4)
    await give_key(world, KEY, tenant=TENANT, role="submitter", expires_at=expires_at)
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
    clock_stands[0] += 4.1
    world.clock.advance(4.1)
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 401


async def test_a_role_that_nobody_knows_may_do_nothing() -> None:
    """A record with a role of a later version opens nothing."""
    world = World()
    await give_key(world, KEY, tenant=TENANT, role="auditor")
    assert (await ask(api_over(world), "GET", "/v1/jobs", key=KEY)).status == 403


async def test_use_is_noted_once_an_hour(clock_stands: list[float]) -> None:
    """The first use and the first one after an hour are written down, none in between."""
    world = World()
    api = api_over(world)
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    seen = []
    for seconds in (0, 60, 3500, 100):
        world.clock.advance(seconds)
        clock_stands[0] += seconds
        assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
        await noted(api)
        seen.append(record(world)["last_used_at"])
    assert seen[0] == seen[1] == seen[2] < seen[3]


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
async def test_a_use_that_cannot_be_noted_hinders_nobody(moment: Moment) -> None:
    """The request is answered all the same; the next process notes it."""
    world = World()
    api = api_over(world)
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    strike_next(world, "api: commit update api_keys", Strike(fate=Fate.FAIL, moment=moment))
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
    await noted(api)
    assert "api: commit update api_keys" in world.plan.calls


async def test_a_note_of_use_cannot_undo_a_revocation() -> None:
    """Revoked between the look and the note: the key stays revoked."""
    world = World()
    api = api_over(world)
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    assert (await ask(api, "GET", "/v1/jobs", key=KEY)).status == 200
    await change(world, revoked_at=world.clock.now())
    await noted(api)
    assert record(world)["revoked_at"] is not None


@pytest.mark.parametrize("issuer", ["accounts.google.com", "https://accounts.google.com"])
async def test_a_google_account_acts_for_its_tenant(tmp_path: Path, issuer: str) -> None:
    """A token for the API's audience opens the tenant that the account is configured for."""
    world = World()
    api = api_over(world, accounts=accounts(tmp_path))
    sent = token(aud=API_AUDIENCE, email=ANN, iss=issuer)
    assert (await ask(api, "GET", "/v1/jobs", key=sent)).status == 200
    assert (await ask(api, "DELETE", "/v1/jobs/job_x", key=sent)).status == 404  # an operator


async def test_an_account_has_its_role_and_no_more(tmp_path: Path) -> None:
    """A submitter's account is refused what needs an operator."""
    known = {"bob@example.com": Account(tenant="tenant-a", role="submitter")}
    api = api_over(World(), accounts=accounts(tmp_path, **known))
    sent = token(aud=API_AUDIENCE, email="bob@example.com")
    assert (await ask(api, "GET", "/v1/jobs", key=sent)).status == 200
    assert (await ask(api, "DELETE", "/v1/jobs/job_x", key=sent)).status == 403


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": AUDIENCE},
        {"aud": AUDIENCE, "email": PUSHER},
        {"aud": None},
        {"email": PUSHER},
        {"email": ANN.upper()},
        {"email_verified": False},
        {"email_verified": None},
        {"iss": "https://accounts.example.com"},
        {"seconds": -120},
        {"signed_by": "another"},
    ],
    ids=str,
)
async def test_no_other_token_is_a_credential(tmp_path: Path, claims: dict[str, Any]) -> None:
    """A push target's token above all: it is for another audience and another account."""
    api = api_over(World(), accounts=accounts(tmp_path))
    sent = token(**{"aud": API_AUDIENCE, "email": ANN, **claims})
    answer = await ask(api, "GET", "/v1/jobs", key=sent)
    assert answer.status == 401
    assert sent.split(".")[2] not in str(answer.body)


async def test_a_token_without_signature_is_no_credential(tmp_path: Path) -> None:
    """What Cloud Run leaves of a token it has checked proves nothing at a service open to all."""
    api = api_over(World(), accounts=accounts(tmp_path))
    head, claims, _ = token(aud=API_AUDIENCE, email=ANN).split(".")
    stripped = f"{head}.{claims}.SIGNATURE_REMOVED_BY_GOOGLE"
    assert (await ask(api, "GET", "/v1/jobs", key=stripped)).status == 401


async def test_without_accounts_no_token_opens_anything() -> None:
    """Off unless configured: a token is then looked at as an unknown key."""
    sent = token(aud=API_AUDIENCE, email=ANN)
    assert (await ask(api_over(World()), "GET", "/v1/jobs", key=sent)).status == 401


async def test_the_platforms_own_header_is_no_credential(tmp_path: Path) -> None:
    """Cloud Run's token travels in X-Serverless-Authorization; ours stays in Authorization."""
    world = World()
    api = api_over(world, accounts=accounts(tmp_path))
    await give_key(world, KEY, tenant=TENANT, role="submitter")
    platform = {"x-serverless-authorization": f"Bearer {token(aud=API_AUDIENCE, email=ANN)}"}
    assert (await ask(api, "GET", "/v1/jobs", headers=platform)).status == 401
    key_there = {"x-serverless-authorization": f"Bearer {KEY}"}
    assert (await ask(api, "GET", "/v1/jobs", headers=key_there)).status == 401
    both = await ask(api, "DELETE", "/v1/jobs/job_x", key=KEY, headers=platform)
    assert both.status == 403  # the submitter's key decides, not the operator's token beside it


async def test_an_account_is_known_as_soon_as_certificates_are(tmp_path: Path) -> None:
    """While no token can be checked the answer is 503: neither let in nor refused."""
    (tmp_path / "none.json").write_text("{}")
    verifier = TokenVerifier(
        audience=API_AUDIENCE, accounts=frozenset({ANN}), certs=tmp_path / "none.json"
    )
    known = {ANN: Account(tenant="tenant-a", role="operator")}
    api = api_over(World(), accounts=Accounts(verifier=verifier, known=known))
    sent = token(aud=API_AUDIENCE, email=ANN)
    assert (await ask(api, "GET", "/v1/jobs", key=sent)).status == 503


async def test_a_key_has_its_requests_a_minute() -> None:
    """One more is 429 with the time to wait, before its body is read; other keys go on."""
    world = World()
    api = api_over(world, requests_per_minute=3)
    for name in (KEY, "ek_other"):
        await give_key(world, name, tenant=TENANT, role="submitter")
    statuses = [(await ask(api, "GET", "/v1/jobs", key=KEY)).status for _ in range(3)]
    late = await ask(api, "POST", "/v1/jobs", key=KEY, body=UNREAD)
    assert (statuses, late.status) == ([200] * 3, 429)
    assert 1 <= int(late.headers["retry-after"]) <= 20
    assert (await ask(api, "GET", "/v1/jobs", key="ek_other")).status == 200


async def test_a_process_is_wired_as_it_is_configured(tmp_path: Path) -> None:
    """Accounts, their audience, the rate and the places come from the settings."""
    certificates = accounts(tmp_path)
    world = World(
        api_audience=API_AUDIENCE,
        api_accounts=certificates.known,
        push_certs=tmp_path / "certs.json",
        key_requests_per_minute=1,
        waits=2,
        tenant_waits=1,
    )
    api = assemble(world.api.services)
    sent = token(aud=API_AUDIENCE, email=ANN)
    assert (await ask(api, "GET", "/v1/jobs", key=sent)).status == 200
    assert (await ask(api, "GET", "/v1/jobs", key=sent)).status == 429
    assert [api.waits.take("a") is None for _ in range(2)] == [False, True]
    off = assemble(World(key_requests_per_minute=1).api.services)
    assert (await ask(off, "GET", "/v1/jobs", key=sent)).status == 401
