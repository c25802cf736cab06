"""A running stack with a stub provider of its own, and a test's hands and eyes on both."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from infra.local.emulators import EmulatorHosts
from infra.local.options import StackOptions
from infra.local.stack import Stack
from tests.e2e.records import BucketReader, LedgerReader
from tests.e2e.waiting import until
from tests.promises import assert_promised
from tests.stub import StubProvider

Json = Any

SETTINGS = {"EMPANEL_LEASE_SECONDS": "5", "EMPANEL_REPAIR_SECONDS": "2"}
TERMINAL_STATES = {"succeeded", "failed", "expired", "canceled"}


class Site:
    """One stack and its provider; `label` in a question is the name the stub counts it under."""

    def __init__(self, stack: Stack, stub: StubProvider, client: httpx.AsyncClient) -> None:
        info = stack.info
        assert info.firestore is not None
        assert info.storage is not None
        self.stack = stack
        self.stub = stub
        self.client = client
        self.ledger = LedgerReader(client, info.firestore, info.project)
        self.bucket = BucketReader(client, info.storage, info.bucket)

    async def call(
        self, method: str, path: str, *, api_key: str | None = None, **options: Any
    ) -> httpx.Response:
        """Call the API with the stack's key, or another one; the answer must be as promised."""
        key = self.stack.info.api_key if api_key is None else api_key
        headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
        url = f"{self.stack.info.api}{path}"
        answer = await self.client.request(method, url, headers=headers, **options)
        assert_promised(
            method, answer.request.url.path, answer.status_code, answer.headers, answer.content
        )
        return answer

    async def submit(self, body: Json, key: str | None = None) -> httpx.Response:
        """Submit a job, with an idempotency key when one is given."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.call("POST", "/v1/jobs", json=body, headers=headers)

    async def accepted(self, body: Json, key: str | None = None) -> str:
        """Submit a job that must be new; its ID."""
        response = await self.submit(body, key)
        assert response.status_code == httpx.codes.ACCEPTED, response.text
        return str(response.json()["id"])

    async def read(self, path: str) -> Json:
        """The JSON of a successful GET."""
        response = await self.call("GET", path)
        assert response.status_code == httpx.codes.OK, response.text
        return response.json()

    async def job(self, job: str) -> Json:
        """The job as the API shows it."""
        return await self.read(f"/v1/jobs/{job}")

    async def attempts(self, job: str) -> list[Json]:
        """The job's attempts as the API shows them."""
        found: list[Json] = (await self.read(f"/v1/jobs/{job}/attempts"))["attempts"]
        return found

    async def ended(self, *jobs: str, timeout_seconds: float = 60.0) -> list[Json]:
        """Wait until every job is terminal; the jobs as they are then."""
        return [
            await until(
                lambda job=job: self.job(job),  # type: ignore[misc]
                lambda seen: seen["state"] in TERMINAL_STATES,
                what=f"{job} ends",
                timeout_seconds=timeout_seconds,
            )
            for job in jobs
        ]

    async def requests(self, label: str) -> int:
        """How many requests the provider got whose label begins like this."""
        labels = (await self.stub.stats(requests=False)).labels
        return sum(counts.requests for name, counts in labels.items() if name.startswith(label))

    async def push(self, body: bytes, token: str | None) -> httpx.Response:
        """POST a body to the evaluate function as Pub/Sub would."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self.stack.info.functions['evaluate']}/"
        return await self.client.post(url, content=body, headers=headers)


@asynccontextmanager
async def open_site(
    hosts: EmulatorHosts | None,
    folder: Path,
    *,
    latency_seconds: float = 0.05,
    jitter: float = 0.2,
    evaluate_processes: int = 1,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Site]:
    """A stack in a project of its own, short-timed, for the length of the block.

    Without `hosts` it has emulators of its own as well, for tests that stop them.
    """
    async with StubProvider(latency_seconds=latency_seconds, jitter=jitter, seed=1) as stub:
        options = StackOptions(
            folder=folder / ".local",
            project=f"e2e-{secrets.token_hex(4)}",
            environment={**SETTINGS, **stub.environment, **(environment or {})},
            model=False,
            embedded=False,
            emulators=hosts,
            evaluate_processes=evaluate_processes,
        )
        async with (
            Stack(options) as stack,
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
        ):
            yield Site(stack, stub, client)


def panel(label: str, *models: str, **changes: Json) -> Json:
    """A job body: one question under a label of its own, asked to each model."""
    return {
        "facts": {"stub-key": label},
        "rubric": {"instructions": "Score it."},
        "seats": [{"provider": "openai", "model": model} for model in models or ("a", "b")],
        **changes,
    }


def dumped(body: Json) -> bytes:
    """The bytes of a body."""
    return json.dumps(body).encode()
