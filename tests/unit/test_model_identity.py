"""Which model really answered: drift of an alias, and seats that turned out to be one model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from functions.core.jobs import Job, Seat, SeatRecord, SeatState, Sighting
from functions.core.model_identity import PanelWarning, alias_of, panel_warnings
from functions.core.verdicts import CallRequest, ProviderAnswer
from functions.reports import build_report
from functions.sightings import MOST_NAMES
from functions.statuses import attempts_view, job_view, read_status
from tests.faults.fakes import Reply, failure
from tests.faults.processes import Fate, Moment, Strike
from tests.faults.world import World, submission
from tests.unit.records import at, job, output

# The rules


def panel(*models: str, **fields: Any) -> Job:
    """Return a job with a seat for each model, all at one endpoint."""
    seats = tuple(
        Seat(seat=f"s{i}", provider="p", model=m, sample=i, work_key=f"{i}", endpoint="e")
        for i, m in enumerate(models)
    )
    return job(seats=seats, **fields)


def answered(index: int, name: str | None, *before: str, **fields: Any) -> SeatRecord:
    """Return the record of a seat that was answered under a name, after others."""
    names = dict.fromkeys([*before, name])
    return SeatRecord(
        run=1,
        index=index,
        seat=f"s{index}",
        state=SeatState.SUCCEEDED,
        work_key=f"{index}",
        ended_at=at(9),
        output=output(model_returned=name, **fields),
        models_returned=tuple(n for n in names if n),
    )


def sighted(asked: Job, **seen: float) -> dict[str, Sequence[Sighting]]:
    """Return when names were first seen for the alias of the first seat, in seconds."""
    alias = alias_of(asked, 0)
    return {
        alias: [Sighting(alias=alias, model_returned=n, seen_at=at(t)) for n, t in seen.items()]
    }


def codes(warnings: Sequence[PanelWarning]) -> list[tuple[str, tuple[str, ...]]]:
    return [(warning.code, warning.seats) for warning in warnings]


def test_one_name_for_each_seat_is_nothing_to_warn_of() -> None:
    """Different models under different names, known for long."""
    asked = panel("a", "b")
    seats = [answered(0, "a-1"), answered(1, "b-1")]
    known = sighted(asked, **{"a-1": -100})
    assert panel_warnings(asked, seats, known, until=at(9)) == []


def test_a_question_that_was_answered_under_two_names_is_flagged() -> None:
    """Also when the earlier attempt failed, and when it was another job's."""
    asked = panel("best")
    [warning] = panel_warnings(asked, [answered(0, "best-2", "best-1")], {}, until=at(9))
    assert (warning.code, warning.seats) == ("model_drift", ("s0",))
    assert "best-1, then best-2" in warning.detail


def test_seats_of_one_model_with_different_names_are_flagged_together() -> None:
    """Samples of one model that were answered by two."""
    asked = panel("best", "best", "other")
    seats = [answered(0, "best-1"), answered(1, "best-2"), answered(2, "o")]
    assert codes(panel_warnings(asked, seats, {}, until=at(9))) == [("model_drift", ("s0", "s1"))]


@pytest.mark.parametrize(
    ("newer_at", "flagged"),
    [(4.0, False), (6.0, True), (9.0, True), (9.5, False)],
    ids=["before the answer", "after it", "at the end", "after the run"],
)
def test_a_stored_answer_is_flagged_once_its_model_has_another_name(
    newer_at: float, flagged: bool
) -> None:
    """The answer was stored at 5 s, the run ended at 9 s: what came later changes no report."""
    asked = panel("best")
    known = sighted(asked, **{"best-1": 1, "best-2": newer_at})
    found = panel_warnings(asked, [answered(0, "best-1", stored_at=at(5))], known, until=at(9))
    assert codes(found) == ([("model_drift", ("s0",))] if flagged else [])


def test_the_first_answer_under_a_new_name_is_flagged_and_later_ones_are_not() -> None:
    """A change is news once: to the run that met it."""
    asked = panel("best", run_at=at(0))
    seats = [answered(0, "best-2", stored_at=at(5))]
    new = sighted(asked, **{"best-1": -100, "best-2": 5})
    old = sighted(asked, **{"best-1": -100, "best-2": -50})
    [warning] = panel_warnings(asked, seats, new, until=at(9))
    assert warning.code == "model_drift"
    assert "best-2 for the first time, by best-1 before" in warning.detail
    assert panel_warnings(asked, seats, old, until=at(9)) == []


def test_seats_that_turn_out_to_be_one_model_are_flagged() -> None:
    """Different names were asked for, one model answered."""
    asked = panel("fast", "best", "other")
    seats = [answered(0, "m-1"), answered(1, "m-1"), answered(2, "o")]
    [warning] = panel_warnings(asked, seats, {}, until=at(9))
    assert (warning.code, warning.seats) == ("same_model", ("s0", "s1"))
    assert "fast, best were all answered by m-1" in warning.detail


def test_samples_of_one_model_are_meant_to_be_the_same() -> None:
    """Two seats that ask for one name, at one endpoint or at two, are no surprise."""
    asked = panel("m", "m")
    elsewhere = replace(asked, seats=(asked.seats[0], replace(asked.seats[1], endpoint="other")))
    for one in (asked, elsewhere):
        seats = [answered(0, "m-1"), answered(1, "m-1")]
        assert panel_warnings(one, seats, {}, until=at(9)) == []


