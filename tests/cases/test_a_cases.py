"""A: what providers say and do; errors, hints, budgets, secrets, models. Answers: `test_a_answers`.

| case | where else it is shown |
|---|---|
| A01, A05, A07 | every line of the error tables: `tests/unit/providers/test_error_tables.py` |
| A02, A03, A05 | every form of a hint: `tests/unit/test_hints.py` |
| A25 | no key in any part of a response: `tests/unit/providers/test_chat.py` |
| A26, A27, A32, A33 | over sockets: `tests/e2e/test_a_cases.py` |
"""

import asyncio
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.core.identities import attempt_key
from functions.core.jobs import JobState, Outcome, SeatState
from functions.core.submissions import Submission
from functions.core.verdicts import CallRequest
from functions.providers.base import Endpoint
from functions.providers.http import HttpProvider
from functions.telemetry import JsonFormatter
from tests.cases.scenes import error_code, messages, replies, total_sent
from tests.cases.wire import (
    DIALECTS,
    KEY,
    VERDICT,
    Raw,
    attempts,
    good,
    played,
    shown,
    waits,
    wired,
)
from tests.faults.fakes import Reply, failure
from tests.faults.invariants import broken
from tests.faults.world import World, evaluation_of, seat_of, submission
from tests.virtual_clock import START

SLACK_SECONDS = 5.0  # how late a retry may be: jitter, and repair's looks
ALL = list(DIALECTS)


def error(code: Any = None, kind: str | None = None, **more: Any) -> dict[str, Any]:
    """Return OpenAI's error body."""
    return {"error": {"message": "said", "type": kind, "param": None, "code": code, **more}}


def overloaded() -> dict[str, Any]:
    """Return Anthropic's error body of an overload."""
    return {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def spending(message: str, kind: str = "invalid_request_error", **error: Any) -> dict[str, Any]:
    """Return an error body of Anthropic."""
    return {"type": "error", "error": {"type": kind, "message": message, **error}}


SPENT = [
    ("chat", 429, error("insufficient_quota", "insufficient_quota")),
    ("chat", 429, error("credit_balance_exhausted", "insufficient_quota")),
    ("chat", 429, error(None, "insufficient_quota")),
    ("chat", 429, error("billing_hard_limit_reached")),
    ("chat", 402, error()),
    ("chat", 200, {"error": {"code": 402, "message": "Insufficient credits"}}),
    ("responses", 429, error("project_spend_limit_exceeded", "insufficient_quota")),
    ("anthropic", 400, spending("You have reached your specified API usage limits.")),
    ("anthropic", 402, spending("pay", "billing_error")),
    ("anthropic", 429, spending("m", "rate_limit_error",
                                details={"error_code": "enforced_spend_limit_reached"})),
    ("gemini", 402, {"error": {"code": 402, "status": "RESOURCE_EXHAUSTED", "message": "m"}}),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "status", "body"), SPENT)
