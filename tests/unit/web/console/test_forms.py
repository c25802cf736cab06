"""Forms that change something: from our own pages only, and only what the role may do."""

from typing import Any

import pytest

from functions.core.access import OPERATOR, SUBMITTER
from functions.core.jobs import Job, JobState
from functions.incidents import open_incident
from tests.faults.fakes import failure
from tests.faults.world import World, submission
from tests.unit.web.console.visitor import OTHER, SAME_ORIGIN, key_of, staffed, visiting

CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}
FORMS = ("cancel", "replay", "resolve", "submit")
BODY = (
    '{"facts": {"x": 1}, "rubric": {"instructions": "Score it."},'
    ' "seats": [{"provider": "fake", "model": "m"}]}'
)


async def one_of_each(world: World) -> dict[str, str]:
    """Return the path of each form: an open job, one that failed, an incident."""
    world.provider.script = lambda request, _: failure("permission_denied", http_status=403)
    failed = await world.submit(submission(question="fails", key="failed"))
    await world.finish()
    running = await world.submit(submission(key="open"))
    incident = await incident_of(world, failed)
    return {
        "cancel": f"/jobs/{running.id}/cancel",
        "replay": f"/jobs/{failed.id}/replay",
        "resolve": f"/incidents/{incident}/resolve",
        "submit": "/submit",
    }


async def incident_of(world: World, job: Job) -> str:
    services = world.api.services
    await open_incident(services, "output_missing", job.id, job=job, detail="gone")
    [path] = [path for path in world.ledger.stored() if path.startswith("incidents/")]
    return path.partition("/")[2]


def recorded(world: World) -> dict[str, Any]:
    """What is on record beside the use of keys."""
    stored = world.ledger.stored().items()
    return {path: data for path, data in stored if not path.startswith("api_keys/")}


FIELDS = {"note": "mended", "job": BODY}


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_with_its_token_is_taken(name: str) -> None:
    """Each does its deed and leads to a page, so that loading it again repeats nothing."""
    world = World()
    path = (await one_of_each(world))[name]
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR))
        before = recorded(world)
        answer = await visitor.post(path, {**FIELDS, "token": await visitor.token()})
        assert answer.status_code == 303, answer.text
        assert recorded(world) != before
        await visitor.page(answer.headers["location"])


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_without_its_proofs_changes_nothing(name: str) -> None:
    """No token, a wrong one, another key's, or a right one from another site: 403."""
    world = World()
    path = (await one_of_each(world))[name]
    application = await staffed(world)
    async with visiting(application) as other:
        await other.sign_in(key_of(OPERATOR, OTHER))
        foreign = await other.token()
    async with visiting(application) as visitor:
        await visitor.sign_in(key_of(OPERATOR))
        right = await visitor.token()
        before = recorded(world)
        refused = [
            await visitor.post(path, FIELDS),
            await visitor.post(path, {**FIELDS, "token": ""}),
            await visitor.post(path, {**FIELDS, "token": "é" * 64}),
            await visitor.post(path, {**FIELDS, "token": foreign}),
            await visitor.post(path, {**FIELDS, "token": right}, headers=CROSS_SITE),
            await visitor.post(path, {**FIELDS, "token": right}, headers={}),
            await visitor.post(path, {**FIELDS, "token": right}, headers={"Origin": "null"}),
        ]
        assert recorded(world) == before
    assert [answer.status_code for answer in refused] == [403] * len(refused)


@pytest.mark.parametrize("name", FORMS)
async def test_a_form_without_the_cookie_leads_to_sign_in(name: str) -> None:
    """Nothing is done, and there is no way back to a form that was sent."""
    world = World()
    path = (await one_of_each(world))[name]
    async with visiting(await staffed(world)) as visitor:
        before = recorded(world)
        answer = await visitor.post(path, FIELDS)
        assert recorded(world) == before
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("name", ["cancel", "replay", "resolve"])
async def test_what_is_foreign_looks_like_what_is_not_there(name: str) -> None:
    """Another tenant's operator gets the same page for it as for an unknown ID."""
    world = World()
    path = (await one_of_each(world))[name]
    _, kind, identity, deed = path.split("/")
    unknown = f"/{kind}/{identity[:4]}{'0' * (len(identity) - 4)}/{deed}"
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR, OTHER))
        fields = {"token": await visitor.token()}  # no note: that is told to its tenant alone
        before = recorded(world)
        foreign, nothing = await visitor.post(path, fields), await visitor.post(unknown, fields)
        assert recorded(world) == before
    assert foreign.status_code == nothing.status_code == 404
    assert foreign.content == nothing.content


