"""The invariants of the design, each a function of what a world has on record and has seen.

Each returns what breaks it, in words; nothing means that it holds.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from functions.core.jobs import Job, JobState, Outcome, SeatState
from functions.core.leases import KEPT_ATTEMPTS, MAX_INTERRUPTIONS
from functions.core.versions import RECORDS
from tests.faults.budget_invariants import BUDGETS, all_attempts, every_ended_run_is_trued_up
from tests.faults.fakes import Change
from tests.faults.world import World

Broken = Iterator[str]
TERMINAL = {state.value for state in JobState if state.is_terminal}


def one_terminal_record_per_run(world: World) -> Broken:
    """A run's terminal record is created once, with the head, and never touched again."""
    for change in _changes(world, "terminals"):
        if change.before is not None:
            yield f"{change.path} was written again"
    for job in world.jobs().values():
        if job.state.is_terminal != (job.run in world.terminals(job.id)):
            yield f"{job.id} is {job.state} beside terminal records {world.terminals(job.id)}"
        elif job.state.is_terminal and world.terminals(job.id)[job.run].state is not job.state:
            yield f"{job.id} is {job.state}, its terminal record is not"
        for run in set(range(1, job.run)) - world.terminals(job.id).keys():
            yield f"{job.id} is in run {job.run}, and run {run} has no terminal record"


def every_run_is_counted_once(world: World) -> Broken:
    """A window's runs are the jobs and the replays that name it: each run stands in one of them."""
    heads = {job.id: job for job in world.jobs().values()}
    expected = {f"runs/{job.id}.{run}" for job in heads.values() for run in range(2, job.run + 1)}
    stored = {p: data for p, data in world.ledger.stored().items() if p.startswith("runs/")}
    if stored.keys() != expected:
        yield f"replays on record: {sorted(stored)}, runs of the jobs: {sorted(expected)}"
    for path, run in stored.items():
        job = heads.get(run["job"])
        if job is not None and run["run"] == job.run and run["window"] != job.run_window:
            yield f"{path} counts in {run['window']}, its job says {job.run_window}"
    for change in _changes(world, "runs"):
        if change.before is not None:
            yield f"{change.path} was written again"


def a_closed_head_stays_closed(world: World) -> Broken:
    """Nothing moves a job out of a terminal state within its run."""
    for change in _changes(world, "jobs"):
        before = change.before or {}
        same_run = before.get("run") == change.after["run"]
        if same_run and before["state"] in TERMINAL and before["state"] != change.after["state"]:
            yield f"{change.path}: {before['state']} became {change.after['state']}"


def a_run_closes_after_its_seats(world: World) -> Broken:
    """A run succeeds or fails only when each seat has its record, and says what they say."""
    ended: dict[str, str] = {}
    for change in world.ledger.history:
        if change.collection == "seats":
            ended[change.path] = change.after["state"]
        if change.collection == "terminals" and change.after["state"] in ("succeeded", "failed"):
            if change.after.get("stopped"):
                continue  # a stopped replay whose carried successes are enough
            parent = change.path.rsplit("/", 2)[0]
            run = change.after["run"]
            for index, seat in enumerate(change.after["seats"]):
                if ended.get(f"{parent}/seats/{run}.{index}") != seat["state"]:
                    yield f"{change.path} says {seat['state']} of seat {index} before its record"


def ended_seats_never_change(world: World) -> Broken:
    """A seat's record is created once: no late result replaces it."""
    for change in _changes(world, "seats"):
        if change.before is not None:
            yield f"{change.path} was written again"


def success_implies_the_object(world: World) -> Broken:
    """A seat succeeds only when its object is there, and the object stays the one on record."""
    for change in _changes(world, "seats"):
        if change.after["state"] != "succeeded":
            continue
        output = change.after["output"]
        name = output["uri"].removeprefix(world.objects.uri(""))
        if name not in change.objects:
            yield f"{change.path} succeeded without {name}"
            continue
        stored = world.objects._objects.get(name)
        if stored is None:
            continue  # lost after the success: what the audit is for
        if sha256(stored.data).hexdigest() != output["sha256"]:
            yield f"{change.path}: {name} has another digest"
        if stored.stored.generation != output["generation"]:
            yield f"{change.path}: {name} has another generation"


def requests_le_attempts_le_budget(world: World) -> Broken:
    """Each request was on record before it was sent, and no seat has more than its budget."""
    yield from (f"sent before it was recorded: {text}" for text in world.observed.unrecorded_sends)
    sent, tokens = world.sent(), {key: e.token for key, e in world.evaluations().items()}
    for key, count in sent.items():
        if count > tokens.get(key, 0):
            yield f"{count} requests sent, {tokens.get(key, 0)} attempts recorded"
    for job, run in _runs(world):
        for seat in job.seats:
            asked = all_attempts(world, seat.work_key).values()
            own = [a for a in asked if (a["job"], a["run"]) == (job.id, run)]
            tries = [a for a in own if a["outcome"] != Outcome.CANCELED]
            if len(tries) > job.policy.max_attempts:
                yield f"{seat.seat}: {len(tries)} tries of {job.policy.max_attempts}"
            if len(own) - len(tries) > MAX_INTERRUPTIONS:
                yield f"{seat.seat}: {len(own) - len(tries)} interruptions"