async def test_a01_a_used_up_account_is_asked_once(
    dialect: str, status: int, body: dict[str, Any]
) -> None:
    """One call, a permanent end, an acked message, and the other seat succeeds."""
    world = World()
    headers = {"retry-after": "1", "x-should-retry": "true"}
    wired(world, dialect).plays(Raw(status=status, body=body, headers=headers))
    job = await world.submit(submission(["m0", "m1"]))
    assert all([await world.deliver(message) for message in messages(world)])
    assert error_code(world, job) == "quota_exhausted"
    assert seat_of(world, job, 1).state is SeatState.SUCCEEDED
    [attempt] = attempts(world, job)
    assert (attempt.outcome, attempt.code) == (Outcome.PERMANENT, "quota_exhausted")
    assert world.clock.monotonic() < 5.0
    assert total_sent(world) == 2
    assert broken(world) == {}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_a01_a_rate_limit_in_the_same_place_is_waited_for(dialect: str) -> None:
    """The same status and headers with the other code: asked again, and answered."""
    world = World()
    limited = Raw(status=429, body=error("rate_limit_exceeded"), headers={"retry-after": "1"})
    wired(world, dialect).plays(limited, repeat_last=False)
    job = await played(world, submission())
    assert job.state is JobState.SUCCEEDED
    assert [a.code for a in attempts(world, job)] == ["rate_limited", None]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Sun, 29 Nov 2026 12:00:21 GMT", 20.0),
        ("Sunday, 29-Nov-26 12:00:21 GMT", 20.0),
        ("Sun Nov 29 12:00:21 2026", 20.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 1.0),
    ],
    ids=["now", "rfc-850", "asctime", "past"],
)
async def test_a02_a_date_is_waited_for(value: str, seconds: float) -> None:
    """Not before the date, not much after it; a date that has passed means our own backoff."""
    world = World()
    limited = Raw(status=429, body=error(None, "rate_limit_error"), headers={"retry-after": value})
    wired(world).plays(limited, repeat_last=False)
    job = await played(world, submission())
    [wait] = waits(world, job)
    assert seconds <= wait <= seconds + SLACK_SECONDS
    assert job.state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("-3", 1.0), ("+3", 3.0), ("1.5", 1.5), ("0", 1.0), ("", 1.0), ("  7  ", 7.0),
        ("nan", 1.0), ("inf", 1.0), ("-inf", 1.0), ("12, 30", 1.0), ("Sun", 1.0), ("2026", 2026.0),
        ("1e999", 1.0), ("0x10", 1.0), ("6m0s", 1.0), ("soon", 1.0),
    ],
)  # fmt: skip
async def test_a03_a_malformed_hint_is_no_wait(value: str, seconds: float) -> None:
    """A number of seconds is waited for; whatever else a header says, our own backoff is used."""
    world = World()
    busy = Raw(status=503, data=b"", headers={"retry-after": value})
    wired(world).plays(busy, repeat_last=False)
    job = await played(world, submission())
    [wait] = waits(world, job)
    assert seconds <= wait <= seconds + max(SLACK_SECONDS, 30.0 if seconds > 60 else 0.0)
    assert job.state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "250000"}, 250_000.0),
        ({"retry-after": "1e9"}, 1e9),
        ({"retry-after-ms": "250000000"}, 250_000.0),
        ({"retry-after": "Thu, 03 Dec 2026 12:00:01 GMT"}, 4 * 86_400.0),
    ],
    ids=["A05", "A03-thirty-years", "A05-ms", "A05-date"],
)
async def test_a05_a_wait_of_days_ends_the_seat(headers: dict[str, str], seconds: float) -> None:
    """Nobody sleeps, the lease is given up, and the vendor's time is on record."""
    world = World()
    body = error(None, "UsageLimit", message="monthly limit")
    wired(world).plays(Raw(status=429, body=body, headers=headers))
    job = await world.submit(submission(deadline_seconds=604_800))
    [message] = messages(world)
    assert await world.deliver(message)
    assert world.clock.monotonic() < 5.0
    seat, state = seat_of(world, job), evaluation_of(world, job)
    assert seat.error is not None
    assert (seat.error.code, seat.error.retryable) == ("quota_exhausted", False)
    assert seat.due_at == START + timedelta(seconds=1.0 + seconds)
    assert "free again at" in seat.error.message
    assert (state.holder, state.lease_until, state.wake_at) == (None, None, None)
    [attempt] = attempts(world, job)
    assert (attempt.hint_seconds, attempt.until) == (seconds, seat.due_at)
    await world.finish()
    assert total_sent(world) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "61"},
        {"retry-after-ms": "61000"},
        {"retry-after-ms": "61000", "retry-after": "1"},
        {"llm_provider-retry-after": "61"},
    ],
)
async def test_a05_a_wait_of_a_minute_is_kept(headers: dict[str, str]) -> None:
    """Over the SDKs' limit of 60 s the wait is still the provider's, and milliseconds win."""
    world = World()
    wired(world).plays(Raw(status=429, body=error(), headers=headers), repeat_last=False)
    job = await played(world, submission())
    [wait] = waits(world, job)
    assert 61.0 <= wait <= 61.0 + 30.0
    assert job.state is JobState.SUCCEEDED


