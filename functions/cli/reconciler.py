"""The `reconcile` function, called as the scheduler calls it.

On a local stack its address and a token are in `.local/stack.json`. Elsewhere
`EMPANEL_RECONCILE_URL` and `EMPANEL_PUSH_AUDIENCE` name it, and the token is that of the Google
credentials at hand (a service account that the function accepts).
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from functions.cli.book_answers import AuditPass
from functions.cli.client import Received, receive
from functions.cli.exits import Misused, Unreachable
from functions.cli.target import CHECKOUT

AUDIT_SECONDS = 1800.0


class _Stack(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    functions: Mapping[str, str]
    push_token: str


class Reconciler:
    """A client of one `reconcile` function."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def audit(self) -> Received[AuditPass]:
        """Run an audit now; an incomplete one is an answer too, with status 503.

        Raises:
            Refused, Unreachable: no audit was run.
        """
        request = self._http.build_request("POST", "", params={"mode": "audit"})
        return await receive(self._http, request, AuditPass, also=(503,))


@asynccontextmanager
async def open_reconciler(
    environ: Mapping[str, str] = os.environ, checkout: Path | None = None
) -> AsyncIterator[Reconciler]:
    """A client of the function that the environment or the local stack names.

    Raises:
        Misused: the environment is not complete.
        Unreachable: there is no local stack, or no token can be had.
    """
    url, token = find_reconciler(environ, checkout or CHECKOUT)
    async with reconciler_at(url, token) as reconciler:
        yield reconciler


@asynccontextmanager
async def reconciler_at(url: str, token: str) -> AsyncIterator[Reconciler]:
    """A client of the function at an address, with a token that it accepts."""
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx.Timeout(AUDIT_SECONDS, connect=5.0)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=timeout, trust_env="127.0.0.1" not in url
    ) as http:
        yield Reconciler(http)


def find_reconciler(environ: Mapping[str, str], checkout: Path) -> tuple[str, str]:
    """Return the function's address and a token that it accepts.

    Raises:
        Misused, Unreachable: as `open_reconciler`.
    """
    url = environ.get("EMPANEL_RECONCILE_URL")
    if url:
        audience = environ.get("EMPANEL_PUSH_AUDIENCE")
        if not audience:
            raise Misused("EMPANEL_RECONCILE_URL needs EMPANEL_PUSH_AUDIENCE beside it.")
        return url, _google_token(audience)
    path = checkout / ".local" / "stack.json"
    try:
        stack = _Stack.model_validate_json(path.read_bytes())
        return stack.functions["reconcile"], stack.push_token
    except FileNotFoundError:
        raise Unreachable(
            "No local stack is running and EMPANEL_RECONCILE_URL is not set."
        ) from None
    except (OSError, ValidationError, KeyError) as exc:
        raise Unreachable(f"{path} cannot be read as a stack file: {exc}") from exc


def _google_token(audience: str) -> str:
    # Imported here: the commands that speak to the API need none of it.
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request
    from google.oauth2 import id_token

    try:
        return str(id_token.fetch_id_token(Request(), audience))  # type: ignore[no-untyped-call]
    except GoogleAuthError as exc:
        raise Unreachable(f"No Google identity token can be had: {exc}") from exc