def test_seats_without_a_name_are_not_taken_for_one_model() -> None:
    """A server that does not say which model answered proves nothing."""
    seats = [answered(0, None), answered(1, None)]
    assert panel_warnings(panel("a", "b"), seats, {}, until=at(9)) == []


# In a world


def naming(*names: str) -> Callable[[CallRequest, int], Reply]:
    """Return a script that answers under these names, one after the other."""
    given = iter(names)

    def script(request: CallRequest, number: int) -> Reply:
        text = json.dumps({"rationale": "r", "score": 1})
        return ProviderAnswer(text=text, model_returned=next(given))

    return script


async def report_of(world: World, submitted: Job) -> dict[str, Any]:
    services = world.api.services
    return await build_report(services, await read_status(services, world.jobs()[submitted.id]))


async def ended(world: World, *models: str, **fields: Any) -> tuple[Job, dict[str, Any]]:
    submitted = await world.submit(submission(models or ("best",), **fields))
    await world.finish()
    return submitted, await report_of(world, submitted)


def drifting(report: dict[str, Any]) -> list[str]:
    return [seat for w in report["warnings"] if w["code"] == "model_drift" for seat in w["seats"]]


async def test_requested_and_returned_model_stand_in_every_record() -> None:
    """Seat, attempt, report and terminal record name both."""
    world = World()
    world.provider.script = naming("best-1")
    submitted, report = await ended(world)
    status = await read_status(world.api.services, world.jobs()[submitted.id])
    view, [attempt] = job_view(status), attempts_view(status)["attempts"]
    both = ("best", "best-1")
    assert (attempt["model_requested"], attempt["model_returned"]) == both
    assert (view["seats"][0]["model"], view["seats"][0]["model_returned"]) == both
    assert view["terminal"]["models"] == [
        {"seat": "fake/best", "model_requested": "best", "model_returned": "best-1"}
    ]
    [seat] = report["seats"]
    assert (seat["model_requested"], seat["model_returned"]) == both
    assert report["warnings"] == []


async def test_a_reused_answer_of_a_model_that_has_changed_since_is_flagged() -> None:
    """The alias was repointed, as another question showed: the reuse says so (A31)."""
    world = World()
    world.provider.script = naming("best-1", "best-2")
    first, before = await ended(world, key="1")
    world.clock.advance(60)
    _, other = await ended(world, key="2", question="other")
    _, again = await ended(world, key="3")
    assert sum(world.provider.sent.values()) == 2
    assert drifting(before) == []
    assert drifting(other) == ["fake/best"]
    assert drifting(again) == ["fake/best"]
    assert again["seats"][0]["model_returned"] == "best-1"
    assert await report_of(world, first) == before


async def test_a_question_bought_again_under_another_name_is_flagged() -> None:
    """The same request, sent afresh, was answered by another model than the first time."""
    world = World()
    world.provider.script = naming("best-1", "best-2", "best-2")
    await ended(world, key="1")
    _, other = await ended(world, key="2", question="other")
    _, fresh = await ended(world, key="3", reuse=False)
    assert drifting(other) == ["fake/best"]
    assert drifting(fresh) == ["fake/best"]
    [warning] = fresh["warnings"]
    assert "best-1, then best-2" in warning["detail"]


async def test_a_change_between_two_attempts_of_a_seat_is_flagged() -> None:
    """The first attempt was cut short by one model, the second answered by another."""
    world = World()

    def script(request: CallRequest, number: int) -> Reply:
        if number == 1:
            return failure("invalid_output", http_status=200, model_returned="best-1")
        return naming("best-2")(request, number)

    world.provider.script = script
    _, report = await ended(world)
    assert drifting(report) == ["fake/best"]


async def test_two_seats_of_one_model_are_flagged_in_the_report() -> None:
    """Two names, one model behind them."""
    world = World()
    world.provider.script = naming("m-1", "m-1")
    _, report = await ended(world, "fast", "best")
    [warning] = report["warnings"]
    assert (warning["code"], set(warning["seats"])) == ("same_model", {"fake/fast", "fake/best"})


async def test_a_sighting_that_cannot_be_written_costs_nothing_but_itself() -> None:
    """The answer stays, the run closes; the next answer under the name is noted instead."""
    world = World()
    world.provider.script = naming("best-1", "best-1")
    name = "evaluate: commit create sightings"
    world.plan.always = {name: Strike(fate=Fate.FAIL, moment=Moment.BEFORE)}
    _, report = await ended(world, key="1")
    assert report["complete"]
    assert not [path for path in world.ledger.stored() if path.startswith("sightings/")]
    world.plan.always = {}
    await ended(world, key="2", question="other")
    assert len([path for path in world.ledger.stored() if path.startswith("sightings/")]) == 1


async def test_a_server_that_names_every_answer_anew_is_not_followed_for_ever() -> None:
    """The names of one alias are bounded."""
    world = World()
    sightings = world.evaluator.services.sightings
    for number in range(MOST_NAMES + 5):
        await sightings.note("alias", f"name-{number}")
    assert len((await sightings.known(["alias"]))["alias"]) == MOST_NAMES


async def test_what_one_tenant_has_seen_is_not_told_another() -> None:
    """An alias belongs to a tenant, an endpoint and a model."""
    one = panel("m")
    assert alias_of(one, 0) != alias_of(replace(one, tenant="other"), 0)
    assert alias_of(one, 0) != alias_of(panel("n"), 0)