async def test_a05_a_wait_beyond_the_jobs_deadline_ends_the_seat() -> None:
    """The seat fails at once with the attempt's own code and the time of the next try."""
    world = World()
    wired(world).plays(Raw(status=429, body=error(), headers={"retry-after": "3600"}))
    job = await played(world, submission(deadline_seconds=600))
    seat = seat_of(world, job)
    assert error_code(world, job) == "rate_limited"
    assert seat.due_at is not None
    assert seat.due_at >= START + timedelta(seconds=3600)
    assert total_sent(world) == 1


def google(*ids: str, delay: str = "7s", message: str = "daily limit 20") -> dict[str, Any]:
    """Return Google's 429."""
    kind = "type.googleapis.com/google.rpc"
    violations = [{"quotaId": one} for one in ids]
    details = [
        {"@type": f"{kind}.QuotaFailure", "violations": violations},
        {"@type": f"{kind}.RetryInfo", "retryDelay": delay},
    ]
    status = "RESOURCE_EXHAUSTED"
    return {"error": {"code": 429, "status": status, "message": message, "details": details}}


DAILY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"


@pytest.mark.parametrize("dialect", ["gemini", "chat"])
@pytest.mark.parametrize(
    ("body", "until"),
    [
        (google(DAILY), datetime(2026, 11, 30, 8, tzinfo=UTC)),
        (google(MINUTE, DAILY), datetime(2026, 11, 30, 8, tzinfo=UTC)),
        ([google(DAILY, delay="30000s")], datetime(2026, 11, 30, 8, tzinfo=UTC)),
        (google(MINUTE, message="Quota exceeded, limit: 0"), None),
    ],
    ids=["A07", "both quotas", "in a list", "no quota at all"],
)
async def test_a07_a_daily_quota_is_not_waited_for(
    dialect: str, body: Any, until: datetime | None
) -> None:
    """One call; the seat says until when; the partial report names who is missing."""
    world = World()
    wired(world, dialect).plays(Raw(status=429, body=body))
    job = await played(world, submission(["m0", "m1"], required_seats=1))
    assert (job.state, len(attempts(world, job))) == (JobState.SUCCEEDED, 1)
    assert (error_code(world, job), seat_of(world, job).due_at) == ("quota_exhausted", until)
    report = (await shown(world, job))["report"]
    [missing] = report["missing"]
    assert (missing["seat"], missing["code"]) == ("fake/m0", "quota_exhausted")
    assert ("free again at 2026-11-30T08:00:00Z" in missing["reason"]) is (until is not None)
    assert report["complete"] is False


async def test_a07_a_quota_of_the_minute_is_waited_for() -> None:
    """The same body with the other quota: asked again after the delay it names."""
    world = World()
    wired(world, "gemini").plays(Raw(status=429, body=google(MINUTE)), repeat_last=False)
    job = await played(world, submission())
    assert job.state is JobState.SUCCEEDED
    assert 7.0 <= waits(world, job)[0] <= 7.0 + SLACK_SECONDS


async def test_a07_jobs_that_share_the_question_share_the_refusal() -> None:
    """A second job that waits for the same question ends with the same code and time, unasked."""
    world = World()
    wired(world, "gemini").plays(Raw(status=429, body=google(DAILY)))
    jobs = [await world.submit(submission(key=key)) for key in ("one", "two")]
    await world.deliver_all(at_once=True)
    await world.finish()
    assert total_sent(world) == 1
    first, second = (seat_of(world, job) for job in jobs)
    assert first.error == second.error
    assert first.due_at == second.due_at == datetime(2026, 11, 30, 8, tzinfo=UTC)


IN_THE_BODY = [
    ({"error": {"message": "upstream limited", "code": 429}, "user_id": "u"}, "rate_limited"),
    ({"error": {"message": "late", "code": "429"}}, "rate_limited"),
    ({"error": {"message": "gateway", "code": 502}}, "provider_error"),
    ({"error": {"message": "no capacity", "code": 503}}, "overloaded"),
    ({"error": {"message": "unknown"}}, "provider_error"),
    ({"error": "text"}, "provider_error"),
    ({"object": "error", "message": "flat", "code": "3505", "type": "x"}, "provider_error"),
    ({"choices": [{"finish_reason": "error", "message": {"content": VERDICT}}]}, "provider_error"),
    (
        {"choices": [{"error": {"code": 429, "message": "m"}, "message": {"content": VERDICT}}]},
        "rate_limited",
    ),
]


