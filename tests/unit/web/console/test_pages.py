"""Every page: what it shows, that it escapes what it shows, and whose things it shows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from functions.audit import audit
from functions.core.access import OPERATOR, SUBMITTER
from functions.core.documents import job_path, seat_path
from functions.core.errors import LedgerUnavailable, ObjectsUnavailable
from functions.core.jobs import Job, Usage
from functions.core.ports import Update
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.incidents import open_incident
from functions.web.console.pages import POLICY
from functions.web.headers import HEADERS
from tests.faults.notifying import NotifyingWorld
from tests.faults.world import TENANT, World, submission
from tests.unit.web.console.html import Element, read_page
from tests.unit.web.console.visitor import OTHER, PLANTED, key_of, staffed, visiting

CRITERIA = {"portability": 70, "value": 30.5}


def one_answers(request: CallRequest, number: int) -> ProviderAnswer | CallFailure:
    """Model `good` answers, with planted texts; every other one is refused in planted words."""
    if request.model != "good":
        return CallFailure(
            code="permission_denied", message=f"no {PLANTED}", http_status=403, request_id=PLANTED
        )
    verdict = {"rationale": f"because {PLANTED}", "score": 61.25, "criteria": CRITERIA}
    return ProviderAnswer(
        text=json.dumps(verdict),
        model_returned=PLANTED,
        usage=Usage(input_tokens=1234, output_tokens=56),
        request_id=PLANTED,
    )


async def hostile(world: World, *models: str, key: str = "hostile", **policy: Any) -> Job:
    """Submit a job whose every free text is planted."""
    asked = submission(models or ("good", "bad"), question=key, key=key, **policy)
    criteria = [{"name": name} for name in CRITERIA]
    rubric = {"instructions": PLANTED, "criteria": criteria}
    return await world.submit(replace(asked, rubric=rubric, owner=PLANTED, labels={"run": PLANTED}))


async def everything() -> tuple[World, Job]:
    """A world with something on every page, all of it planted."""
    world = World()
    world.provider.script = one_answers
    job = await hostile(world)
    await world.finish()
    services = world.api.services
    await open_incident(services, "output_missing", "cause", job=job, detail=f"gone {PLANTED}")
    world.clock.advance(7200)
    await audit(world.reconciler.services)
    [path] = [path for path in world.ledger.stored() if path.startswith("windows/")]
    world.ledger._documents[path].data["view"]["errors"] = [PLANTED]
    world.ledger._documents[path].data["view"]["missing_terminal"] = [job.id]
    return world, job


def pages_of(job: Job) -> dict[str, str]:
    """A path for each page."""
    return {
        "/": "/",
        "/jobs/{job}": f"/jobs/{job.id}",
        "/audits": "/audits",
        "/audits/{window}": f"/audits/{job.window}",
        "/incidents": "/incidents",
        "/submit": "/submit",
        "/compare": f"/compare?job={job.id}",
    }


PAGES = ["/", "/jobs/{job}", "/audits", "/audits/{window}", "/incidents", "/submit", "/compare"]


def assert_harmless(page: Element) -> None:
    """Only our own elements are there, and each script and file is one of ours."""
    tags = {element.tag for element in page.all()}
    assert not tags & {"img", "iframe", "object", "embed", "svg", "style", "base"}
    for element in page.all():
        assert not [name for name in element.attributes if name.startswith("on")]
        assert "style" not in element.attributes
        for name in ("src", "href", "action"):
            target = element.attributes.get(name, "/")
            assert target.startswith(("/", "#")), target
            assert not target.startswith("//"), target
    for script in page.all("script"):
        assert script.text == ""
        assert script.attributes["src"].startswith("/assets/")


def assert_readable(page: Element) -> None:
    """What readers of screens need: language, title, one heading, captions, labels."""
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text
    assert len(list(page.all("h1"))) == 1
    for table in page.all("table"):
        assert table.one("caption").text
        assert all(head.attributes.get("scope") for head in table.all("th"))
    labelled = {label.attributes.get("for") for label in page.all("label")}
    for field in (*page.all("input"), *page.all("textarea"), *page.all("select")):
        hidden = field.attributes.get("type") == "hidden"
        named = field.attributes.get("id") in labelled or "aria-label" in field.attributes
        assert hidden or named or field.attributes.get("type") == "checkbox", field
    identities = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(identities) == len(set(identities))
    for time in page.all("time"):
        assert time.attributes["datetime"].endswith("Z")


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_escapes_what_it_shows(path: str) -> None:
    """Planted markup is text: no element, no attribute, no address of another host."""
    world, job = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR))
        answer = await visitor.get(pages_of(job)[path])
    assert answer.status_code == 200, answer.text
    assert PLANTED not in answer.text
    page = read_page(answer.text)
    assert_harmless(page)
    assert_readable(page)
    if path not in ("/audits", "/submit"):
        assert PLANTED in page.text


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_is_closed_to_everything_else(path: str) -> None:
    """Its policy admits our own files alone, it is not stored, and HEAD says the same."""
    world, job = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        answer = await visitor.get(pages_of(job)[path])
        head = await visitor.client.head(pages_of(job)[path])
    assert head.status_code == 200
    for told in (answer, head):
        assert told.headers["content-security-policy"] == POLICY
        assert told.headers["cache-control"] == "no-store"
        assert told.headers["referrer-policy"] == "no-referrer"
        assert {name.lower() for name in HEADERS} <= set(told.headers)
    for rule in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_shows_nothing_of_another_tenant(path: str) -> None:
    """What is named by the path is the same 404 as what is not there; lists are empty."""
    world, job = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR, OTHER))
        answer = await visitor.get(pages_of(job)[path])
        unknown = pages_of(job)[path].replace(job.id, f"job_{'0' * 32}")
        nothing = await visitor.get(unknown.replace(job.window, "2020-01-01T00"))
    assert TENANT not in answer.text.replace(f"{OTHER} ", "")
    assert job.id not in answer.text
    assert PLANTED not in answer.text
    if path in ("/jobs/{job}", "/audits/{window}", "/compare"):
        assert answer.status_code == nothing.status_code == 404
        assert answer.content == nothing.content
        assert answer.headers["content-type"].startswith("text/html")
        assert_harmless(read_page(answer.text))


async def test_a_job_page_says_what_the_api_says() -> None:
    """Seats with state, attempts and reasons in words; report, end, usage, attempts."""
    world, job = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page(f"/jobs/{job.id}")
        headers = {"Authorization": f"Bearer {key_of(SUBMITTER)}"}
        api = (await visitor.client.get(f"/v1/jobs/{job.id}", headers=headers)).json()
    seats = rows(page.one("section", id="part-seats"))
    assert seats["fake/good"][1:5] == ["✓ succeeded", "1 of 4", "61.25", "unknown"]
    assert seats["fake/bad"][1:4] == ["✕ failed", "1 of 4", "-"]
    assert "permission_denied The provider's key may not use this model." in seats["fake/bad"][5]
    report = page.one("section", id="part-report")
    assert "Report (partial)" in report.text
    assert "1 of 2 seats gave a score. Mean 61.25" in report.text
    assert list(rows(report)) == ["fake/bad"]
    [answer] = report.all("details")
    assert "portability 70" in answer.text
    assert "value 30.5" in answer.text
    assert api["seats"][0]["output"]["uri"] in answer.text
    assert api["seats"][0]["output"]["uri"] not in {
        link.attributes["href"] for link in page.all("a")
    }
    facts = page.one("section", id="part-facts").text
    assert "How it ended State ✕ failed" in facts
    assert "Requests sent 2 Tokens in 1,234 Tokens out 56 Cost unknown" in facts
    assert api["terminal"]["digests"]["input"] in facts
    attempts = list(page.one("section", id="part-attempts").one("tbody").all("tr"))
    assert len(attempts) == api["usage"]["requests"] == 2
    assert not list(page.all("script"))


def rows(part: Element) -> Mapping[str, list[str]]:
    """Return the cells of a part's only table, by the name that heads the row."""
    return {
        row.one("th").text: [cell.text for cell in row.all("td")]
        for row in part.one("tbody").all("tr")
    }


