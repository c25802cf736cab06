"""Error answers, and the reading of bodies up to the point where JSON begins."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from starlette.requests import Request

from functions.web import problems
from functions.web.bodies import MAX_BODY_BYTES, read_body, require_json, require_ndjson
from functions.web.faults import Fault, path_of, pointer
from functions.web.problems import Problem

ALL: list[tuple[Problem, int, dict[str, str]]] = [
    (problems.not_json("x"), 400, {}),
    (problems.bad_request("x"), 400, {}),
    (problems.unauthorized("x"), 401, {"www-authenticate": 'Bearer realm="empanel"'}),
    (
        problems.unauthorized("x", invalid_token=True),
        401,
        {"www-authenticate": 'Bearer realm="empanel", error="invalid_token"'},
    ),
    (problems.forbidden("x"), 403, {}),
    (problems.not_found("x"), 404, {}),
    (problems.method_not_allowed("PUT", ["POST", "GET"]), 405, {"allow": "GET, POST"}),
    (problems.conflict("x", {"missing": []}), 409, {}),
    (problems.gone("x"), 410, {}),
    (problems.too_large(10), 413, {}),
    (problems.unsupported_media_type("x", "application/json"), 415, {"accept": "application/json"}),
    (problems.unprocessable([Fault(path=("a",), detail="is required")]), 422, {}),
    (problems.key_conflict("x"), 422, {}),
    (problems.rate_limited("x", 1.2), 429, {"retry-after": "2"}),
    (problems.internal_error(), 500, {}),
    (problems.unavailable("x", 0), 503, {"retry-after": "1"}),
]


@pytest.mark.parametrize(("problem", "status", "headers"), ALL)
def test_rendering(problem: Problem, status: int, headers: dict[str, str]) -> None:
    """Every problem is a problem document with its status, its headers and no caching."""
    response = problem.to_response()
    document = json.loads(bytes(response.body))
    assert response.status_code == document["status"] == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    assert {name: response.headers[name] for name in headers} == headers
    assert document["type"].startswith("urn:empanel:problem:")
    assert {"title", "detail"} <= document.keys()


def test_types_and_titles_belong_together() -> None:
    """A type always has the same title and status."""
    assert len({(one.type, one.title, one.status) for one, _, _ in ALL}) == len(
        {one.type for one, _, _ in ALL}
    )


def test_extensions_are_members_of_the_document() -> None:
    """Further members stand beside the standard ones and never replace them."""
    document = problems.conflict("x", {"missing": [1], "status": 200}).to_document()
    assert (document["missing"], document["status"]) == ([1], 409)


def test_errors_are_counted_cut_and_safe_to_encode() -> None:
    """Long lists, long texts and lone surrogates from the request cannot break the answer."""
    faults = [Fault(path=("\ud800" * 5000, number), detail="x" * 5000) for number in range(500)]
    document = json.loads(bytes(problems.unprocessable(faults).to_response().body))
    assert len(document["errors"]) == 100
    assert "at least 100 rules are broken" in document["detail"]
    assert all(len(error["detail"]) == 1000 for error in document["errors"])
    assert "\\ud800" in document["errors"][0]["pointer"]


def test_pointers_are_escaped_and_read_back() -> None:
    """RFC 6901: `~` and `/` in names are escaped, in the right order both ways."""
    assert pointer(("a/b", "~1", 0, "")) == "/a~1b/~01/0/"
    assert path_of("/a~1b/~01/0/") == ("a/b", "~1", "0", "")
    assert (pointer(()), path_of("")) == ("", ())


class Sender:
    """Plays the server: hands out chunks of a body and counts them."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.read = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        """Return the next part of the body."""
        body = self.chunks[self.read]
        self.read += 1
        more = self.read < len(self.chunks)
        return {"type": "http.request", "body": body, "more_body": more}


def request(
    headers: dict[str, str], receive: Callable[[], Awaitable[Any]] | None = None
) -> Request:
    """Return a request with these headers and this body."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/v1/jobs", "headers": raw}
    return Request(scope, receive or Sender(b""))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/vnd.panel+json; v=1",
    ],
)
def test_json_is_recognized(content_type: str) -> None:
    """JSON media types pass, with parameters and in any case."""
    require_json(request({"content-type": content_type}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "text/json"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/x-ndjson"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_media_types_are_refused(headers: dict[str, str]) -> None:
    """Anything that is not announced as plain UTF-8 JSON is 415, and the answer says what is."""
    with pytest.raises(Problem) as caught:
        require_json(request(headers))
    assert caught.value.status == 415
    assert caught.value.headers["Accept"] == "application/json"


def test_lines_have_their_own_media_type() -> None:
    """NDJSON is taken where lines are read, and JSON is not."""
    require_ndjson(request({"content-type": "application/x-ndjson; charset=utf-8"}))
    with pytest.raises(Problem) as caught:
        require_ndjson(request({"content-type": "application/json"}))
    assert caught.value.status == 415


async def test_a_body_up_to_the_limit_is_read() -> None:
    """Exactly 1 MiB in chunks arrives whole."""
    half = b"x" * (MAX_BODY_BYTES // 2)
    assert await read_body(request({}, Sender(half, half))) == half + half


async def test_an_announced_excess_is_refused_unread() -> None:
    """Content-Length over the limit is 413 before a byte is read."""
    for length in (str(MAX_BODY_BYTES + 1), "9" * 5000):
        sender = Sender(b"x")
        with pytest.raises(Problem) as caught:
            await read_body(request({"content-length": length}, sender))
        assert (caught.value.status, sender.read) == (413, 0)


@pytest.mark.parametrize("length", [None, "10", "-1", "abc", "²"])
async def test_reading_stops_at_the_limit(length: str | None) -> None:
    """A body that says nothing true about its length is 413 and is not read to its end."""
    sender = Sender(*[b"x" * (MAX_BODY_BYTES // 2)] * 10)
    headers = {} if length is None else {"content-length": length}
    with pytest.raises(Problem) as caught:
        await read_body(request(headers, sender))
    assert (caught.value.status, sender.read) == (413, 3)