@pytest.mark.parametrize(("body", "code"), IN_THE_BODY)
async def test_a11_an_error_in_a_200_is_an_error(body: dict[str, Any], code: str) -> None:
    """The body's error wins over the status, also beside a valid answer: recorded and retried."""
    world = World()
    wired(world).plays(Raw(body=body), repeat_last=False)
    job = await played(world, submission())
    first, second = attempts(world, job)
    assert (first.outcome, first.code) == (Outcome.RETRYABLE, code)
    assert second.outcome is Outcome.SUCCEEDED
    assert job.state is JobState.SUCCEEDED


async def test_a13_overload_in_either_form_is_transient() -> None:
    """529, and a 200 whose body is an error, are asked again: success at the third attempt."""
    world = World()
    overload = Raw(status=529, body=overloaded() | {"request_id": "req_1"})
    wired(world, "anthropic").plays(overload, Raw(body=overloaded()), repeat_last=False)
    job = await played(world, submission())
    own = attempts(world, job)
    assert [a.code for a in own] == ["overloaded", "overloaded", None]
    assert own[0].provider_request_id == "req_1"
    assert job.state is JobState.SUCCEEDED


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("status", [500, 502, 503, 504, 507, 520, 524, 529, 530, 599])
async def test_a13_every_5xx_is_transient(dialect: str, status: int) -> None:
    """No list of known statuses: whatever a server or a proxy calls its fault is asked again."""
    world = World()
    page = Raw(status=status, data=b"<html>busy</html>")
    wired(world, dialect).plays(page, repeat_last=False)
    job = await played(world, submission())
    assert (job.state, total_sent(world)) == (JobState.SUCCEEDED, 2)


