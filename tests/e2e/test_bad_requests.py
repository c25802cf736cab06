"""Requests that break a rule, against the running API: a clear problem, and nothing stored."""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, dumped, open_site, panel
from tests.e2e.stored import stored
from tests.e2e.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEBIBYTE = 1024 * 1024
BEYOND = 2**53
OTHER_KEY = "ek_of-another-tenant"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("bad-requests")) as running:
        name = hashlib.sha256(OTHER_KEY.encode()).hexdigest()
        texts = {"tenant": "other", "role": "submitter", "name": "another tenant's"}
        await running.ledger.create("api_keys", name, texts)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended_job(site: Site) -> str:
    """A job of the stack's own tenant that is over."""
    job = await site.accepted(panel("ended"), "ended")
    await site.ended(job)
    return job


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A submission that must be refused, how, and which place the problem must point to."""

    body: bytes
    status: int
    pointer: str | None = None
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


def _changed(status: int, pointer: str | None, **changes: Json) -> Bad:
    return Bad(body=dumped(panel("bad", **changes)), status=status, pointer=pointer)


def _without(name: str) -> Bad:
    body = {key: value for key, value in panel("bad").items() if key != name}
    return Bad(body=dumped(body), status=422, pointer=f"/{name}")


def _with_fact(text: str, status: int, pointer: str = "/facts/x") -> Bad:
    """The fact `x` as raw JSON text, so that it need not be JSON."""
    body = json.dumps(panel("bad", facts={"x": "here"}))
    return Bad(body=body.replace('"here"', text).encode(), status=status, pointer=pointer)


def _raw(body: bytes, status: int = 400, pointer: str | None = None) -> Bad:
    return Bad(body=body, status=status, pointer=pointer)


def _typed(status: int, **headers: str) -> Bad:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Bad(body=dumped(panel("bad")), status=status, headers=named)


def _seats(*seats: Json) -> Json:
    return [{"provider": "openai", "model": f"m{n}", **seat} for n, seat in enumerate(seats)]


def _nested(levels: int) -> str:
    """A value that brings the body, whose facts are the second level, to that many levels."""
    return '{"x":' * (levels - 2) + "1" + "}" * (levels - 2)


BAD = {
    "unknown field": _changed(422, "/fact", fact={}),
    "unknown field of a seat": _changed(422, "/seats/0/modle", seats=_seats({"modle": "a"})),
    "missing facts": _without("facts"),
    "missing rubric": _without("rubric"),
    "missing seats": _without("seats"),
    "no seats": _changed(422, "/seats", seats=[]),
    "51 seats": _changed(422, "/seats", seats=_seats(*[{}] * 51)),
    "seats twice": _changed(422, "/seats/1/seat", seats=_seats({"seat": "s"}, {"seat": "s"})),
    "same question twice": _changed(
        422,
        "/seats/1",
        seats=_seats({"model": "m", "seat": "s"}) * 1 + _seats({"model": "m", "seat": "t"}),
    ),
    "unknown provider": _changed(422, "/seats/0/provider", seats=_seats({"provider": "nobody"})),
    "parameter the provider has no word for": _changed(
        422,
        "/seats/0/parameters/seed",
        seats=_seats({"provider": "openai-responses", "parameters": {"seed": 7}}),
    ),
    "more required than seats": _changed(
        422, "/policy/required_seats", policy={"required_seats": 3}
    ),
    "deadline of 0 s": _changed(422, "/policy/deadline_seconds", policy={"deadline_seconds": 0}),
    "true for a number": _changed(422, "/policy/max_attempts", policy={"max_attempts": True}),
    "null for absent": _changed(422, "/owner", owner=None),
    "facts no object": _changed(422, "/facts", facts=[]),
    "NaN": _with_fact("NaN", 400),
    "-Infinity": _with_fact("-Infinity", 400),
    "overflowing number": _with_fact("1e999", 400),
    "2^53": _with_fact(str(BEYOND), 422),
    "-2^53": _with_fact(str(-BEYOND), 422),
    "2^53 as a double": _with_fact(f"{BEYOND}.0", 422),
    "a number of 5000 digits": _with_fact("9" * 5000, 422),
    "lone surrogate": _with_fact('"\\ud800"', 400),
    "lone surrogate in a key": _with_fact('{"\\udc00": 1}', 400, "/facts/x/\\udc00"),
    "65 levels": _with_fact(_nested(65), 400, "/facts" + "/x" * 63),
    "duplicate key": _raw(
        dumped(panel("bad")).replace(b'"facts"', b'"seats": [], "facts"'), 400, "/seats"
    ),
    "100,000 levels": _raw(b"[" * 100_000),
    "no body": _raw(b""),
    "cut JSON": _raw(dumped(panel("bad"))[:-1]),
    "prose": _raw(b"please score this"),
    "two values": _raw(dumped(panel("bad")) * 2),
    "not UTF-8": _raw(dumped(panel("bad")).replace(b"Score", b"Sc\xffre")),
    "UTF-16": _raw(dumped(panel("bad")).decode().encode("utf-16")),
    "byte order mark": _raw(b"\xef\xbb\xbf" + dumped(panel("bad"))),
    "array": _raw(b"[]", 422, ""),
    "null": _raw(b"null", 422, ""),
    "one byte over 1 MiB": _raw(dumped(panel("bad")).ljust(MEBIBYTE + 1), 413),
    "text/plain": _typed(415, Content_Type="text/plain"),
    "no type": _typed(415),
    "form": _typed(415, Content_Type="application/x-www-form-urlencoded"),
    "gzip": _typed(415, Content_Type="application/json", Content_Encoding="gzip"),
    "latin-1": _typed(415, Content_Type="application/json; charset=iso-8859-1"),
    "empty key": _typed(400, Content_Type="application/json", Idempotency_Key=""),
    "long key": _typed(400, Content_Type="application/json", Idempotency_Key="k" * 256),
}


def _assert_problem(answer: httpx.Response, status: int) -> Json:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"]
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_submission_is_refused_and_stores_nothing(site: Site, bad: Bad) -> None:
    """A problem with the right status, pointing at the place; no record, no object."""
    before = await stored(site)
    answer = await site.call("POST", "/v1/jobs", content=bad.body, headers=bad.headers)
    problem = _assert_problem(answer, bad.status)
    if bad.pointer is not None:
        assert bad.pointer in [error["pointer"] for error in problem["errors"]]
    assert await stored(site) == before


async def test_a_body_over_the_limit_without_a_length_is_refused(site: Site) -> None:
    """A body that announces no length is cut off at 1 MiB as well."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * (MEBIBYTE // 16)

    before = await stored(site)
    headers = {"Content-Type": "application/json"}
    answer = await site.call("POST", "/v1/jobs", content=chunks(), headers=headers)
    _assert_problem(answer, 413)
    assert await stored(site) == before


