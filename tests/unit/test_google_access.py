"""The bucket's access tokens: fetched once for all who wait, kept while good, never shared in part.

google-auth itself is replaced: only when and how often it is asked is ours.
"""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import google.auth
import pytest
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, RefreshError

from functions.adapters.gcs import GcsObjects
from functions.adapters.gcs.access import GoogleAccess
from functions.core.errors import ObjectsUnavailable

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class Account(Credentials):
    """Credentials whose tokens are numbered and last as long as a test says."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fetched = 0
        self.lasts = timedelta(hours=1)
        self.down = False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def refresh(self, request: Any) -> None:
        assert self.may_answer.wait(10)
        if self.down:
            raise RefreshError("down")  # type: ignore[no-untyped-call]
        self.fetched += 1
        self.token = f"token-{self.fetched}"
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + self.lasts


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """The account of the application default credentials."""
    made = Account()
    monkeypatch.setattr(google.auth, "default", lambda scopes: (made, "project"))
    return made


async def test_a_token_is_fetched_once_for_all_who_wait(account: Account) -> None:
    """Fifty requests at the start are one fetch, and later ones none."""
    access = GoogleAccess(SCOPE)
    account.may_answer.clear()
    waiting = [asyncio.create_task(access.headers()) for _ in range(50)]
    await asyncio.wait(waiting, timeout=0.01)
    account.may_answer.set()
    found = await asyncio.gather(*waiting)
    assert found == [{"authorization": "Bearer token-1"}] * 50
    assert await access.headers() == found[0]
    assert account.fetched == 1


async def test_a_token_about_to_end_is_replaced(account: Account) -> None:
    """What is good for a minute only is not used while another can be had."""
    access = GoogleAccess(SCOPE)
    account.lasts = timedelta(minutes=1)
    await access.headers()
    account.lasts = timedelta(hours=1)
    assert await access.headers() == {"authorization": "Bearer token-2"}


async def test_a_token_serves_to_its_end_when_no_other_can_be_had(account: Account) -> None:
    """An outage of the token server stops nothing as long as the present token is good."""
    access = GoogleAccess(SCOPE)
    account.lasts = timedelta(minutes=1)
    await access.headers()
    account.down = True
    assert await access.headers() == {"authorization": "Bearer token-1"}


async def test_a_caller_that_is_cancelled_takes_nobody_with_it(account: Account) -> None:
    """Cancelling the one that fetches leaves those who wait for its token their own fetch."""
    access = GoogleAccess(SCOPE)
    account.may_answer.clear()
    first = asyncio.create_task(access.headers())
    others = [asyncio.create_task(access.headers()) for _ in range(3)]
    await asyncio.wait([first], timeout=0.01)
    first.cancel()
    await asyncio.wait([first])
    account.may_answer.set()
    found = await asyncio.gather(*others)
    assert first.cancelled()
    assert all(headers["authorization"].startswith("Bearer token-") for headers in found)


async def test_without_credentials_nothing_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing credentials are an outage of the bucket: never a missing object."""

    def missing(scopes: object) -> None:
        raise DefaultCredentialsError("none")  # type: ignore[no-untyped-call]

    monkeypatch.setattr(google.auth, "default", missing)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    objects = GcsObjects("bucket")
    with pytest.raises(ObjectsUnavailable, match="none"):
        await objects.stat("n")
    await objects.aclose()