async def test_an_open_job_is_refreshed() -> None:
    """By the events stream with the script, by loading the page again without; then no more."""
    world = World()
    job = await world.submit(submission(("m0", "m1")))
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page(f"/jobs/{job.id}")
        assert page.one("div", id="live").attributes["data-events"] == f"/v1/jobs/{job.id}/events"
        assert page.one("noscript").one("meta").attributes["http-equiv"] == "refresh"
        assert "0 of 2 seats ended: 2 queued" in page.text
        assert [script.attributes["src"] for script in page.all("script")]
        await world.finish()
        page = await visitor.page(f"/jobs/{job.id}")
    assert "data-events" not in page.one("div", id="live").attributes
    assert not list(page.all("noscript"))
    assert "2 of 2 seats ended: 2 succeeded" in page.text


async def test_a_job_can_be_read_while_the_bucket_cannot() -> None:
    """The records are shown, and that the answers cannot be read now."""
    world, job = await everything()

    async def fails(*_: Any, **__: Any) -> bytes:
        raise ObjectsUnavailable("no answer")

    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        world.objects.read = fails  # type: ignore[method-assign]
        page = await visitor.page(f"/jobs/{job.id}")
        compared = await visitor.page(f"/compare?job={job.id}")
    assert "The answers cannot be read at present" in page.text
    assert "✓ succeeded" in page.text
    assert "answers cannot be read at present" in compared.text


