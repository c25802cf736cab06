"""The deployment's own interfaces: the API as a caller has it, `reconcile` as the scheduler."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import httpx

from functions.core.errors import EmpanelError
from functions.core.ports import Message
from functions.drill.deployment import Deployment

TIMEOUT = httpx.Timeout(120.0, connect=5.0)  # a repair stays for most of its minute
AUDIT_SECONDS = 1800.0
REPAIR_AGAIN_SECONDS = 1.0
LOOPBACK = "127.0.0.1"
PAGE = 200


class InterfaceFailed(EmpanelError):
    """An interface gave no answer, or another one than a drill can go on with."""


class Interface:
    """A client of one deployment. Every method raises `InterfaceFailed`."""

    def __init__(self, deployment: Deployment, http: httpx.AsyncClient) -> None:
        self._deployment = deployment
        self._http = http

    async def submit(self, body: dict[str, Any], key: str) -> str:
        """Submit a job that must be new; return its ID."""
        response = await self.call("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key})
        return str(_body(response, httpx.codes.ACCEPTED)["id"])

    async def read(self, path: str, **params: Any) -> dict[str, Any]:
        """Return the JSON of a successful GET."""
        return _body(await self.call("GET", path, params=params), httpx.codes.OK)

    async def outcomes(self, job: str) -> list[str]:
        """Return how each attempt of a job ended."""
        listed = await self.read(f"/v1/jobs/{job}/attempts")
        return [str(attempt["outcome"]) for attempt in listed["attempts"]]

    async def incidents(self, since: datetime) -> list[dict[str, Any]]:
        """Return the incidents opened since, newest first."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = await self.read("/v1/incidents", limit=PAGE, **more)
            new = [
                incident
                for incident in page["incidents"]
                if datetime.fromisoformat(incident["opened_at"]) >= since
            ]
            found += new
            cursor = page["next_cursor"]
            if cursor is None or len(new) < len(page["incidents"]):
                return found

    async def act(self, decision: str, action: str, holder: str) -> dict[str, Any]:
        """Claim an action of a decision for a consumer; return who holds it."""
        path = f"/v1/decisions/{decision}/actions/{action}"
        response = await self.call("PUT", path, json={"holder": holder})
        return _body(response, httpx.codes.OK, httpx.codes.CREATED)

    async def audit(self) -> dict[str, Any]:
        """Run an audit; an incomplete one is an answer too."""
        response = await self._reconcile("audit", AUDIT_SECONDS)
        return _body(response, httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE)

    async def push(self, message: Message) -> int:
        """Push a message to the local stack's `evaluate` as Pub/Sub would; its status."""
        if self._deployment.evaluate is None:
            raise InterfaceFailed("only a local stack takes pushes from a drill")
        data = base64.b64encode(message.data).decode()
        envelope = {"message": {"data": data, "attributes": dict(message.attributes)}}
        headers = {"Authorization": f"Bearer {self._deployment.reconcile_token}"}
        url = f"{self._deployment.evaluate.rstrip('/')}/"
        return (await self._send("POST", url, json=envelope, headers=headers)).status_code

    @asynccontextmanager
    async def repairing(self) -> AsyncIterator[None]:
        """Repair for the length of the block, whatever the scheduler's rhythm."""
        task = asyncio.create_task(self._repair_again_and_again(), name="repair")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _repair_again_and_again(self) -> None:
        while True:
            with suppress(InterfaceFailed):  # the scheduler goes on as well
                await self._reconcile("repair", None)
            await asyncio.sleep(REPAIR_AGAIN_SECONDS)

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Call the API; the answer, whatever it says."""
        key = {"Authorization": f"Bearer {self._deployment.api_key}"}
        headers = {**key, **options.pop("headers", {})}
        url = f"{self._deployment.api.rstrip('/')}{path}"
        return await self._send(method, url, headers=headers, **options)

    async def _reconcile(self, mode: str, seconds: float | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._deployment.reconcile_token}"}
        url = f"{self._deployment.reconcile.rstrip('/')}/"
        timeout = TIMEOUT if seconds is None else httpx.Timeout(seconds, connect=5.0)
        return await self._send(
            "POST", url, params={"mode": mode}, headers=headers, timeout=timeout
        )

    async def _send(self, method: str, url: str, **options: Any) -> httpx.Response:
        try:
            return await self._http.request(method, url, **options)
        except httpx.HTTPError as exc:
            reason = str(exc) or type(exc).__name__
            raise InterfaceFailed(f"{method} {url}: {reason}") from exc


@asynccontextmanager
async def open_interface(deployment: Deployment) -> AsyncIterator[Interface]:
    """A client of a deployment, closed at the end."""
    # A proxy from the environment could not reach a stack on this machine's loopback.
    trust_env = LOOPBACK not in deployment.api
    async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=trust_env) as http:
        yield Interface(deployment, http)


def _body(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    if response.status_code not in statuses:
        text = response.text[:300]
        raise InterfaceFailed(f"{response.request.url}: HTTP {response.status_code}: {text}")
    try:
        found = response.json()
    except ValueError as exc:
        raise InterfaceFailed(f"{response.request.url}: an answer that is not JSON") from exc
    if not isinstance(found, dict):
        raise InterfaceFailed(f"{response.request.url}: an answer that is no object")
    return found
