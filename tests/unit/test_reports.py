"""The panel's report: complete, or partial with every missing seat named."""

import json
from dataclasses import replace
from typing import Any

import pytest

from functions.core.jobs import Job
from functions.core.verdicts import CallRequest, ProviderAnswer
from functions.reports import build_report
from functions.statuses import read_status
from tests.faults.fakes import Reply, failure
from tests.faults.world import World, submission

SCORES = {"m0": 10, "m1": 20, "m2": 60}


def scored(request: CallRequest, number: int) -> Reply:
    text = json.dumps({"rationale": f"of {request.model}", "score": SCORES[request.model]})
    return ProviderAnswer(text=text, model_returned="returned")


def second_fails(request: CallRequest, number: int) -> Reply:
    if request.model == "m1":
        return failure("refused", http_status=200)
    return scored(request, number)


async def report_of(world: World, job: Job) -> dict[str, Any]:
    services = world.api.services
    return await build_report(services, await read_status(services, world.jobs()[job.id]))


async def panel(script: Any = scored) -> tuple[World, Job]:
    world = World()
    world.provider.script = script
    job = await world.submit(submission(list(SCORES), required_seats=1))
    await world.finish()
    return world, job


async def test_a_complete_report_has_every_answer_and_its_statistics() -> None:
    """Scores come from the objects; mean, median and spread are over all seats."""
    report = await report_of(*await panel())
    assert report["complete"]
    assert report["missing"] == []
    assert [seat["score"] for seat in report["seats"]] == [10, 20, 60]
    assert report["seats"][0]["rationale"] == "of m0"
    assert report["seats"][0]["model_returned"] == "returned"
    summary = report["summary"]
    assert (summary["mean"], summary["median"]) == (30, 20)
    assert (summary["min"], summary["max"]) == (10, 60)
    assert summary["stdev"] == pytest.approx(26.4575, abs=1e-4)
    assert (summary["n"], summary["of"]) == (3, 3)


async def test_a_missing_seat_is_named_and_is_no_zero() -> None:
    """Statistics are over those that answered, and say of how many."""
    report = await report_of(*await panel(second_fails))
    assert not report["complete"]
    [missing] = report["missing"]
    assert (missing["seat"], missing["state"], missing["code"]) == ("fake/m1", "failed", "refused")
    assert missing["reason"]
    assert (report["summary"]["n"], report["summary"]["of"]) == (2, 3)
    assert (report["summary"]["mean"], report["summary"]["min"]) == (35, 10)


async def test_a_report_of_an_open_job_names_what_it_waits_for() -> None:
    """Before any answer the report is empty, and every seat is missing with its state."""
    world = World()
    job = await world.submit(submission(list(SCORES)))
    report = await report_of(world, job)
    assert [seat["state"] for seat in report["missing"]] == ["queued"] * 3
    assert report["summary"] == {
        "mean": None,
        "median": None,
        "min": None,
        "max": None,
        "stdev": None,
        "n": 0,
        "of": 3,
    }


async def test_a_lost_object_makes_its_seat_missing() -> None:
    """A success whose object is gone is never shown as an answer."""
    world, job = await panel()
    output = world.seats(job.id)[(1, 0)].output
    assert output is not None
    world.objects.lose(output.uri.removeprefix(world.objects.uri("")))
    report = await report_of(world, job)
    [missing] = report["missing"]
    assert (missing["seat"], missing["code"]) == ("fake/m0", "output_missing")
    assert (report["summary"]["n"], report["summary"]["mean"]) == (2, 40)


async def test_a_damaged_object_makes_its_seat_missing() -> None:
    """An object that does not match the recorded digest is not read as an answer."""
    world, job = await panel()
    output = world.seats(job.id)[(1, 2)].output
    assert output is not None
    name = output.uri.removeprefix(world.objects.uri(""))
    stored = world.objects._objects[name]
    world.objects._objects[name] = type(stored)(stored.stored, b"{}", stored.content_type)
    [missing] = (await report_of(world, job))["missing"]
    assert (missing["seat"], missing["code"]) == ("fake/m2", "output_damaged")


async def test_one_answer_has_no_spread() -> None:
    """A standard deviation needs two scores."""
    world = World()
    job = await world.submit(submission())
    await world.finish()
    summary = (await report_of(world, job))["summary"]
    assert (summary["n"], summary["stdev"]) == (1, None)


@pytest.mark.parametrize(("low", "unknown"), [(1.7e308, {"mean", "median"}), (-1.7e308, {"stdev"})])
async def test_scores_as_large_as_doubles_go_have_a_report(low: float, unknown: set[str]) -> None:
    """A figure that no double holds is null; the others, and the answers, are there."""
    scores = {"m0": low, "m1": 1.7e308}
    shape = {"type": "object", "properties": {"score": {"type": "number"}}}
    world = World()
    world.provider.script = lambda request, _: ProviderAnswer(
        text=json.dumps({"score": scores[request.model]}), model_returned="returned"
    )
    rubric = {"instructions": "Score.", "output_schema": shape}
    job = await world.submit(replace(submission(list(scores)), rubric=rubric))
    await world.finish()
    report = await report_of(world, job)
    assert report["complete"]
    summary = report["summary"]
    assert {name for name, figure in summary.items() if figure is None} == unknown
    assert (summary["min"], summary["max"], summary["n"]) == (low, 1.7e308, 2)
    json.dumps(report, allow_nan=False)
