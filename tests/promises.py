"""Holds an answer of the `api` target against what its route promises.

Every field that is promised is there with its type, and no other; every status and header is one
that the published document names. Both the running stack's answers and those of the routes over
adapters in memory go through here.
"""

from collections.abc import Mapping
from typing import Any

from starlette.routing import Match

from functions.web import problems
from functions.web.api import API_ROUTES
from functions.web.batch_models import LineAnswer, LineRefused
from functions.web.bodies import NDJSON
from functions.web.conditional import etag_of
from functions.web.event_stream import MEDIA_TYPE as EVENT_STREAM
from functions.web.headers import HEADERS
from functions.web.operations import Operation
from functions.web.response_models import JobEvent, JobShown, ProblemShown
from functions.web.roles import LEAST_ROLES
from functions.web.routing import ApiRoute


def assert_promised(
    method: str, path: str, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Fail unless the answer to a request is one that the interface promises.

    `path` is without the query; the names of `headers` are in lower case.
    """
    told = f"{method} {path} -> {status} {body[:2000]!r}"
    _assert_hardened(headers, told)
    route, other_methods = _route(method, path)
    if route is None or route.operation is None:
        assert status == (405 if other_methods else 404), told
        _assert_problem(ProblemShown, status, headers, method, body, told)
        return
    operation = route.operation
    if status in operation.answers:
        _assert_answer(operation, status, headers, method, body, told)
        return
    least_role = LEAST_ROLES[route.method, route.path]
    assert status in operation.problem_statuses(least_role), f"not promised: {told}"
    model = operation.problem_model(status)
    _assert_problem(model, status, headers, method, body, told)
    for name in {401: ["www-authenticate"], 429: ["retry-after"], 503: ["retry-after"]}.get(
        status, []
    ):
        assert name in headers, told


def _assert_hardened(headers: Mapping[str, str], told: str) -> None:
    for name in HEADERS:
        assert name.lower() in headers, f"no {name}: {told}"


def _route(method: str, path: str) -> tuple[ApiRoute | None, bool]:
    others = False
    for route in API_ROUTES:
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path}
        match, _ = route.matches(scope)
        if match is Match.FULL:
            assert isinstance(route, ApiRoute)
            return route, False
        others = others or match is Match.PARTIAL
    return None, others


def _assert_answer(
    operation: Operation,
    status: int,
    headers: Mapping[str, str],
    method: str,
    body: bytes,
    told: str,
) -> None:
    answer = operation.answers[status]
    for name in answer.headers:
        assert name == "Retry-After" or name.lower() in headers, f"no {name}: {told}"
    if answer.media_type is None:
        assert body == b"", told
        return
    assert headers["content-type"].partition(";")[0] == answer.media_type, told
    if answer.model is None or method == "HEAD":
        return
    if answer.media_type == EVENT_STREAM:
        _assert_events(body)
        return
    for part in body.splitlines() if answer.media_type == NDJSON else [body]:
        shown = answer.model.model_validate_json(part)
        if isinstance(shown, LineAnswer) and isinstance(shown.root, LineRefused):
            _assert_kept(shown.root.problem, shown.root.status)


def _assert_events(body: bytes) -> None:
    for block in body.decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.split("\n") if line[:1] not in ("", ":")
        )
        fields.pop("retry", None)
        if fields:
            event = JobEvent.model_validate(fields)
            assert event.id == etag_of(event.data.encode())
            JobShown.model_validate_json(event.data)


def _assert_problem(
    model: type[ProblemShown],
    status: int,
    headers: Mapping[str, str],
    method: str,
    body: bytes,
    told: str,
) -> None:
    assert headers["content-type"] == problems.MEDIA_TYPE, told
    if method == "HEAD":
        return
    problem = model.model_validate_json(body)
    _assert_kept(problem, status)
    assert headers.get("retry-after") == _text(problem.retry_after_seconds), told


def _assert_kept(problem: ProblemShown, status: int) -> None:
    assert problem.status == status, problem
    assert (problem.retry_after_seconds is not None) == (status in (429, 503)), problem
    assert not problem.model_extra, f"not promised: {problem.model_extra}"


def _text(seconds: int | None) -> str | None:
    return None if seconds is None else str(seconds)