async def test_an_outage_is_a_page_too() -> None:
    """503 with when to ask again, and nothing of what went wrong."""
    world, _ = await everything()

    async def fails(*_: Any, **__: Any) -> Any:
        raise LedgerUnavailable("secret detail")

    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        world.ledger.query = fails  # type: ignore[method-assign]
        answer = await visitor.get("/")
        asked = await visitor.get("/", accept="application/json")
    assert answer.status_code == asked.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert asked.headers["content-type"] == "application/problem+json"
    assert "retry-after" in answer.headers
    assert "secret detail" not in answer.text
    assert "Sign out" in answer.text


async def test_a_record_that_cannot_be_read_is_told_to_an_operator() -> None:
    """As by the API: 503, and an incident."""
    world, job = await everything()
    before = len(world.incidents())
    world.ledger._documents[f"jobs/{job.id}"].data["v"] = 999
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR))
        answer = await visitor.get(f"/jobs/{job.id}")
    assert answer.status_code == 503
    assert answer.headers["content-type"].startswith("text/html")
    assert len(world.incidents()) == before + 1


async def test_the_list_pages_and_filters() -> None:
    """Newest first; the next page keeps the filters; what was left empty filters nothing."""
    world = World()
    jobs = []
    for number in range(3):
        asked = submission(question=f"q{number}", key=f"k{number}")
        asked = replace(asked, owner=f"team-{number % 2}", labels={"run": "a b&c"})
        jobs.append(await world.submit(asked))
        world.clock.advance(60)
    await world.finish()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page("/?state=&owner=&label=&window=&limit=2")
        assert listed(page) == [jobs[2].id, jobs[1].id]
        assert "1 of 1 ended 1 succeeded" in page.text
        older = page.one("a", rel="next").attributes["href"]
        page = await visitor.page(older)
        assert listed(page) == [jobs[0].id]
        page = await visitor.page("/?owner=team-0&label=run:a+b%26c&limit=1")
        assert listed(page) == [jobs[2].id]
        page = await visitor.page(page.one("a", rel="next").attributes["href"])
        assert listed(page) == [jobs[0].id]
        assert page.one("input", id="label").attributes["value"] == "run:a b&c"
        page = await visitor.page("/?state=canceled")
        assert "No job matches these filters." in page.text
        for bad in ("/?state=unheard", "/?cursor=x", "/?window=today", "/?colour=red"):
            assert (await visitor.get(bad)).status_code == 400


def listed(page: Element) -> list[str]:
    return [box.attributes["value"] for box in page.all("input") if box.attributes["name"] == "job"]


async def test_the_counts_of_an_audit_sum_to_its_population() -> None:
    """And each gap is under its kind, with a link to its job."""
    world, job = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        audits = await visitor.page("/audits")
        page = await visitor.page(f"/audits/{job.window}")
    assert audits.one("a", href=f"/audits/{job.window}").text == job.window
    first, *_ = page.all("table")
    counts = rows(first)
    assert sum(int(cells[0]) for cells in counts.values()) == 1
    assert "Sum 1 Accepted 1" in first.text
    assert "There are gaps." in page.text
    assert page.one("h2", id="missing_terminal").text == "Runs without a terminal record"
    assert page.one("a", href=f"/jobs/{job.id}").text == job.id


@pytest.mark.parametrize(
    ("name", "entry", "gap"),
    [
        ("undelivered_notifications", "dec_1.1", True),
        ("orphan_outputs", "gs://bucket/outputs/x", True),
        ("off_window", "job_1", True),
        ("repairs", {"kind": "dispatched", "job_id": "job_1", "at": None, "reason": "lost"}, False),
    ],
)
async def test_a_page_with_a_gap_never_says_that_there_is_none(
    name: str, entry: Any, gap: bool
) -> None:
    """What is listed as missing is a gap, as the command line has it; what was repaired is none."""
    world = NotifyingWorld()
    job = await world.ended()
    await world.settle()
    world.clock.advance(7200)
    await audit(world.reconciler.services)
    [path] = [path for path in world.ledger.stored() if path.startswith("windows/")]
    world.ledger._documents[path].data["view"][name] = [entry]
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page(f"/audits/{job.window}")
    assert ("There are gaps." in page.text) is gap
    assert ("there is no gap" in page.text) is not gap
    assert page.one("h2", id=name)


