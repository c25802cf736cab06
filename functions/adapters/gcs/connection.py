"""The connection to Cloud Storage: requests of its JSON API, sent in the event loop.

In the loop, because an answer that was paid for is then on its way into the bucket at once, and not
when a thread gets its turn. Nothing here repeats a request, except that aiohttp sends a GET or
DELETE again when its kept connection had been closed.
"""

import asyncio
import os
from collections.abc import Mapping
from io import BytesIO
from typing import NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from google.auth.exceptions import GoogleAuthError
from yarl import URL

from functions.adapters.gcs.access import GoogleAccess
from functions.core.errors import ObjectsUnavailable

GOOGLE_URL = "https://storage.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
CONNECT_SECONDS = 3.0

Query = Mapping[str, str | int]
_ERRORS = (aiohttp.ClientError, GoogleAuthError, OSError)  # a TimeoutError is an OSError


class Answer(NamedTuple):
    """The status and the whole body of an answer."""

    status: int
    body: bytes


class Connection:
    """Sends requests about one bucket; `STORAGE_EMULATOR_HOST` leads to an emulator.

    The connections are made at the first call, for the running event loop.
    """

    def __init__(self, bucket: str, emulator_host: str | None, timeout_seconds: float) -> None:
        emulator = emulator_host or os.environ.get("STORAGE_EMULATOR_HOST")
        self._server = _url(emulator) if emulator else GOOGLE_URL
        self._path = f"/storage/v1/b/{quote(bucket, safe='')}/o"
        self._access = None if emulator else GoogleAccess(SCOPE)
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def about(self, method: str, name: str, query: Query) -> Answer:
        """Ask about one object.

        Raises:
            ObjectsUnavailable: no answer within the time.
        """
        return await self._ask(method, f"{self._path}/{quote(name, safe='')}", query)

    async def list(self, query: Query) -> Answer:
        """Ask for a list of objects.

        Raises:
            ObjectsUnavailable: no answer within the time.
        """
        return await self._ask("GET", self._path, query)

    async def upload(self, body: bytes, content_type: str, query: Query) -> Answer:
        """Send an object.

        Raises:
            ObjectsUnavailable: no answer within the time.
        """
        headers = {"Content-Type": content_type}
        return await self._ask("POST", f"/upload{self._path}", query, body, headers)

    async def aclose(self) -> None:
        """Close the connections; a later call would open new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        url = URL(f"{self._server}{path}?{urlencode(query)}", encoded=True)
        # A stream, because aiohttp warns of more than 1 MiB of plain bytes.
        stream = None if body is None else BytesIO(body)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                allowed = {} if self._access is None else await self._access.headers()
                async with self._opened().request(
                    method, url, data=stream, headers={**(headers or {}), **allowed}
                ) as response:
                    return Answer(response.status, await response.read())
        except _ERRORS as exc:
            reason = str(exc) or type(exc).__name__
            raise ObjectsUnavailable(f"Cloud Storage: {reason}") from exc

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._session, self._loop = _new_session(), loop
        return self._session


def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        # No limit: of many answers at one moment none must wait for another's upload.
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        headers={"User-Agent": "empanel"},
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _url(host: str) -> str:
    return (host if "://" in host else f"http://{host}").rstrip("/")