def extra_requests_only_for_calls_in_flight(world: World) -> Broken:
    """A question is asked again only after a failure, a cut, a purge, or a strike at its call."""
    lost, unusable = world.observed.lost_calls, world.unusable()
    purged = _purged_answers(world)
    for key, count in world.sent().items():
        attempts = all_attempts(world, key).values()
        cut = sum(a["outcome"] == Outcome.CANCELED and a["sent"] for a in attempts)
        if count > 1 + lost[key] + unusable[key] + cut + purged[key]:
            yield f"{count} requests sent, {lost[key]} answers lost, {unusable[key]} unusable"


def _purged_answers(world: World) -> Counter[str]:
    """Return how often an answer, or the right to bring one, was taken away on purpose."""
    found: Counter[str] = Counter()
    for change in _changes(world, "evaluations"):
        before = (change.before or {}).get("purged", [])
        found[change.after["work_key"]] += change.after.get("purged", []) != before
    return found


def holder_and_token_guard_every_write(world: World) -> Broken:
    """Tokens count up, attempts are only added to and ended, no live lease is taken over."""
    for change in _changes(world, "evaluations"):
        before = change.before
        if before is None:
            continue
        after = change.after
        if after["token"] < before["token"]:
            yield f"token {before['token']} became {after['token']}"
        yield from _lost_attempts(before, after)
        taken = after["token"] > before["token"] and before.get("holder") is not None
        if taken and before["lease_until"] > change.at:
            yield f"token {after['token']} was given while {before['holder']} held the lease"
        if after["token"] == before["token"] and after.get("holder") not in (
            None,
            before.get("holder"),
        ):
            yield f"the holder changed under token {after['token']}"


def late_failure_never_replaces_success(world: World) -> Broken:
    """An output or a success on record stays; only another epoch gives an output up."""
    for change in _changes(world, "evaluations"):
        before, after = change.before or {}, change.after
        replaced = before.get("output") is not None and before["output"] != after.get("output")
        if replaced and after["epoch"] == before["epoch"]:
            yield f"an output was replaced within epoch {after['epoch']}"
        old = {a["token"]: a["outcome"] for a in before.get("attempts", ())}
        for attempt in after["attempts"]:
            was = old.get(attempt["token"])
            if was in ("succeeded", "permanent") and attempt["outcome"] != was:
                yield f"attempt {attempt['token']}: {was} became {attempt['outcome']}"


def no_request_after_the_end(world: World) -> Broken:
    """A claim that was committed after its run's terminal record sends nothing."""
    closed: set[tuple[str, int]] = set()
    for change in world.ledger.history:
        if change.collection == "terminals":
            closed.add((change.after["job"], change.after["run"]))
        if change.collection == "evaluations":
            before = (change.before or {}).get("token", 0)
            last = change.after["attempts"][-1] if change.after["attempts"] else None
            if last is None or change.after["token"] <= before:
                continue
            sent = (change.after["work_key"], last["token"]) in world.observed.sent_under
            if sent and (last["job"], last["run"]) in closed:
                yield f"attempt {last['token']} was claimed and sent after its run had ended"


def acked_work_is_on_record(world: World) -> Broken:
    """An acked message has its seat ended, a timer ahead, or a fresh message published."""
    yield from world.observed.hollow_acks


def every_accepted_job_ends(world: World) -> Broken:
    """Each accepted run has its terminal record, and each of its seats a record of its own."""
    for job in world.jobs().values():
        if not job.state.is_terminal:
            yield f"{job.id} is {job.state}"
    for job, run in _runs(world):
        for index in range(len(job.seats)):
            if (run, index) not in world.seats(job.id):
                yield f"{job.id}: seat {index} has no record in run {run}"


def nothing_left_undone(world: World) -> Broken:
    """No timer, no message and no live lease is left."""
    for job in world.jobs().values():
        if job.check_at is not None:
            yield f"{job.id} is still to be checked"
    for state in world.evaluations().values():
        if state.wake_at is not None:
            yield f"an evaluation is still to be woken at {state.wake_at}"
        if state.lease_until is not None and state.lease_until > world.clock.now():
            yield f"{state.holder} still holds a lease"
    if world.pending:
        yield f"{len(world.pending)} messages are left"


def no_unexpected_incident(world: World) -> Broken:
    """Operators are called only for what they must look at."""
    found = world.incidents()
    if len(found) != world.observed.expected_incidents:
        yield f"incidents: {[(i['kind'], i['detail']) for i in found]}"


