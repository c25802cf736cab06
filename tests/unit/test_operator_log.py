"""What people do by hand is on record with the deed itself: who, what, when, and about what."""

from typing import Any

from functions.incidents import open_incident
from tests.faults.world import TENANT, World, submission
from tests.unit.web.asking import api_over, ask, give_key

KEY = "ek_operator"
WHO = "night shift"


async def watched() -> tuple[World, Any]:
    world = World()
    await give_key(world, KEY, tenant=TENANT, role="operator", name=WHO)
    return world, api_over(world)


def log(world: World) -> list[dict[str, Any]]:
    """The lines, oldest first, each with its time and its end."""
    stored = world.ledger.stored()
    lines = [data for path, data in stored.items() if path.startswith("operator_log/")]
    assert all(line["at"] <= world.clock.now() < line["expire_at"] for line in lines)
    return lines


async def test_a_cancel_is_on_record_once() -> None:
    """With job and run; a job that has ended is not canceled, so nothing is said of it."""
    world, api = await watched()
    job = await world.submit(submission())
    for _ in range(2):
        assert (await ask(api, "POST", f"/v1/jobs/{job.id}/cancel", key=KEY)).status == 200
    [line] = log(world)
    assert (line["who"], line["what"], line["job"], line["run"]) == (WHO, "cancel", job.id, 1)
    assert line["tenant"] == TENANT


async def test_an_expiry_is_nobodys_deed() -> None:
    """The deadline closes the run by itself."""
    world, _ = await watched()
    await world.submit(submission(deadline_seconds=60))
    world.drop_messages()
    world.clock.advance(61)
    await world.repair()
    assert log(world) == []


async def test_replay_and_purge_are_on_record() -> None:
    """Each in the commit that does it, under the name of the key."""
    world, api = await watched()
    job = await world.submit(submission())
    await world.cancel(job)
    await world.finish()
    assert (await ask(api, "POST", f"/v1/jobs/{job.id}/replay", key=KEY)).status == 202
    await world.finish()
    assert (await ask(api, "DELETE", f"/v1/jobs/{job.id}", key=KEY)).status == 202
    deeds = [(line["who"], line["what"], line["job"]) for line in log(world)]
    assert deeds[-2:] == [(WHO, "replay", job.id), (WHO, "purge", job.id)]


async def test_resolving_an_incident_is_on_record_once() -> None:
    """With the incident and its job; the note stays with the incident."""
    world, api = await watched()
    job = await world.submit(submission())
    await open_incident(world.api.services, "output_missing", job.id, job=job, detail="gone")
    [incident] = (await ask(api, "GET", "/v1/incidents", key=KEY)).body["incidents"]
    path = f"/v1/incidents/{incident['id']}/resolve"
    for note in ("found it", "found it again"):
        assert (await ask(api, "POST", path, key=KEY, body={"note": note})).status == 200
    [line] = log(world)
    assert (line["who"], line["what"], line["incident"]) == (WHO, "resolve", incident["id"])
    assert line["job"] == job.id
    assert "found it" not in str(line)


async def test_each_redelivery_is_on_record() -> None:
    """Sending again is a deed each time."""
    world, api = await watched()
    job = await world.submit(submission())
    await world.finish()
    name = f"{job.decision_id}.1"
    path = f"/v1/notifications/{name}/redeliver"
    for _ in range(2):
        assert (await ask(api, "POST", path, key=KEY)).status == 202
    lines = log(world)
    assert [(line["who"], line["what"], line["notification"]) for line in lines] == [
        (WHO, "redeliver", name)
    ] * 2


async def test_what_was_refused_is_no_deed() -> None:
    """A conflict, an unknown incident and a job of another tenant leave no line."""
    world, api = await watched()
    await give_key(world, "ek_other", tenant="other", role="operator")
    job = await world.submit(submission())
    assert (await ask(api, "DELETE", f"/v1/jobs/{job.id}", key=KEY)).status == 409
    assert (await ask(api, "POST", f"/v1/jobs/{job.id}/replay", key=KEY)).status == 409
    assert (await ask(api, "POST", f"/v1/jobs/{job.id}/cancel", key="ek_other")).status == 404
    assert log(world) == []
