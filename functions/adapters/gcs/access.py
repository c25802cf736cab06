"""Access tokens for Google's JSON APIs, from the application default credentials.

google-auth finds the credentials and fetches the tokens. It is synchronous, so it does that in a
thread, and only then: a token that is still good costs no thread and no wait.
"""

import asyncio

import google.auth
from google.auth.credentials import Credentials, TokenState
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request


class GoogleAccess:
    """The `Authorization` of one process; nothing is looked for before the first call."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._credentials: Credentials | None = None
        self._fetching = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers that authorize a request now.

        Raises:
            google.auth.exceptions.GoogleAuthError: there are no credentials, or no token for them.
        """
        if self._state() is not TokenState.FRESH:
            async with self._fetching:
                if self._state() is not TokenState.FRESH:  # else the one before has fetched it
                    await self._fetch()
        found: dict[str, str] = {}
        if self._credentials is not None:
            self._credentials.apply(found)  # type: ignore[no-untyped-call]
        return found

    def _state(self) -> TokenState:
        return TokenState.INVALID if self._credentials is None else self._credentials.token_state

    async def _fetch(self) -> None:
        """Get a token; without one, the present one serves as long as it lasts.

        A caller that is cancelled leaves its thread running; the next one asks again.
        """
        try:
            await asyncio.to_thread(self._refresh)
        except GoogleAuthError:
            if self._state() is TokenState.INVALID:
                raise

    def _refresh(self) -> None:
        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[self._scope])
        self._credentials.refresh(Request())  # type: ignore[no-untyped-call]
