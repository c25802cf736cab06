"""A scripted server on loopback, with bodies like the API's, for tests of its clients."""

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PROBLEM = "application/problem+json"
AT = "2026-11-29T12:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class FakeApi:
    """Answers by `METHOD path`, in the order they were scripted; the last one stays."""

    url: str
    seen: list[Seen] = field(default_factory=list)
    script: dict[str, list[Response]] = field(default_factory=lambda: defaultdict(list))

    def answers(
        self,
        call: str,
        body: Any,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        """Add an answer for `call`; bytes are sent as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.script[call].append(
            Response(content, status_code=status, headers=headers, media_type=media_type)
        )

    def refuses(
        self,
        call: str,
        problem: Mapping[str, Any],
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add a refusal for `call`."""
        body = {"type": "about:blank", "status": status, **problem}
        self.answers(call, body, status=status, headers=headers, media_type=PROBLEM)

    def answer(self, call: str) -> Response:
        """The next scripted answer."""
        scripted = self.script.get(call)
        if not scripted:
            body = json.dumps({"title": "Not Found", "status": 404, "detail": call})
            return Response(body, status_code=404, media_type=PROBLEM)
        return scripted.pop(0) if len(scripted) > 1 else scripted[0]


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """A server on a free loopback port until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    fake = FakeApi(url=f"http://127.0.0.1:{listening.getsockname()[1]}")

    async def handle(request: Request) -> Response:
        seen = Seen(
            method=request.method,
            path=request.scope["raw_path"].decode(),
            query=request.query_params.multi_items(),
            headers=request.headers,
            body=await request.body(),
        )
        fake.seen.append(seen)
        return fake.answer(f"{seen.method} {seen.path}")

    app = Starlette(routes=[Route("/{path:path}", handle, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    # The socket listens already, so a client that comes before uvicorn is ready just waits.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listening.close()


def seat_body(name: str = "careful", state: str = "succeeded", **changes: Any) -> dict[str, Any]:
    """A seat of a job."""
    body = {
        "seat": name,
        "provider": "openai",
        "model": "smollm2",
        "state": state,
        "work_key": "ab" * 32,
        "attempts": 1,
        "max_attempts": 4,
        "due_at": None,
        "reused": False,
        "output": None,
        "error": None,
        "started_at": AT,
        "ended_at": None,
    }
    return {**body, **changes}


def job_body(state: str = "succeeded", *seats: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A job in `state`."""
    ended = state in ("succeeded", "failed", "expired", "canceled")
    terminal = {
        "state": state,
        "run": 1,
        "completed_at": AT,
        "decision_id": "d1",
        "reason": state,
        "digests": {"input": "0" * 64, "models": "1" * 64},
        "policy_revision": "1",
    }
    body = {
        "id": "j1",
        "state": state,
        "run": 1,
        "submitted_at": AT,
        "deadline_at": "2026-11-29T13:00:00Z",
        "window": "2026-11-29T12",
        "owner": "catalog-team",
        "labels": {"set": "examples"},
        "digests": dict.fromkeys(("request", "facts", "rubric", "policy", "prompt"), "0" * 64),
        "seats": list(seats) or [seat_body(state=state)],
        "terminal": terminal if ended else None,
        "usage": {"requests": 1, "input_tokens": 300, "output_tokens": 60, "cost_usd": None},
    }
    return {**body, **changes}


def listed_body(state: str = "succeeded", **changes: Any) -> dict[str, Any]:
    """A job in `state` as lists show it."""
    body = {
        "id": "j1",
        "state": state,
        "run": 1,
        "submitted_at": AT,
        "deadline_at": "2026-11-29T13:00:00Z",
        "window": "2026-11-29T12",
        "owner": "catalog-team",
        "labels": {"set": "examples"},
        "decision_id": "d1",
        "purged_at": None,
        "seats": [{"seat": "careful", "provider": "openai", "model": "smollm2"}],
    }
    return {**body, **changes}


def report_body(*, complete: bool = True, **changes: Any) -> dict[str, Any]:
    """A report of two seats; when not complete, `brief` is missing."""
    seats = [report_seat("careful", 71.5, 80)]
    missing = [] if complete else [missing_body()]
    if complete:
        seats.append(report_seat("brief", 60, 55))
    scores = [seat["score"] for seat in seats]
    summary = {
        "mean": sum(scores) / len(scores),
        "median": sum(scores) / len(scores),
        "min": min(scores),
        "max": max(scores),
        "stdev": None,
        "n": len(scores),
        "of": 2,
    }
    body = {
        "job_id": "j1",
        "run": 1,
        "complete": complete,
        "decision_id": "d1",
        "seats": seats,
        "missing": missing,
        "summary": summary,
    }
    return {**body, **changes}


def report_seat(name: str, score: float, portability: float, /, **changes: Any) -> dict[str, Any]:
    """One seat's answer in a report."""
    body = {
        "seat": name,
        "score": score,
        "criteria": {"portability": portability},
        "rationale": f"{name} says so",
        "answer": {},
        "usage": {"input_tokens": 300, "output_tokens": 60},
        "cost_usd": None,
        "model_returned": "smollm2-135m",
        "output": {"uri": "gs://b/o", "generation": "1", "sha256": "0" * 64},
    }
    return {**body, **changes}


def missing_body(**changes: Any) -> dict[str, Any]:
    """A seat without an answer."""
    body = {
        "seat": "brief",
        "state": "failed",
        "code": "attempts_exhausted",
        "reason": "rate_limited",
        "due_at": None,
    }
    return {**body, **changes}


def attempt_body(**changes: Any) -> dict[str, Any]:
    """One provider request."""
    body = {
        "seat": "careful",
        "number": 1,
        "run": 1,
        "holder": "h1",
        "started_at": AT,
        "ended_at": "2026-11-29T12:00:02.500Z",
        "outcome": "succeeded",
        "http_status": 200,
        "code": None,
        "provider_request_id": "req-7",
        "hint_seconds": None,
        "usage": {
            "input_tokens": 300,
            "output_tokens": 60,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
        },
        "cost_usd": None,
    }
    return {**body, **changes}
