"""The invariants of budgets: of a run, and of a tenant's day. Each returns what breaks it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from functions.core.budgets import budget_of, cap_nano_usd, in_usd, key, nano_usd, trued_up
from functions.core.documents import budget_path, tenant_day_path
from functions.core.jobs import Job
from tests.faults.world import World

Broken = Iterator[str]


def reservations_never_pass_the_cap(world: World) -> Broken:
    """At no time are more requests or is more money reserved than the run's caps allow.

    The fake provider never writes more than its worst case, so that no true-up adds anything.
    """
    jobs = {
        budget_path(job.id, run): job
        for job in world.jobs().values()
        for run in range(1, job.run + 1)
    }
    for change in world.ledger.history:
        if change.collection != "budgets":
            continue
        held, policy = change.after["reservations"], jobs[change.path].policy
        if policy.max_requests is not None and len(held) > policy.max_requests:
            yield f"{change.path}: {len(held)} reserved, {policy.max_requests} allowed"
        spent = sum(held.values())
        if policy.max_cost_usd is not None and spent > cap_nano_usd(policy.max_cost_usd):
            yield f"{change.path}: {in_usd(spent)} USD reserved, {policy.max_cost_usd} allowed"


def every_request_of_a_capped_run_is_reserved(world: World) -> Broken:
    """What a run may have sent is in its budget, at no less than it cost or may have cost."""
    stored = world.ledger.stored()
    for job in world.jobs().values():
        caps = budget_of(job)
        if not caps.any:
            continue
        for run in range(1, job.run + 1):
            held = stored.get(budget_path(job.id, run), {}).get("reservations", {})
            sent = _sent(world, job, run)
            missing = sent.keys() - held.keys()
            if missing:
                yield f"{job.id}.{run}: attempts {sorted(missing)} are not in its budget"
            for name in sent.keys() & held.keys() if caps.nano_usd is not None else ():
                if held[name] < sent[name]:
                    yield f"{job.id}.{run}: attempt {name} holds {held[name]} of {sent[name]}"


def a_day_is_the_sum_of_its_runs(world: World) -> Broken:
    """What a tenant's day holds is what its runs hold of it, to the last nano-dollar."""
    requests: Counter[str] = Counter()
    money: Counter[str] = Counter()
    for tenant, day in _parts(world).values():
        path = tenant_day_path(tenant, day["day"])
        requests[path] += day.get("requests", 0)
        money[path] += day.get("nano_usd", 0)
    days = _days(world)
    for path in requests.keys() | days.keys():
        held = days.get(path, {"requests": 0, "nano_usd": 0})
        if (held["requests"], held["nano_usd"]) != (requests[path], money[path]):
            yield f"{path} holds {held}, its runs hold {requests[path]} and {money[path]}"


def a_day_is_trued_up_once_all_seats_have_ended(world: World) -> Broken:
    """A run's part changes once, to what its seats' records say; never before, never again."""
    for job in world.jobs().values():
        if job.day is None or not job.day.final:
            continue
        records = [world.seats(job.id).get((job.run, i)) for i in range(len(job.seats))]
        ended = [record for record in records if record is not None]
        if len(ended) < len(records):
            yield f"{job.id} was trued up before its seats had ended"
        real = trued_up(job, job.day, [a for record in ended for a in record.attempts])
        if real != job.day:
            yield f"{job.id} was trued up to {job.day}, its seats say {real}"
    for change in world.ledger.history:
        before, after = change.before or {}, change.after
        day = before.get("day") or {}
        if change.collection != "jobs" or not day:
            continue
        if before["run"] == after["run"] and day.get("final") and after["day"] != day:
            yield f"{change.path} was trued up again"
        if before["run"] < after["run"] and not day.get("final"):
            yield f"{change.path} was replayed before run {before['run']} was trued up"


def acceptances_never_pass_the_days_cap(world: World) -> Broken:
    """A job is accepted only while the sum of the day, with its own part, is within the caps."""
    created: defaultdict[Any, list[str]] = defaultdict(list)
    for change in world.ledger.history:
        if change.collection in ("jobs", "runs") and change.before is None:
            created[change.at].append(change.after["tenant"])
    for change in world.ledger.history:
        if change.collection != "tenant_days" or change.at not in created:
            continue
        caps = world.settings.tenant_caps.of(change.after["tenant"])
        for cap, used in (
            (caps.requests, change.after["requests"]),
            (caps.nano_usd, change.after["nano_usd"]),
        ):
            if cap is not None and used > cap:
                yield f"{change.path}: {used} of {cap} after an acceptance"


def every_ended_run_is_trued_up(world: World) -> Broken:
    """In the end no run holds its worst case any more."""
    for job in world.jobs().values():
        if job.day is not None and not job.day.final:
            yield f"{job.id} is {job.state}, and its day was not trued up"


BUDGETS = (
    reservations_never_pass_the_cap,
    every_request_of_a_capped_run_is_reserved,
    a_day_is_the_sum_of_its_runs,
    a_day_is_trued_up_once_all_seats_have_ended,
    acceptances_never_pass_the_days_cap,
)


def _parts(world: World) -> dict[tuple[str, int], tuple[str, Mapping[str, Any]]]:
    """Return what each run holds of which tenant's day, as it was last written."""
    parts: dict[tuple[str, int], tuple[str, Mapping[str, Any]]] = {}
    for change in world.ledger.history:
        if change.collection == "jobs" and change.after.get("day"):
            parts[(change.path, change.after["run"])] = change.after["tenant"], change.after["day"]
    return parts


def _sent(world: World, job: Job, run: int) -> dict[str, int]:
    """Return the attempts that a run's seats may have sent: what they cost, or may have cost."""
    found: dict[str, int] = {}
    for seat in {seat.work_key for seat in job.seats}:
        for attempt in all_attempts(world, seat).values():
            if (attempt["job"], attempt["run"]) == (job.id, run) and attempt["sent"]:
                cost, worst = attempt.get("cost_usd"), job.seats[attempt["seat"]].worst_nano_usd
                name = key(attempt["seat"], attempt["number"])
                found[name] = (worst or 0) if cost is None else nano_usd(cost)
    return found


def all_attempts(world: World, work_key: str) -> dict[int, Mapping[str, Any]]:
    """Return every attempt that was ever on an evaluation, as last written, by token."""
    found: dict[int, Mapping[str, Any]] = {}
    for change in world.ledger.history:
        if change.collection == "evaluations" and change.after["work_key"] == work_key:
            found |= {attempt["token"]: attempt for attempt in change.after["attempts"]}
    return found


def _days(world: World) -> dict[str, Mapping[str, Any]]:
    stored = world.ledger.stored()
    return {path: data for path, data in stored.items() if path.startswith("tenant_days/")}
