"""The API's calls, one method each. All trouble becomes `Refused` or `Unreachable` here."""

import math
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from functions.cli.answers import AttemptList, Job, JobPage, Problem, Report
from functions.cli.batches import AnsweredLine, read_answer
from functions.cli.book_answers import Audit, AuditList, Incident, IncidentPage
from functions.cli.exits import Refused, Unreachable
from functions.cli.target import Target

T = TypeVar("T", bound=BaseModel)

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# The API sends a comment every 15 s.
EVENTS_TIMEOUT = httpx.Timeout(30.0, connect=5.0, read=45.0)
EVENT_STREAM = "text/event-stream"
# The API answers a batch within 60 s, however slow what it depends on is.
BATCH_TIMEOUT = httpx.Timeout(90.0, connect=5.0)
NDJSON = "application/x-ndjson"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, kw_only=True)
class Received(Generic[T]):
    """An answer: what it means, and the bytes as they came (for `--json`)."""

    value: T
    raw: bytes
    status: int
    retry_after_seconds: float | None


@asynccontextmanager
async def open_api(target: Target) -> AsyncIterator["Api"]:
    """A client of the API at `target`, closed at the end."""
    headers = {"Accept": "application/json, application/problem+json"}
    if target.api_key is not None:
        headers["Authorization"] = f"Bearer {target.api_key}"
    # A proxy from the environment could not reach a stack on this machine's loopback.
    trust_env = httpx.URL(target.api).host not in LOOPBACK_HOSTS
    async with httpx.AsyncClient(
        base_url=target.api, headers=headers, timeout=TIMEOUT, trust_env=trust_env
    ) as http:
        yield Api(http)


