"""Sign in, stay, leave: the cookie, where a browser is sent, and what the cookie opens."""

import asyncio
import json
from typing import Any
from unittest import mock

import httpx
import pytest

from functions.core.access import SUBMITTER, key_hash
from functions.core.documents import api_key_path
from functions.core.ports import SERVER_TIME, Update
from functions.web.authentication import Caller, KeyRing
from functions.web.console.visits import local_path
from functions.web.roles import LEAST_ROLES
from functions.web.routing import ApiRoute
from tests.faults.world import World, submission
from tests.unit.web.console.visitor import (
    LOCAL,
    SAME_ORIGIN,
    SECURE,
    key_of,
    staffed,
    visiting,
)

KEY = key_of(SUBMITTER)
ELSEWHERE = [
    "//evil.test",
    "/\\evil.test",
    "\\\\evil.test",
    "https://evil.test/",
    "javascript:alert(1)",
    "evil.test",
    "/%09/evil\t.test",
    "/a\\b",
    "/a\r\nSet-Cookie: x=y",
    "",
    " /jobs",
    "/" + "x" * 3000,
]


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    """The attributes of the only cookie that an answer sets."""
    [text] = answer.headers.get_list("set-cookie")
    parts = [part.strip().partition("=") for part in text.split(";")]
    name, _, value = parts[0]
    return {"name": name, "value": value} | {n.lower(): v or "yes" for n, _, v in parts[1:]}


