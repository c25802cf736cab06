"""The bucket on Cloud Storage: create-only uploads, certain answers or none.

The client library is synchronous, so calls run in a small pool of threads. A cancelled call leaves
its thread running: an upload that has begun may still create the object afterwards. That is safe,
because nothing is ever replaced and the object's name says which answer it holds.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud.storage import Blob, Client
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from requests import RequestException
from requests.adapters import HTTPAdapter

from functions.adapters.values import check_object_size
from functions.core.errors import ObjectMissing, ObjectsUnavailable
from functions.core.ports import StoredObject

T = TypeVar("T")

_THREADS = 32
_CONNECT_SECONDS = 3.0
_ERRORS = (GoogleAPICallError, GoogleAuthError, DataCorruption, InvalidResponse, RequestException)


class GcsObjects:
    """An `Objects` on a Cloud Storage bucket; `STORAGE_EMULATOR_HOST` leads to an emulator.

    The client is made at the first call, in a thread, because looking for credentials may block.
    """

    def __init__(
        self,
        bucket: str,
        *,
        project: str | None = None,
        emulator_host: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._bucket = bucket
        self._project = project
        self._emulator_host = emulator_host or os.environ.get("STORAGE_EMULATOR_HOST")
        self._options = {"retry": None, "timeout": (_CONNECT_SECONDS, timeout_seconds)}
        self._pool: ThreadPoolExecutor | None = None
        self._client: Client | None = None
        self._making = threading.Lock()

    def uri(self, name: str) -> str:
        """Return the public name of an object, `gs://bucket/name`."""
        return f"gs://{self._bucket}/{name}"

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Create an object under `ifGenerationMatch=0`; None when one is there already.

        Raises:
            ObjectsUnavailable: no certain answer: the object may or may not have been created.
            ValueError: more than 8 MiB, which would not be one request.
        """
        check_object_size(name, data)
        return await self._run(partial(self._create, name, data, content_type, dict(metadata)))

    async def stat(self, name: str) -> StoredObject | None:
        """Return the object's description, or None when it certainly does not exist.

        Raises:
            ObjectsUnavailable: no certain answer; without permission to list, a missing object
                answers 403, which is not certain.
        """
        return await self._run(partial(self._stat, name))

    async def read(self, name: str, generation: int | None = None) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectMissing: the object, or that generation of it, does not exist.
            ObjectsUnavailable: no certain answer.
        """
        return await self._run(partial(self._read, name, generation))

    async def aclose(self) -> None:
        """Wait for the calls in their threads, then close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def _run(self, call: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="gcs")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except _ERRORS as exc:
            raise ObjectsUnavailable(f"Cloud Storage: {exc}") from exc

    def _create(
        self, name: str, data: bytes, content_type: str, metadata: dict[str, str]
    ) -> StoredObject | None:
        blob = self._blob(name)
        blob.metadata = metadata
        try:
            blob.upload_from_string(
                data, content_type=content_type, if_generation_match=0, **self._options
            )
        except PreconditionFailed:
            return None
        return _stored(blob)

    def _stat(self, name: str) -> StoredObject | None:
        blob = self._blob(name)
        try:
            blob.reload(**self._options)
        except NotFound as exc:
            if _is_about_bucket(exc):
                raise
            return None
        return _stored(blob)

    def _read(self, name: str, generation: int | None) -> bytes:
        try:
            data: bytes = self._blob(name, generation).download_as_bytes(**self._options)
        except NotFound as exc:
            if _is_about_bucket(exc):
                raise
            raise ObjectMissing(f"{self.uri(name)}#{generation or 'live'}") from exc
        return data

    def _blob(self, name: str, generation: int | None = None) -> Blob:
        with self._making:
            if self._client is None:
                self._client = self._made_client()
            return self._client.bucket(self._bucket).blob(name, generation=generation)

    def _made_client(self) -> Client:
        options: dict[str, Any] = {"project": self._project}
        if self._emulator_host:
            options = {
                "project": self._project or "emulator",
                "credentials": AnonymousCredentials(),  # type: ignore[no-untyped-call]
                "client_options": {"api_endpoint": _url(self._emulator_host)},
            }
        # Else each process asks for the bucket's metadata, in a thread of its own, for traces that
        # are off; while that fails, it asks again with every call.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        client = Client(**options)
        session = client._http  # the library offers no setting for the size of its pool
        session.mount("https://", HTTPAdapter(pool_maxsize=_THREADS))
        session.mount("http://", HTTPAdapter(pool_maxsize=_THREADS))
        return client


def _url(host: str) -> str:
    return host if "://" in host else f"http://{host}"


def _is_about_bucket(exc: NotFound) -> bool:
    """Whether the bucket is missing, which says nothing about an object; text of the JSON API."""
    return "bucket does not exist" in str(exc)


def _stored(blob: Blob) -> StoredObject:
    return StoredObject(
        name=blob.name,
        generation=int(blob.generation),
        size=int(blob.size),
        metadata=dict(blob.metadata or {}),
    )