class Api:
    """Client of one Empanel API. Every method raises `Refused` and `Unreachable`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def submit(self, body: bytes, *, key: str | None = None) -> Received[Job]:
        """Submit a job as it stands in the file: the API sees every byte, and judges it."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        request = self._http.build_request("POST", "v1/jobs", content=body, headers=headers)
        return await self._call(request, Job)

    async def batch(self, body: bytes, *, lines: int) -> list[AnsweredLine]:
        """Submit `lines` jobs, one a line of the body; their answers, in order."""
        headers = {"Content-Type": NDJSON, "Accept": f"{NDJSON}, application/problem+json"}
        request = self._http.build_request(
            "POST", "v1/jobs:batch", content=body, headers=headers, timeout=BATCH_TIMEOUT
        )
        response = await _sent(self._http, request)
        if not response.is_success:
            raise _refusal(response)
        return _answered(response, lines)

    async def job(self, job_id: str) -> Received[Job]:
        """The job with its seats, as they stand now."""
        return await self._get(_job_path(job_id), Job)

    @asynccontextmanager
    async def events(self, job_id: str, last_event_id: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of the job's event stream, as they come; also raises `httpx.HTTPError` then.

        Begins after the event with this ID; with an empty one with the job as it is.
        """
        headers = {"Accept": f"{EVENT_STREAM}, application/problem+json"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        path = f"{_job_path(job_id)}/events"
        request = self._http.build_request("GET", path, headers=headers, timeout=EVENTS_TIMEOUT)
        response = await _sent(self._http, request, stream=True)
        try:
            kind = response.headers.get("content-type", "").partition(";")[0]
            if (response.status_code, kind) != (httpx.codes.OK, EVENT_STREAM):
                raise await _no_stream(response)
            yield response.aiter_bytes()
        finally:
            await response.aclose()

    async def report(self, job_id: str, *, partial: bool = False) -> Received[Report]:
        """The report; without `partial` an incomplete one is `Refused` with 409 and `missing`."""
        query = [("partial", "true")] if partial else []
        return await self._get(f"{_job_path(job_id)}/report", Report, query)

    async def attempts(self, job_id: str) -> Received[AttemptList]:
        """Every provider request of the job."""
        return await self._get(f"{_job_path(job_id)}/attempts", AttemptList)

    async def jobs(self, query: Sequence[tuple[str, str]] = ()) -> Received[JobPage]:
        """One page of jobs, newest first."""
        return await self._get("v1/jobs", JobPage, query)

    async def audits(self, query: Sequence[tuple[str, str]] = ()) -> Received[AuditList]:
        """The windows, newest first."""
        return await self._get("v1/audits", AuditList, query)

    async def audit(self, window: str) -> Received[Audit]:
        """The last audit of one window."""
        return await self._get(f"v1/audits/{quote(window, safe='', errors='replace')}", Audit)

    async def incidents(self, query: Sequence[tuple[str, str]] = ()) -> Received[IncidentPage]:
        """One page of incidents, newest first."""
        return await self._get("v1/incidents", IncidentPage, query)

    async def resolve(self, incident: str, note: str) -> Received[Incident]:
        """Mark an incident as resolved."""
        path = f"v1/incidents/{quote(incident, safe='', errors='replace')}/resolve"
        request = self._http.build_request("POST", path, json={"note": note})
        return await self._call(request, Incident)

    async def cancel(self, job_id: str) -> Received[Job]:
        """Stop a job; one that has ended stays as it is."""
        request = self._http.build_request("POST", f"{_job_path(job_id)}/cancel")
        return await self._call(request, Job)

    async def replay(self, job_id: str) -> Received[Job]:
        """Run a job again for its seats without a success."""
        request = self._http.build_request("POST", f"{_job_path(job_id)}/replay")
        return await self._call(request, Job)

    async def _get(
        self, path: str, kind: type[T], query: Sequence[tuple[str, str]] = ()
    ) -> Received[T]:
        params = httpx.QueryParams(list(query))
        return await self._call(self._http.build_request("GET", path, params=params), kind)

    async def _call(self, request: httpx.Request, kind: type[T]) -> Received[T]:
        return await receive(self._http, request, kind)


async def receive(
    http: httpx.AsyncClient, request: httpx.Request, kind: type[T], *, also: Container[int] = ()
) -> Received[T]:
    """Send a request and read its answer; statuses in `also` count as answers.

    Raises:
        Refused: the API answered with a problem.
        Unreachable: no answer, or none of an Empanel API.
    """
    response = await _sent(http, request)
    if not response.is_success and response.status_code not in also:
        raise _refusal(response)
    return _received(response, kind)


async def _sent(
    http: httpx.AsyncClient, request: httpx.Request, *, stream: bool = False
) -> httpx.Response:
    try:
        return await http.send(request, stream=stream)
    except httpx.HTTPError as exc:
        reason = str(exc) or type(exc).__name__
        raise Unreachable(f"{request.url} cannot be reached: {reason}") from exc


async def _no_stream(response: httpx.Response) -> Refused | Unreachable:
    try:
        await response.aread()
    except httpx.HTTPError as exc:
        return Unreachable(f"{response.url} broke off: {exc}")
    if response.is_success:
        return Unreachable(f"{response.url} answered {response.status_code}, but no events.")
    return _refusal(response)


def _received(response: httpx.Response, kind: type[T]) -> Received[T]:
    try:
        value = kind.model_validate_json(response.content)
    except ValidationError as exc:
        raise Unreachable(
            f"{response.url} answered {response.status_code}, but not as an Empanel API "
            f"({exc.error_count()} fields are missing or of another kind)."
        ) from exc
    return Received(
        value=value,
        raw=response.content,
        status=response.status_code,
        retry_after_seconds=retry_after_seconds(response.headers, datetime.now(UTC)),
    )


def _answered(response: httpx.Response, lines: int) -> list[AnsweredLine]:
    try:
        answers = [read_answer(line) for line in response.content.splitlines()]
    except ValueError as exc:
        raise Unreachable(
            f"{response.url} answered {response.status_code}, but not as an Empanel API."
        ) from exc
    if [answer.value.line for answer in answers] != list(range(1, lines + 1)):
        raise Unreachable(f"{response.url} answered {len(answers)} of {lines} lines.")
    return answers


def _refusal(response: httpx.Response) -> Refused | Unreachable:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        if not response.is_client_error:
            return Unreachable(
                f"{response.url} answered {response.status_code} {response.reason_phrase}, "
                "which is no answer of an Empanel API."
            )
        # A gateway in front of the API (Cloud Run's IAM, say) refuses without a problem document.
        problem = Problem(title=response.reason_phrase or "Refused")
    return Refused(
        problem,
        status=response.status_code,
        raw=response.content,
        retry_after_seconds=retry_after_seconds(response.headers, datetime.now(UTC)),
    )


def retry_after_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """`Retry-After` in seconds from `now` (RFC 9110, 10.2.3); `None` when absent or malformed."""
    value = headers.get("retry-after", "").strip()
    if value.replace(".", "", 1).isdecimal():
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _job_path(job_id: str) -> str:
    return f"v1/jobs/{quote(job_id, safe='', errors='replace')}"