async def test_over_tls_the_cookie_is_of_this_host_and_secure() -> None:
    """No script reads it, no other site sends it, and it ends by itself."""
    async with visiting(await staffed(World()), SECURE) as visitor:
        answer = await visitor.post("/login", {"key": f" {KEY}\n", "next": "/incidents?status=all"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/incidents?status=all"
    cookie = cookie_of(answer)
    assert cookie["name"] == "__Host-empanel"
    assert cookie["value"] == KEY
    assert cookie["secure"] == cookie["httponly"] == "yes"
    assert cookie["samesite"].lower() == "strict"
    assert cookie["path"] == "/"
    assert 0 < int(cookie["max-age"]) <= 86_400
    assert "domain" not in cookie
    assert answer.headers["cache-control"] == "no-store"


async def test_a_front_end_that_ends_tls_counts_as_tls() -> None:
    """Cloud Run speaks plain http to the container and says so."""
    forwarded = {**SAME_ORIGIN, "X-Forwarded-Proto": "https"}
    async with visiting(await staffed(World()), "http://console.example") as visitor:
        answer = await visitor.post("/login", {"key": KEY}, headers=forwarded)
    assert cookie_of(answer)["secure"] == "yes"


@pytest.mark.parametrize("address", [LOCAL, "http://localhost:8080", "http://[::1]:8080"])
async def test_on_loopback_the_cookie_goes_without_tls(address: str) -> None:
    """The local stack has no TLS; its cookie is told apart by the port."""
    async with visiting(await staffed(World()), address) as visitor:
        answer = await visitor.post("/login", {"key": KEY})
    cookie = cookie_of(answer)
    assert cookie["name"] == "empanel-8080"
    assert "secure" not in cookie
    assert cookie["httponly"] == "yes"
    assert cookie["samesite"].lower() == "strict"


@pytest.mark.parametrize(
    "address", ["http://console.example", "http://127.0.0.1.evil.test:8080", "http://10.0.0.1"]
)
async def test_plain_http_elsewhere_signs_nobody_in(address: str) -> None:
    """The page says so before a key is typed, and no key is looked up."""
    async with visiting(await staffed(World()), address) as visitor:
        page = await visitor.page("/login")
        answer = await visitor.post("/login", {"key": KEY})
    assert "https" in page.one("p", role="alert").text
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_a_wrong_key_is_told_and_not_shown() -> None:
    """No cookie, and the key is not in the page, the log or the address."""
    async with visiting(await staffed(World())) as visitor:
        wrong = await visitor.post("/login", {"key": "ek_wrong", "next": "/submit"})
        nothing = await visitor.post("/login", {"key": " "})
    assert (wrong.status_code, nothing.status_code) == (401, 422)
    assert "This key is not valid." in wrong.text
    assert "ek_wrong" not in wrong.text
    assert 'value="/submit"' in wrong.text
    assert "set-cookie" not in wrong.headers


async def test_no_key_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither right nor wrong ones: the log names keys by the beginning of their hash."""
    caplog.set_level("DEBUG")
    async with visiting(await staffed(World())) as visitor:
        await visitor.post("/login", {"key": "ek_wrong"})
        await visitor.sign_in(KEY)
        await visitor.page("/")
        await visitor.post("/logout", {})
    told = json.dumps([vars(record) for record in caplog.records], default=str)
    assert "signed in" in told
    assert KEY not in told
    assert "ek_wrong" not in told


async def test_wrong_keys_from_one_address_are_stopped() -> None:
    """After ten in a minute even a right key is not looked up; another address is served."""
    async with visiting(await staffed(World())) as visitor:
        far = {**SAME_ORIGIN, "X-Forwarded-For": "1.2.3.4, 203.0.113.7"}
        tries = [
            (await visitor.post("/login", {"key": f"ek_{n}"}, headers=far)).status_code
            for n in range(10)
        ]
        stopped = await visitor.post("/login", {"key": KEY}, headers=far)
        forged = {**SAME_ORIGIN, "X-Forwarded-For": "9.9.9.9, 203.0.113.7"}
        still = await visitor.post("/login", {"key": KEY}, headers=forged)
        near = {**SAME_ORIGIN, "X-Forwarded-For": "203.0.113.8"}
        other = await visitor.post("/login", {"key": KEY}, headers=near)
    assert tries == [401] * 10
    assert stopped.status_code == still.status_code == 429
    assert int(stopped.headers["retry-after"]) >= 1
    assert other.status_code == 303


async def test_what_nobody_has_signed_in_for_is_small() -> None:
    """The longest key and path fit; what is longer than any is not taken in."""
    async with visiting(await staffed(World())) as visitor:
        longest = await visitor.post("/login", {"key": "%" * 512, "next": "/" + "%" * 1999})
        longer = await visitor.post("/login", {"key": "k" * 20_000})
    assert longest.status_code == 401
    assert 'value="/%' in longest.text
    assert longer.status_code == 413


async def test_wrong_keys_sent_at_once_are_stopped_as_well() -> None:
    """Of forty at a time ten are looked up; right keys use nothing up, in whatever number."""
    application = await staffed(World())
    async with visiting(application) as visitor:
        for _ in range(12):
            right = await visitor.post("/login", {"key": KEY})
            assert right.status_code == 303
        keys = application.keys
        waiting = asyncio.Event()
        looked_up = 0

        async def slow(key: str | None) -> Caller:
            nonlocal looked_up
            looked_up += 1
            await waiting.wait()
            return await KeyRing.holder(keys, key)

        with mock.patch.object(keys, "holder", slow):
            tries = [
                asyncio.create_task(visitor.post("/login", {"key": f"ek_{n}"})) for n in range(40)
            ]
            for _ in range(200):
                await asyncio.sleep(0)
            waiting.set()
            answers = [(await each).status_code for each in tries]
    assert looked_up == 10
    assert (answers.count(401), answers.count(429)) == (10, 30)


@pytest.mark.parametrize("given", ELSEWHERE)
async def test_signing_in_leads_to_no_other_host(given: str) -> None:
    """`next` is a path of this host, or the list of jobs."""
    async with visiting(await staffed(World())) as visitor:
        shown = await visitor.client.get("/login", params={"next": given})
        answer = await visitor.post("/login", {"key": KEY, "next": given})
        again = await visitor.client.get("/login", params={"next": given})
    assert 'name="next" value="/"' in shown.text
    assert answer.headers["location"] == "/"
    assert again.headers["location"] == "/"


@pytest.mark.parametrize("path", ["/", "/jobs/job_a?notice=known", "/compare?job=a&job=b", "/a//b"])
def test_a_path_of_ours_is_kept(path: str) -> None:
    """With its query."""
    assert local_path(path) == path


async def test_a_login_form_of_another_site_is_refused() -> None:
    """Else somebody could be signed in with another's key without noticing."""
    fields = {"key": KEY}
    async with visiting(await staffed(World())) as visitor:
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://evil.test"},
            {"Origin": "null"},
            {"Origin": "https://127.0.0.1:8080"},
            {},
        ):
            answer = await visitor.post("/login", fields, headers=headers)
            assert answer.status_code == 403, headers
            assert "set-cookie" not in answer.headers
        older = await visitor.post("/login", fields, headers={"Origin": LOCAL})
    assert older.status_code == 303


@pytest.mark.parametrize(
    ("path", "sent_to"),
    [
        ("/", "/login"),
        ("/jobs/job_a", "/login?next=/jobs/job_a"),
        ("/audits?from=2026-11-29T00", "/login?next=/audits%3Ffrom%3D2026-11-29T00"),
        ("/submit", "/login?next=/submit"),
    ],
)
async def test_who_has_not_signed_in_is_sent_there_and_back(path: str, sent_to: str) -> None:
    """By 303, also for HEAD, and through the sign-in back to the page that was asked for."""
    async with visiting(await staffed(World())) as visitor:
        answer = await visitor.get(path)
        head = await visitor.client.head(path)
        page = await visitor.page(answer.headers["location"])
        fields = page.one("form", action="/login").fields()
        back = await visitor.post("/login", {**fields, "key": KEY})
    assert (answer.status_code, head.status_code) == (303, 303)
    assert answer.headers["location"] == head.headers["location"] == sent_to
    assert back.headers["location"] == path


async def test_programs_get_the_problem_instead() -> None:
    """With `Accept: application/json`, or with a bad Bearer key whatever they accept."""
    async with visiting(await staffed(World())) as visitor:
        asked = await visitor.get("/jobs/job_a", accept="application/json")
        bad = await visitor.get("/jobs/job_a", authorization="Bearer ek_bad", accept="text/html")
        known = await visitor.get(
            "/jobs/job_a", authorization=f"Bearer {KEY}", accept="application/json"
        )
    for answer, status in ((asked, 401), (bad, 401), (known, 404)):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_bearer_key_opens_the_pages_too() -> None:
    """Without a cookie, and then without forms to sign out."""
    async with visiting(await staffed(World())) as visitor:
        answer = await visitor.get("/", authorization=f"Bearer {KEY}")
    assert answer.status_code == 200
    assert "Sign out" not in answer.text


async def test_a_bad_bearer_key_is_not_replaced_by_the_cookie() -> None:
    """Who names a key means that key."""
    async with visiting(await staffed(World())) as visitor:
        await visitor.sign_in(KEY)
        for value in ("Bearer ek_bad", "Basic eDp5", "Bearer"):
            answer = await visitor.get("/", authorization=value)
            assert answer.status_code == 401


async def test_a_link_on_another_site_leads_a_signed_in_person_to_the_page() -> None:
    """The browser keeps the cookie to itself on such a visit, and adds it on the step after."""
    async with visiting(await staffed(World())) as visitor:
        answer = await visitor.get("/jobs/job_a?notice=known", sec_fetch_site="cross-site")
        assert answer.status_code == 200
        assert (
            '<meta http-equiv="refresh" content="0; url=/jobs/job_a?notice=known">' in answer.text
        )
        stranger = await visitor.get("/jobs/job_a", sec_fetch_site="same-origin")
        assert stranger.headers["location"] == "/login?next=/jobs/job_a"


async def test_a_key_that_is_revoked_is_forgotten() -> None:
    """The browser is sent to sign in, and its cookie is taken away."""
    world = World()
    application = await staffed(world)
    async with visiting(application) as visitor:
        await visitor.sign_in(KEY)
        path = api_key_path(key_hash(KEY))
        await world.ledger.commit(Update(path=path, fields={"revoked_at": SERVER_TIME}))
        application.keys._known.clear()
        answer = await visitor.get("/submit")
        cookie = cookie_of(answer)
        assert "empanel-8080" not in visitor.client.cookies
        page = await visitor.page("/login")
    assert answer.headers["location"] == "/login?next=/submit"
    assert (cookie["value"], cookie["max-age"]) == ('""', "0")
    assert page.one("input", id="key")


async def test_signing_out_takes_the_cookie_away() -> None:
    """By a form of our own pages only."""
    async with visiting(await staffed(World())) as visitor:
        await visitor.sign_in(KEY)
        forced = await visitor.post("/logout", {}, headers={"Sec-Fetch-Site": "cross-site"})
        assert forced.status_code == 403
        assert "empanel-8080" in visitor.client.cookies
        answer = await visitor.post("/logout", {})
        assert answer.headers["location"] == "/login"
        assert "empanel-8080" not in visitor.client.cookies
        assert (await visitor.get("/")).status_code == 303


def _programs_calls() -> list[tuple[str, str]]:
    return [call for call, role in LEAST_ROLES.items() if call[1].startswith("/v1/") and role]


@pytest.mark.parametrize(("method", "path"), _programs_calls())
async def test_the_cookie_opens_nothing_of_the_api_but_an_events_stream(
    method: str, path: str
) -> None:
    """A browser sends it whoever asks; so only what pages read by themselves takes it."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    names: dict[str, Any] = {"job": job.id, "window": job.window, "name": "publish"}
    names |= {"decision": job.decision_id, "notification": "x.1", "incident": "inc_x"}
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(KEY)
        before = dict(world.ledger.stored())
        answer = await visitor.client.request(
            method, path.format(**names), json={}, headers=SAME_ORIGIN
        )
    if (method, path) == ("GET", "/v1/jobs/{job}/events"):
        assert answer.status_code == 200
    else:
        assert answer.status_code == 401
        assert world.ledger.stored() == before


def test_no_page_is_in_the_published_document() -> None:
    """Pages promise nothing to programs."""
    from functions.web.console.routes import PAGE_ROUTES

    assert all(isinstance(route, ApiRoute) and route.operation is None for route in PAGE_ROUTES)
    assert {(route.method, route.path) for route in PAGE_ROUTES} <= set(LEAST_ROLES)