async def test_a_submitter_cannot_resolve() -> None:
    """There is no form on the page, and one that was made by hand is refused."""
    world = World()
    path = (await one_of_each(world))["resolve"]
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        page = await visitor.page("/incidents")
        assert "resolve" not in {form.attributes.get("class") for form in page.all("form")}
        before = recorded(world)
        answer = await visitor.post(path, {"note": "x", "token": await visitor.token()})
        assert answer.status_code == 403
        assert recorded(world) == before


async def test_an_operator_resolves_with_a_note() -> None:
    """The form is at the incident; afterwards the note stands there, and who wrote it."""
    world = World()
    await one_of_each(world)
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(OPERATOR))
        page = await visitor.page("/incidents")
        [form] = [form for form in page.all("form") if form.attributes.get("class") == "resolve"]
        blank = await visitor.post(form.attributes["action"], {**form.fields(), "note": "  "})
        assert blank.status_code == 422
        note = {"note": "deleted <b>by hand</b>"}
        await visitor.post(form.attributes["action"], {**form.fields(), **note})
        assert "There is no open incident" in (await visitor.page("/incidents")).text
        article = (await visitor.page("/incidents?status=resolved")).one("article")
    assert f"by {key_of(OPERATOR)}: deleted <b>by hand</b>" in article.text


async def test_cancel_and_replay_stand_where_they_can_be_done() -> None:
    """Cancel while the job is open, replay once it has ended without all answers."""
    world = World()
    world.provider.script = lambda request, _: failure("permission_denied", http_status=403)
    job = await world.submit(submission())
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        cancel = (await visitor.page(f"/jobs/{job.id}")).one(
            "form", action=f"/jobs/{job.id}/cancel"
        )
        await visitor.post(cancel.attributes["action"], cancel.fields())
        assert world.jobs()[job.id].state is JobState.CANCELED
        page = await visitor.page(f"/jobs/{job.id}")
        actions = {form.attributes["action"] for form in page.all("form")}
        assert actions == {"/logout", f"/jobs/{job.id}/replay"}
        replay = page.one("form", action=f"/jobs/{job.id}/replay")
        await visitor.post(replay.attributes["action"], replay.fields())
        assert world.jobs()[job.id].run == 2
        refused = await visitor.post(replay.attributes["action"], replay.fields())
    assert refused.status_code == 409
    assert refused.headers["content-type"].startswith("text/html")


async def test_a_program_with_a_key_may_send_the_forms() -> None:
    """No browser adds the header by itself, so it needs no token."""
    world = World()
    path = (await one_of_each(world))["cancel"]
    headers = {"Authorization": f"Bearer {key_of(SUBMITTER)}"}
    async with visiting(await staffed(world)) as visitor:
        answer = await visitor.post(path, {"token": ""}, headers=headers)
    assert answer.status_code == 303


async def test_other_bodies_are_no_forms() -> None:
    """JSON, too many fields, broken encodings and too much of it are refused."""
    world = World()
    async with visiting(await staffed(world)) as visitor:
        await visitor.sign_in(key_of(SUBMITTER))
        form_type = {"Content-Type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
        json_type = {"Content-Type": "application/json", **SAME_ORIGIN}
        many = "&".join(f"f{n}=1" for n in range(50))
        sent = [
            await visitor.client.post("/submit", content=content, headers=headers)
            for content, headers in (
                ("{}", json_type),
                (many, form_type),
                ("job=%ff", form_type),
                ("job=" + "x" * (3 * 1024 * 1024 + 65_537), form_type),
            )
        ]
    assert [answer.status_code for answer in sent] == [415, 400, 400, 413]
