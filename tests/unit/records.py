"""Records for tests: complete ones to start from, and evaluations with attempts."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from functions.core.jobs import (
    Attempt,
    DayReservation,
    Digests,
    Evaluation,
    Inputs,
    Job,
    JobState,
    Outcome,
    Output,
    Policy,
    Seat,
    SeatError,
    SeatOutcome,
    SeatRecord,
    SeatState,
    Terminal,
    Totals,
    Usage,
    Wake,
)
from functions.core.leases import Claimant
from tests.virtual_clock import START

KEY = "a" * 64
NAME = f"outputs/tenant/2026-11-29T12/{KEY}/0.json"


def at(seconds: float) -> datetime:
    """Return the moment so many seconds after the start of all tests."""
    return START + timedelta(seconds=seconds)


def attempt(token: int = 1, outcome: Outcome = Outcome.RETRYABLE, **fields: Any) -> Attempt:
    """Return an attempt of job `job`, run 1, seat 0; it ended unless its outcome is `running`."""
    values: dict[str, Any] = {
        "job": "job",
        "run": 1,
        "seat": 0,
        "number": token,
        "holder": f"holder{token}",
        "token": token,
        "started_at": at(1),
        "outcome": outcome,
        "ended_at": None if outcome is Outcome.RUNNING else at(2),
    }
    return Attempt(**values | fields)


def evaluation(*attempts: Attempt, **fields: Any) -> Evaluation:
    """Return an evaluation with these attempts; the last one's token is its own."""
    token = attempts[-1].token if attempts else 0
    values: dict[str, Any] = {"tenant": "tenant", "work_key": KEY, "attempts": attempts}
    return Evaluation(**values | {"token": token} | fields)


def held(holder: str = "holder1", until: datetime | None = None, **fields: Any) -> Evaluation:
    """Return an evaluation that a live lease holds."""
    return evaluation(
        attempt(1, Outcome.RUNNING, holder=holder),
        holder=holder,
        lease_until=until or at(30),
        object_name=NAME,
        **fields,
    )


def output(**fields: Any) -> Output:
    """Return an output as stored by the first claim."""
    values: dict[str, Any] = {
        "uri": f"gs://bucket/{NAME}",
        "generation": 7,
        "sha256": "b" * 64,
        "stored_at": at(5),
        "model_returned": "m-1",
        "usage": Usage(input_tokens=10, output_tokens=2),
        "cost_usd": 0.25,
    }
    return Output(**values | fields)


def claimant(**fields: Any) -> Claimant:
    """Return a claimant of seat 0 of `job`, which was asked for at the start."""
    values: dict[str, Any] = {
        "job": "job",
        "run": 1,
        "seat": 0,
        "tenant": "tenant",
        "work_key": KEY,
        "window": "2026-11-29T12",
        "holder": "me",
        "lease_seconds": 30.0,
        "run_at": at(0),
        "max_attempts": 4,
        "reuse_since": at(-3600),
    }
    return Claimant(**values | fields)


def job(**fields: Any) -> Job:
    """Return an accepted job of one seat."""
    values: dict[str, Any] = {
        "id": "job",
        "tenant": "tenant",
        "decision_id": "dec",
        "digests": Digests(request="r", facts="f", rubric="u", policy="p", prompt="o"),
        "seats": (
            Seat(seat="fake/m0", provider="fake", model="m0", sample=0, work_key=KEY, endpoint="e"),
        ),
        "policy": Policy(required_seats=1),
        "policy_revision": "2026-11-29",
        "owner": "owner",
        "window": "2026-11-29T12",
        "submitted_at": at(0),
        "expire_at": at(86_400),
        "inputs": Inputs(facts="{}", rubric='{"instructions":"i"}'),
        "run_window": "2026-11-29T12",
        "run_at": at(0),
        "deadline_at": at(3600),
        "check_at": at(60),
    }
    return Job(**values | fields)


def every_record() -> tuple[Job, Evaluation, SeatRecord, Terminal]:
    """Return one record of each kind with every field filled."""
    ended = attempt(
        1,
        Outcome.SUCCEEDED,
        http_status=200,
        code="c",
        message="m",
        provider_request_id="q",
        model_returned="m-1",
        hint_seconds=1.5,
        usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=3, reasoning_tokens=4),
        cost_usd=0.5,
    )
    error = SeatError(code="overloaded", message="busy", retryable=True)
    parameters = {"temperature": 0.5, "seed": 3}
    seat = replace(job().seats[0], parameters=parameters, worst_nano_usd=7)
    return (
        job(
            seats=(seat,),
            policy=Policy(required_seats=1, max_requests=3, max_cost_usd=1.5, reuse=False),
            labels={"k": "v"},
            label_pairs=("k:v",),
            traceparent="00-1-2-01",
            state=JobState.RUNNING,
            started_at=at(1),
            shard=3,
            day=DayReservation(day="2026-11-29", requests=4, nano_usd=28, final=True),
        ),
        evaluation(
            ended,
            attempt(2, Outcome.RUNNING),
            holder="holder2",
            lease_until=at(9),
            due_at=at(8),
            wake_at=at(9),
            wake=Wake(job="job", run=1, seat=0),
            shard=2,
            epoch=1,
            object_name=NAME,
            output=output(),
        ),
        SeatRecord(
            run=1,
            index=0,
            seat="fake/m0",
            state=SeatState.FAILED,
            work_key=KEY,
            ended_at=at(9),
            started_at=at(1),
            reused=True,
            output=output(),
            error=error,
            due_at=at(10),
            attempts=(ended,),
            models_returned=("m-0", "m-1"),
        ),
        Terminal(
            job="job",
            tenant="tenant",
            run=1,
            window="2026-11-29T12",
            state=JobState.SUCCEEDED,
            reason="1 of 1",
            completed_at=at(9),
            decision_id="dec",
            input_digest="i",
            models_digest="m",
            policy_revision="2026-11-29",
            seats=(
                SeatOutcome(
                    seat="fake/m0",
                    state=SeatState.SUCCEEDED,
                    sha256="b",
                    code="c",
                    model_requested="m0",
                    model_returned="m-1",
                ),
            ),
            totals=Totals(requests=1, input_tokens=2, output_tokens=3, cost_usd=1.5),
        ),
    )