def attempts_are_listed_once(world: World) -> Broken:
    """Seat records list their own attempts, ended, numbered from 1 without a gap."""
    for job in world.jobs().values():
        for record in world.seats(job.id).values():
            numbers = [attempt.number for attempt in record.attempts]
            if numbers != list(range(1, len(numbers) + 1)):
                yield f"{record.seat}: attempts {numbers}"
            if any(attempt.ended_at is None for attempt in record.attempts):
                yield f"{record.seat} ended with an attempt that has not"
            bought = [a for a in record.attempts if a.outcome is Outcome.SUCCEEDED]
            if record.state is SeatState.SUCCEEDED and not record.reused and not bought:
                yield f"{record.seat} succeeded, neither reused nor bought"


def every_closed_run_has_one_notification(world: World) -> Broken:
    """It is created once, with the terminal record, and says what that says."""
    made = [c for c in _changes(world, "notifications") if c.before is None]
    by_run = {(c.after["job"], c.after["run"]): c for c in made}
    if len(by_run) != len(made):
        yield f"{len(made)} notifications for {len(by_run)} runs"
    ended = {
        (c.after["job"], c.after["run"]): c for c in _changes(world, "terminals") if not c.before
    }
    if by_run.keys() != ended.keys():
        yield f"notifications {sorted(by_run)}, ended runs {sorted(ended)}"
    for run, told in by_run.items():
        data = json.loads(told.after["body"])["data"]
        if run in ended and (told.at, data["state"]) != (ended[run].at, ended[run].after["state"]):
            yield f"{told.path} was not made with its terminal record"


def a_notification_touches_nothing_else(world: World) -> Broken:
    """What becomes of it changes neither its bytes nor any record of its run."""
    beside = {"notifications", "repairs"}
    moved = [c for c in _changes(world, "notifications") if c.before is not None]
    for change in moved:
        assert change.before is not None
        if change.before["body"] != change.after["body"]:
            yield f"{change.path}: its bytes changed"
    times = {change.at for change in moved}
    for change in world.ledger.history:
        if change.at in times and change.collection not in beside:
            yield f"{change.path} was changed with a notification"


def replays_carry_what_was_there(world: World) -> Broken:
    """A carried success is the one of the run before, and nothing of it is bought again."""
    for job in world.jobs().values():
        records = world.seats(job.id)
        for (run, index), record in records.items():
            before = records.get((run - 1, index))
            succeeded = before is not None and before.state is SeatState.SUCCEEDED
            if record.carried != succeeded:
                yield f"{job.id} run {run} seat {index}: carried {record.carried}, was {before}"
            elif record.carried and before and record.output != before.output:
                yield f"{job.id} run {run} seat {index} carries another output"


def every_record_has_its_version(world: World) -> Broken:
    """Whatever was written at any time names the version of its form, which the table has."""
    known = {form.where.rpartition("/")[2]: form.written for form in RECORDS}
    for change in world.ledger.history:
        if change.after.get("v") != known.get(change.collection, "none"):
            yield f"{change.path} was written as version {change.after.get('v')}"


INVARIANTS: tuple[Callable[[World], Broken], ...] = (
    one_terminal_record_per_run,
    every_run_is_counted_once,
    replays_carry_what_was_there,
    a_closed_head_stays_closed,
    a_run_closes_after_its_seats,
    ended_seats_never_change,
    success_implies_the_object,
    requests_le_attempts_le_budget,
    extra_requests_only_for_calls_in_flight,
    holder_and_token_guard_every_write,
    late_failure_never_replaces_success,
    no_request_after_the_end,
    acked_work_is_on_record,
    every_accepted_job_ends,
    nothing_left_undone,
    no_unexpected_incident,
    attempts_are_listed_once,
    every_closed_run_has_one_notification,
    a_notification_touches_nothing_else,
    *BUDGETS,
    every_ended_run_is_trued_up,
    every_record_has_its_version,
)


def broken(world: World, *also: Callable[[World], Broken]) -> dict[str, list[str]]:
    """Return what breaks the invariants, and `also` other promises, by name."""
    found = {check.__name__: list(check(world)) for check in (*INVARIANTS, *also)}
    return {name: texts for name, texts in found.items() if texts}


def _runs(world: World) -> Iterator[tuple[Job, int]]:
    """Yield each run of each job."""
    return ((job, run) for job in world.jobs().values() for run in range(1, job.run + 1))


def _changes(world: World, collection: str) -> Iterator[Change]:
    return (change for change in world.ledger.history if change.collection == collection)


def _lost_attempts(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    tokens = {attempt["token"] for attempt in after["attempts"]}
    for attempt in before["attempts"]:
        if attempt["token"] not in tokens and len(after["attempts"]) < KEPT_ATTEMPTS:
            yield f"attempt {attempt['token']} is gone from the record"