LEAKS = [
    Raw(status=401, body=error(message=f"Incorrect API key: {KEY}. Bearer {KEY}")),
    Raw(status=401, body=error(KEY, KEY, param=KEY), headers={"x-request-id": KEY}),
    Raw(status=401, data=f"<html>{'x' * 460}{KEY}</html>".encode()),
    Raw(status=403, body={"error": {"code": 403, "status": KEY, "message": KEY[:20]}}),
    Raw(status=400, body={"type": "error", "error": {"type": "x", "message": KEY[4:]}}),
    Raw(data=f"<html>{'x' * 440}{KEY}</html>".encode()),
]


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("leak", [*LEAKS, None], ids=[*"abcdef", "in the answer"])
async def test_a25_the_key_is_nowhere(
    dialect: str, leak: Raw | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in documents, objects, messages, the API's answers or logs, nor any part of it."""
    caplog.set_level(logging.DEBUG)
    world = World()
    answer = good(dialect, json.dumps({"rationale": f"the key is {KEY}", "score": 71}), model=KEY)
    wired(world, dialect).plays(leak or answer)
    job = await played(world, submission(max_attempts=1))
    assert total_sent(world) == 1
    assert job.state is (JobState.FAILED if leak else JobState.SUCCEEDED)
    if leak is not None and leak.status == 401:
        assert error_code(world, job) == "invalid_credential"
    kept: list[Any] = [world.ledger.stored(), world.ledger.history, await shown(world, job)]
    kept += [stored.data for stored in world.objects._objects.values()]
    kept += [stored.stored for stored in world.objects._objects.values()]
    kept += [world.topics.messages(topic) for topic in ("empanel-evaluate",)]
    kept += [JsonFormatter().format(entry) for entry in caplog.records]
    everything = "\n".join(map(str, kept))
    assert "redacted" in everything
    assert not [part for part in _parts(KEY) if part in everything]


async def test_a25_the_key_is_not_in_a_lost_connections_text() -> None:
    """An address that carries the key as a query, and cannot be reached, gives nothing away."""
    url = f"http://127.0.0.1:1/v1?key={KEY}"
    provider = HttpProvider(Endpoint(name="x", base_url=url, api_key=KEY), DIALECTS["chat"])
    question = CallRequest(model=f"m-{KEY}", system="s", user="u", schema={"type": "object"})
    said = str(await provider.call(question))
    await provider.aclose()
    assert not [part for part in _parts(KEY) if part in said]


def _parts(secret: str) -> list[str]:
    return [secret[i : i + 12] for i in range(len(secret) - 11)]


@pytest.mark.parametrize("code", ["timeout", "connection_error"])
@pytest.mark.parametrize("case", ["A26", "A27", "A33"])
async def test_a26_a27_a33_a_lost_answer_is_charged_and_asked_again(case: str, code: str) -> None:
    """Sent and unanswered: on record as unknown, counted, and asked again within the budget."""
    world = World()
    replies(world, failure(code, http_status=None))
    job = await played(world, submission(max_requests=2))
    first, second = attempts(world, job)
    assert (first.outcome, first.code, first.sent) == (Outcome.UNKNOWN, code, True)
    assert second.outcome is Outcome.SUCCEEDED
    assert (await shown(world, job))["job"]["usage"]["requests"] == 2


@pytest.mark.parametrize("code", ["timeout", "connection_error"])
async def test_a33_a_lost_request_is_not_refunded(code: str) -> None:
    """With a budget of one request nothing relies on the provider to answer it for free."""
    world = World()
    replies(world, failure(code, http_status=None))
    job = await played(world, submission(max_requests=1))
    assert (error_code(world, job), total_sent(world)) == ("budget_exhausted", 1)


async def test_a33_each_attempt_has_one_key_of_its_own() -> None:
    """Keys differ between attempts, seats and jobs, and are told from the attempt on record."""
    world = World()
    wire = wired(world)
    wire.plays(Raw(status=503, body=error()), repeat_last=False)
    jobs = [
        await played(world, submission(["m0", "m1"])),
        await played(world, submission(["m0"], key="other", question="other")),
    ]
    expected = {
        attempt_key(job=a.job, run=a.run, seat=a.seat, number=a.number)
        for job in jobs
        for index in range(len(job.seats))
        for a in attempts(world, job, index)
    }
    assert len(wire.attempt_keys) == len(expected) == 5
    assert set(wire.attempt_keys) == expected


def with_parameters(**parameters: Any) -> Submission:
    """Return a job whose seat has parameters."""
    asked = submission()
    return replace(asked, seats=(replace(asked.seats[0], parameters=parameters),))


def picky(body: dict[str, Any], number: int) -> Raw:
    """Refuse one parameter at a time, as reasoning models do."""
    for name, code in (
        ("temperature", "unsupported_value"),
        ("max_tokens", "unsupported_parameter"),
        ("top_p", "unsupported_parameter"),
    ):
        if name in body:
            return Raw(status=400, body=error(code, param=name, message=f"no {name}, please"))
    return good("chat")


@pytest.mark.parametrize(
    "parameters", [{}, {"max_output_tokens": 900}, {"reasoning_effort": "low"}]
)
async def test_a29_nothing_is_sent_that_a_reasoning_model_refuses(
    parameters: dict[str, Any],
) -> None:
    """Without parameters of the caller's the first request is right, with a cap as well."""
    world = World()
    wired(world).scripts["m0"] = picky
    job = await played(world, with_parameters(**parameters))
    assert (job.state, total_sent(world)) == (JobState.SUCCEEDED, 1)


@pytest.mark.parametrize("name", ["temperature", "top_p"])
async def test_a29_a_refused_parameter_is_named_after_one_call(name: str) -> None:
    """A 400 is permanent: one call, with the parameter and the vendor's words in the error."""
    world = World()
    wired(world).scripts["m0"] = picky
    job = await played(world, with_parameters(**{name: 0}))
    seat = seat_of(world, job)
    assert (error_code(world, job), total_sent(world)) == ("invalid_request", 1)
    assert seat.error is not None
    assert f"(param {name})" in seat.error.message
    assert f"no {name}, please" in seat.error.message


@pytest.mark.parametrize("dialect", ALL)
async def test_a29_no_sampling_parameter_unless_the_caller_gave_one(dialect: str) -> None:
    """Neither at the top of a request nor within its configuration."""
    world = World()
    wire = wired(world, dialect)
    await played(world, submission())
    sampling = {"temperature", "top_p", "topP", "top_k", "topK", "seed", "n", "max_tokens"}
    sampling -= {"max_tokens"} if dialect == "anthropic" else set()  # it demands one
    [body] = wire.bodies
    assert not sampling & (body.keys() | body.get("generationConfig", {}).keys())


def answered_by(world: World, *models: str) -> None:
    """Let the alias be answered by these models in turn; the last one stays."""
    turns = iter(models)
    last = [models[0]]

    def play(request: CallRequest, number: int) -> Reply:
        last[0] = next(turns, last[0])
        answer = world.provider.answer(request, number)
        return replace(answer, model_returned=last[0])

    world.provider.script = play


def drifts(view: dict[str, Any]) -> list[list[str]]:
    """Return the seats of each warning of a changed model."""
    warnings = view["report"]["warnings"]
    return [list(w["seats"]) for w in warnings if w["code"] == "model_drift"]


async def test_a31_both_models_are_on_record() -> None:
    """The terminal record, the attempts and the report say who was asked and who answered."""
    world = World()
    answered_by(world, "best-2026-01-01")
    job = await played(world, submission(["best"]))
    [outcome] = world.terminals(job.id)[1].seats
    assert (outcome.model_requested, outcome.model_returned) == ("best", "best-2026-01-01")
    view = await shown(world, job)
    assert view["attempts"][0]["model_returned"] == "best-2026-01-01"
    assert view["report"]["seats"][0]["model_returned"] == "best-2026-01-01"
    assert drifts(view) == []


async def test_a31_a_reused_answer_keeps_its_models_name_and_the_drift_is_flagged() -> None:
    """An answer of the old model is never shown as the new one's; known drift is said."""
    world = World()
    answered_by(world, "best-2026-01-01", "best-2026-06-01")
    await played(world, submission(["best"], key="first"))
    same = await played(world, submission(["best"], key="same"))
    assert seat_of(world, same).reused
    assert world.terminals(same.id)[1].seats[0].model_returned == "best-2026-01-01"
    other = await played(world, submission(["best"], key="other", question="another"))
    assert drifts(await shown(world, other)) == [["fake/best"]]
    later = await played(world, submission(["best"], key="later"))
    assert seat_of(world, later).reused
    assert world.terminals(later.id)[1].seats[0].model_returned == "best-2026-01-01"
    assert drifts(await shown(world, later)) == [["fake/best"]]


async def test_a31_a_fresh_answer_of_a_changed_model_is_flagged() -> None:
    """Without reuse the same question is asked again, and the change is in the report."""
    world = World()
    answered_by(world, "best-2026-01-01", "best-2026-06-01")
    await played(world, submission(["best"], key="first"))
    world.clock.advance(60.0)
    fresh = await world.submit(submission(["best"], key="fresh", reuse=False))
    await world.finish()
    assert total_sent(world) == 2
    assert world.terminals(fresh.id)[1].seats[0].model_returned == "best-2026-06-01"
    assert drifts(await shown(world, fresh)) == [["fake/best"]]


async def test_a31_a_change_between_two_attempts_is_flagged() -> None:
    """The first attempt's model, whose answer was unusable, is not the one that answered."""
    world = World()
    wired(world).plays(good("chat", "prose", model="best-1"), good("chat", model="best-2"))
    job = await played(world, submission())
    assert job.state is JobState.SUCCEEDED
    assert drifts(await shown(world, job)) == [["fake/m0"]]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "busy",
    [
        Raw(status=429, body=error("rate_limit_exceeded"), headers={"retry-after": "0"}),
        Raw(status=503, body=error("server_is_overloaded")),
        Raw(status=408, data=b""),
    ],
    ids=["429", "503", "408"],
)
async def test_a32_redeliveries_do_not_multiply_requests(at_once: bool, busy: Raw) -> None:
    """Six deliveries of one message, three attempts allowed: three requests, three on record."""
    world = World()
    wired(world).plays(busy)
    job = await world.submit(submission(max_attempts=3))
    [message] = messages(world)
    if at_once:
        assert all(await asyncio.gather(*(world.deliver(message) for _ in range(6))))
    else:
        assert all([await world.deliver(message) for _ in range(6)])
    await world.finish()
    assert total_sent(world) == len(attempts(world, job)) == 3
    assert error_code(world, job) == "attempts_exhausted"
    assert await world.deliver(message)
    assert total_sent(world) == 3
    assert broken(world) == {}
