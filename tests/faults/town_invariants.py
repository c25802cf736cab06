"""What must hold in a town at any moment, and what must hold when nothing is left to do.

Those of `tests.faults.invariants`, less the ones whose allowance a town needs wider, and more that
can be judged while work is under way.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from functions.core.jobs import JobState, Outcome
from tests.faults import invariants
from tests.faults.budget_invariants import all_attempts, every_ended_run_is_trued_up
from tests.faults.invariants import Broken
from tests.faults.town import Town


def every_open_job_has_a_timer(town: Town) -> Broken:
    """Repair finds each run that has no terminal record, whatever was lost."""
    for job in town.jobs().values():
        if not job.state.is_terminal and job.check_at is None:
            yield f"{job.id} is {job.state}, and nothing will look at it again"
        elif not job.state.is_terminal and job.check_at and job.check_at > job.deadline_at:
            yield f"{job.id} is looked at only after its deadline"


def unended_seats_of_stopped_runs_have_a_timer(town: Town) -> Broken:
    """A stopped run is looked at until each of its seats has a record."""
    for job in town.jobs().values():
        if job.state in (JobState.CANCELED, JobState.EXPIRED) and job.check_at is None:
            records = town.seats(job.id)
            missing = [i for i in range(len(job.seats)) if (job.run, i) not in records]
            if missing:
                yield f"{job.id} is {job.state} for good, seats {missing} have no record"


def no_answer_is_bought_twice(town: Town) -> Broken:
    """A question is asked again only when its answer was unusable, lost, cut or not wanted."""
    sent, unusable, cut = town.sent(), town.unusable(), town.cut()
    unwanted = Counter(
        seat.work_key
        for job in town.jobs().values()
        for seat in job.seats * job.run
        if not job.policy.reuse
    )
    for work_key, count in sent.items():
        allowed = 1 + town.observed.lost_calls[work_key] + unusable[work_key] + cut[work_key]
        allowed += town.lost_objects[work_key] + unwanted[work_key] + _not_stored(town, work_key)
        if count > allowed:
            yield f"{count} requests for one question, {allowed} can be explained"


def _not_stored(town: Town, work_key: str) -> int:
    """Return how many valid answers the bucket did not take."""
    attempts = all_attempts(town, work_key).values()
    return sum(a["outcome"] == Outcome.UNKNOWN and a.get("http_status") == 200 for a in attempts)


def a_success_stays(town: Town) -> Broken:
    """An output on record is given up only for an object of another name, a success never."""
    for change in invariants._changes(town, "evaluations"):
        before, after = change.before or {}, change.after
        output, name = before.get("output"), after.get("object_name", "")
        given_up = output if output != after.get("output") else None
        if given_up is not None and given_up["uri"].endswith("/" + name):
            yield f"the output {name} was given up for itself"
        ended = {a["token"]: a["outcome"] for a in before.get("attempts", ())}
        for attempt in after["attempts"]:
            was = ended.get(attempt["token"])
            if was in ("succeeded", "permanent") and attempt["outcome"] != was:
                yield f"attempt {attempt['token']}: {was} became {attempt['outcome']}"


def incidents_are_about_lost_objects(town: Town) -> Broken:
    """Operators are called for objects that are gone, once each, and for nothing else."""
    found = town.incidents()
    wrong = [(i["kind"], i["detail"]) for i in found if i["kind"] != "output_missing"]
    if wrong:
        yield f"incidents: {wrong}"
    if len(found) > sum(town.lost_objects.values()):
        yield f"{len(found)} incidents, {sum(town.lost_objects.values())} lost objects"


Check = Callable[[Town], Broken]
WIDER = {
    invariants.extra_requests_only_for_calls_in_flight,  # `no_answer_is_bought_twice`
    invariants.late_failure_never_replaces_success,  # `a_success_stays`
    invariants.no_unexpected_incident,  # `incidents_are_about_lost_objects`
}
AT_THE_END = {
    invariants.every_accepted_job_ends,
    invariants.nothing_left_undone,
    every_ended_run_is_trued_up,
}
ALWAYS: tuple[Check, ...] = (
    *(check for check in invariants.INVARIANTS if check not in WIDER | AT_THE_END),
    every_open_job_has_a_timer,
    unended_seats_of_stopped_runs_have_a_timer,
    no_answer_is_bought_twice,
    a_success_stays,
    incidents_are_about_lost_objects,
)
IN_THE_END: tuple[Check, ...] = tuple(
    check for check in invariants.INVARIANTS if check in AT_THE_END
)


def demand(town: Town, checks: Iterable[Check]) -> None:
    """Fail with what breaks these checks, by name."""
    found = {check.__name__: list(check(town)) for check in checks}
    broken = {name: texts for name, texts in found.items() if texts}
    if broken:
        raise AssertionError(f"broken: {broken}")