async def test_what_lies_on_the_limits_is_accepted(site: Site) -> None:
    """64 levels, 2^53 - 1, 50 seats and a body of exactly 1 MiB are fine."""
    facts = {"stub-key": "limits", "big": BEYOND - 1, "x": json.loads(_nested(64))}
    body = panel("limits", facts=facts, seats=_seats(*[{}] * 50))
    content = dumped(body).ljust(MEBIBYTE)
    headers = {"Content-Type": "application/json"}
    answer = await site.call("POST", "/v1/jobs", content=content, headers=headers)
    assert answer.status_code == 202, answer.text
    [job] = await site.ended(answer.json()["id"])
    assert job["state"] == "succeeded"


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer " + "k" * 5000],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/{job}"),
        ("GET", "/v1/jobs/{job}/report"),
        ("GET", "/v1/jobs/{job}/attempts"),
    ],
)
async def test_without_a_valid_key_nothing_is_done(
    site: Site, ended_job: str, method: str, path: str, authorization: str | None
) -> None:
    """401 with a challenge for every call without a key that the ledger knows."""
    before = await stored(site)
    url = site.stack.info.api + path.format(job=ended_job)
    headers = {} if authorization is None else {"Authorization": authorization}
    body = panel("unauthorized") if method == "POST" else None
    answer = await site.client.request(method, url, headers=headers, json=body)
    _assert_problem(answer, 401)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert await stored(site) == before


@pytest.mark.parametrize("path", ["", "/report", "/attempts"])
async def test_a_foreign_job_looks_like_an_unknown_one(
    site: Site, ended_job: str, path: str
) -> None:
    """Another tenant gets the same 404 for a job that exists as for one that does not."""
    unknown = ended_job[:-4] + "2222"
    assert (await site.call("GET", f"/v1/jobs/{ended_job}{path}")).status_code == 200
    answers = [
        await site.call("GET", f"/v1/jobs/{job}{path}", api_key=OTHER_KEY)
        for job in (ended_job, unknown)
    ]
    for answer in answers:
        _assert_problem(answer, 404)
    assert answers[0].content == answers[1].content
    own = await site.call("GET", f"/v1/jobs/{unknown}{path}")
    assert own.content == answers[0].content