async def test_an_incident_says_who_owns_it_and_until_when() -> None:
    """An open one that is past its time is marked as overdue, in words."""
    world, _ = await everything()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        before = (await visitor.page("/incidents")).text
        world.clock.advance(5 * 3600)
        await world.ledger.get("jobs/x")
        after = (await visitor.page("/incidents")).text
    assert "An answer is gone ! open" in before
    assert "Escalates" in before
    assert "overdue" not in before
    assert "overdue" in after


async def test_a_comparison_has_a_column_for_each_seat() -> None:
    """Rows are score and criteria; a missing seat keeps its column; a partial report says so."""
    world = World()
    world.provider.script = one_answers
    whole = await hostile(world, "good", key="whole")
    part = await hostile(world, "good", "bad", key="part", required_seats=1)
    await world.finish()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page(f"/compare?job={whole.id}&job={part.id}&job=&job={whole.id}")
        seats = await visitor.page(f"/compare?job={whole.id}&job={part.id}&seat=fake/good")
        many = "&".join(f"job=job_{n}" for n in range(9))
        assert (await visitor.get(f"/compare?{many}")).status_code == 400
    table = page.one("table", **{"class": "compare"})
    cells = rows(table)
    assert [head.text for head in table.one("thead").all("th")] == [
        "Job", whole.id, part.id, part.id, "Seat", "fake/good", "fake/good", "fake/bad",
    ]  # fmt: skip
    assert cells["Score"][:2] == ["61.25", "61.25"]
    assert cells["Score"][2].startswith("no answer permission_denied")
    assert cells["portability"] == ["70", "70", "-"]
    assert cells["value"] == ["30.5", "30.5", "-"]
    complete, partial = [item.text for item in page.one("ul", **{"class": "plain"}).all("li")]
    assert "complete report, mean 61.25" in complete
    assert "partial report : 1 of 2 seats answered" in partial
    assert rows(seats.one("table", **{"class": "compare"}))["Score"] == ["61.25", "61.25"]


async def test_the_files_of_a_page_are_kept_for_a_year() -> None:
    """Under names that their content gives, so that a change is another file; no other is served.

    None asks for anything elsewhere.
    """
    async with visiting(await staffed(World())) as visitor:
        page = await visitor.page("/login")
        for link in page.all("link"):
            answer = await visitor.get(link.attributes["href"])
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert "//" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        missing = [
            await visitor.get(path)
            for path in ("/assets/console.css", "/assets/..%2Fpages.py", "/assets/x", "/assets/")
        ]
    assert [answer.status_code for answer in missing] == [404] * 4
    assert {answer.headers["content-type"] for answer in missing} == {"application/problem+json"}


async def test_an_unknown_path_stays_the_problem_of_the_api() -> None:
    """Whoever asks, and whatever they accept."""
    async with visiting(await staffed(World())) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        for path in ("/nothing", "/jobs", "/jobs/a/b", "/login/"):
            answer = await visitor.get(path, accept="text/html")
            assert answer.status_code == 404, path
            assert answer.headers["content-type"] == "application/problem+json"
        wrong: httpx.Response = await visitor.client.put("/submit")
    assert wrong.status_code == 405


async def test_the_rate_of_a_key_counts_for_pages_too() -> None:
    """A page asks as often as the API lets its key."""
    world = World()
    application = await staffed(world)
    application = replace(
        application, keys=type(application.keys)(world.api.services.ledger, requests_per_minute=2)
    )
    async with visiting(application) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        answers = [await visitor.get("/submit") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "retry-after" in answers[2].headers


async def test_a_job_that_cannot_be_read_hides_no_other() -> None:
    """The list shows the others and names that one, whether its head or a seat cannot be read."""
    world = World()
    world.provider.script = one_answers
    names = [(await hostile(world, "good", key=key)).id for key in ("a", "b", "c")]
    await world.finish()
    for path in (job_path(names[0]), seat_path(names[1], 1, 0)):
        await world.ledger.commit(Update(path=path, fields={"v": 99}))
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page("/")
    boxes = [
        box.attributes["value"] for box in page.all("input") if box.attributes["name"] == "job"
    ]
    assert boxes == [names[2]]
    [notice] = [p for p in page.all("p") if p.attributes.get("role") == "alert"]
    assert {link.text for link in notice.all("a")} == {names[0], names[1]}
    assert len([path for path in world.ledger.stored() if path.startswith("incidents/")]) == 2
