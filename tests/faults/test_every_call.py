"""A job survives a fault at every single call of its path: accept, dispatch, evaluate, close.

Each case is one world in which exactly one call is struck, before or after it was applied; then
redelivery, the end of leases and repair follow until nothing is left to do.
"""

import pytest

from functions.core.jobs import JobState
from tests.faults.invariants import Broken
from tests.faults.matrix import (
    CAPPED,
    FATES,
    ONE,
    PATHS,
    SLOW,
    STORIES,
    Shape,
    path_of,
    problems,
    struck,
)
from tests.faults.processes import Fate, Moment
from tests.faults.world import World

PATH_OF_ONE_SEAT = [
    "api: commit create windows",
    "api: commit create jobs",
    "api: publish 1",
    "evaluate: get jobs, evaluations, seats",
    "evaluate: query providers",
    "evaluate: commit create evaluations",
    "evaluate: get terminals",
    "evaluate: commit update jobs",
    "evaluate: call",
    "evaluate: create object",
    "evaluate: commit update evaluations, create seats",
    "evaluate: commit create sightings",
    "evaluate: count",
    "evaluate: get seats",
    "evaluate: commit create terminals, create notifications, update jobs",
    "evaluate: publish 1",
]


def test_the_path_is_the_one_that_is_struck() -> None:
    """One seat's path has these calls, and each of them is struck below."""
    # Whether a call of one second meets the looks of the same second is not promised.
    calls = path_of(ONE)
    sent = calls.index("evaluate: call")
    path = calls[:sent] + [c for c in calls[sent:] if not c.startswith("evaluate: query")]
    assert path == PATH_OF_ONE_SEAT


def test_the_slow_path_has_renewals_and_looks_for_stops() -> None:
    """The slow shape really adds a renewal and looks for stops, so that they are struck too."""
    calls = path_of(SLOW)
    assert "evaluate: commit update evaluations" in calls
    assert "evaluate: query stops" in calls
    assert "evaluate: query providers" in calls[calls.index("evaluate: call") :]


def a_single_strike_costs_no_success(world: World) -> Broken:
    """However much is repeated after it, one strike costs no seat its success."""
    for job in world.jobs().values():
        if job.state is not JobState.SUCCEEDED:
            yield f"{job.id} is {job.state}"


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", Fate, ids=lambda f: f.value)
@pytest.mark.parametrize("shape", PATHS, ids=str)
def test_the_invariants_hold_whichever_call_is_struck(
    shape: Shape, fate: Fate, moment: Moment
) -> None:
    """A process that dies, freezes or is cut off at any call breaks no invariant."""
    assert problems(shape, fate, moment, also=a_single_strike_costs_no_success) == []


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("shape", STORIES, ids=str)
def test_the_invariants_hold_in_the_less_lucky_stories(
    shape: Shape, fate: Fate, moment: Moment
) -> None:
    """Repair, expiry, cancel, sharing and retries survive a strike at any of their calls too."""
    assert problems(shape, fate, moment) == []


@pytest.mark.parametrize("moment", Moment, ids=lambda m: m.value)
@pytest.mark.parametrize("fate", [Fate.DIE, Fate.FAIL], ids=lambda f: f.value)
def test_a_request_cap_holds_whichever_call_is_struck(fate: Fate, moment: Moment) -> None:
    """With a cap that binds, never more requests are sent than it allows, whatever is struck."""
    for description, world in struck(CAPPED, fate, moment):
        assert sum(world.sent().values()) <= CAPPED.policy["max_requests"], description
        assert all(job.state.is_terminal for job in world.jobs().values()), description