async def test_tenants_share_neither_jobs_nor_keys_nor_answers(site: Site, ended_job: str) -> None:
    """The same body under the same key of another tenant is its own job, bought by itself."""
    page = await site.call("GET", "/v1/jobs", api_key=OTHER_KEY)
    assert page.json()["jobs"] == []
    headers = {"Idempotency-Key": "ended"}
    answer = await site.call(
        "POST", "/v1/jobs", json=panel("ended"), headers=headers, api_key=OTHER_KEY
    )
    assert answer.status_code == 202
    path = f"/v1/jobs/{answer.json()['id']}"
    assert answer.json()["id"] != ended_job
    ended = await until(
        lambda: site.call("GET", path, api_key=OTHER_KEY),
        lambda seen: seen.json()["state"] == "succeeded",
        what="the other tenant's job succeeds",
    )
    assert [seat["reused"] for seat in ended.json()["seats"]] == [False, False]
    assert await site.requests("ended") == 4
    assert (await site.call("GET", path)).status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "job_x",
        "__x__",
        "__proto__",
        "-",
        "a" * 128,
        "a" * 5000,
        "%00",
        "j%C3%B6b",
        "a%2Fb",
    ],
)
async def test_what_is_no_job_id_is_an_unknown_job(site: Site, name: str) -> None:
    """Names that no job can have, those that Firestore reserves included, answer 404."""
    answer = await site.call("GET", f"/v1/jobs/{name}")
    _assert_problem(answer, 404)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=-1",
        "limit=1.5",
        "limit=ten",
        "limit=",
        "limit=%D9%A1",
        "state=done",
        "state=",
        "label=nocolon",
        "window=yesterday",
        "window=2026-13-01T00",
        "cursor=",
        "cursor=x",
        "cursor=%00",
        "owner=" + 1500 * "x",  # more than Firestore indexes of a text
        "label=a:" + 1500 * "x",
        "unknown=1",
        "LIMIT=5",
        # Well-formed cursors that no list has answered.
        "cursor=WyJ5ZXN0ZXJkYXkiLCJqb2JfeCJd",  # ["yesterday","job_x"]
        "cursor=WyIyMDI2LTExLTI5VDAwOjAwOjAwKzAwOjAwIiwiX194X18iXQ",  # the ID __x__
        "cursor=WyI5OTk5LTEyLTMxVDIzOjU5OjU5LTIzOjU5Iiwiam9iX3giXQ",  # past the year 9999 in UTC
        "cursor=WyIwMDAxLTAxLTAxVDAwOjAwOjAwKzIzOjU5Iiwiam9iX3giXQ",  # before the year 1 in UTC
        "cursor=W1tdLDFd",  # [[],1]
    ],
)
async def test_a_bad_query_of_the_list_is_refused(site: Site, query: str) -> None:
    """An unknown parameter or a bad value is a 400, never an empty page and never a 500."""
    answer = await site.call("GET", f"/v1/jobs?{query}")
    _assert_problem(answer, 400)


@pytest.mark.parametrize(
    "path", ["?x=1", "/report?partial=maybe", "/report?partial=", "/report?x=1", "/attempts?x=1"]
)
async def test_a_bad_query_of_a_job_is_refused(site: Site, ended_job: str, path: str) -> None:
    """Unknown parameters and bad values of the job's own pages are a 400."""
    _assert_problem(await site.call("GET", f"/v1/jobs/{ended_job}{path}"), 400)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", {"GET", "POST"}),
        ("PATCH", "/v1/jobs", {"GET", "POST"}),
        ("PUT", "/v1/jobs/{job}", {"GET"}),
        ("POST", "/v1/jobs/{job}/report", {"GET"}),
        ("PUT", "/v1/jobs/{job}/attempts", {"GET"}),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    site: Site, ended_job: str, method: str, path: str, allowed: set[str]
) -> None:
    """405 with an Allow header that names what is possible."""
    answer = await site.call(method, path.format(job=ended_job), json={})
    _assert_problem(answer, 405)
    assert allowed <= set(answer.headers["allow"].replace(" ", "").split(","))
    assert method not in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/job", "/v1/jobs/{job}/nothing"])
async def test_an_unknown_path_is_not_found(site: Site, ended_job: str, path: str) -> None:
    """404 as a problem for paths that lead nowhere."""
    _assert_problem(await site.call("GET", path.format(job=ended_job)), 404)
