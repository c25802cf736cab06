"""Every line of the vendors' error tables, from the response to the one retry decision."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.core.jobs import Outcome
from functions.core.retries import PERMANENT_CODES, RECOVERABLE_CODES, RetryDecision, decide
from functions.core.verdicts import CallFailure
from functions.providers import quota_resets
from functions.providers.failures import failure
from functions.providers.redaction import unredacted

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)  # four in the morning in California
MIDNIGHT_PACIFIC = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
NEXT_MONTH = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: what comes, and what follows.

    `wait` is the least wait in seconds, None for a seat that ends at once.
    """

    id: str
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    code: str
    wait: float | None = None
    until: datetime | None = None


def openai(code: str | None = None, kind: str | None = None, **more: Any) -> dict[str, Any]:
    """Return OpenAI's error body."""
    return {"error": {"message": "m", "type": kind, "param": None, "code": code, **more}}


def anthropic(kind: str, error_code: str | None = None, message: str = "m") -> dict[str, Any]:
    """Return Anthropic's error body."""
    error: dict[str, Any] = {"type": kind, "message": message}
    if error_code:
        error["details"] = {"error_code": error_code}
    return {"type": "error", "error": error, "request_id": "req_1"}


def google(code: int, status: str, *details: dict[str, Any], message: str = "m") -> dict[str, Any]:
    """Return Google's error body."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


def info(reason: str) -> dict[str, Any]:
    """Return an `ErrorInfo`."""
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}


def quota(*ids: str) -> dict[str, Any]:
    """Return a `QuotaFailure`."""
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [{"quotaId": one} for one in ids]}


def retry_in(delay: str) -> dict[str, Any]:
    """Return a `RetryInfo`."""
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


PER_DAY = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
PER_MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
OWN_LIMIT = "You have reached your specified API usage limits."
REGAIN = " You will regain access on 2026-12-05 at 06:30 UTC."
SPENT = "quota_exhausted"

OPENAI = [
    Line(id="400", status=400, body=openai(None, "invalid_request_error"), code="invalid_request"),
    Line(id="400-parameter", status=400, body=openai("unsupported_parameter"),
         code="invalid_request"),
    Line(id="400-value", status=400, body=openai("unsupported_value"), code="invalid_request"),
    Line(id="400-too-long", status=400, body=openai("context_length_exceeded"),
         code="input_too_large"),
    Line(id="401", status=401, body=openai("invalid_api_key"), code="invalid_credential"),
    Line(id="403", status=403, body=openai(), code="permission_denied"),
    Line(id="403-country", status=403, body=openai("unsupported_country_region_territory"),
         code="region_unsupported"),
    Line(id="404", status=404, body=openai("model_not_found"), code="model_not_found"),
    Line(id="409", status=409, body=openai(), code="provider_error", wait=1),
    Line(id="429-rate", status=429, body=openai("rate_limit_exceeded", "requests"),
         headers={"retry-after": "20"}, code="rate_limited", wait=20),
    Line(id="429-ramp", status=429, body=openai("slow_down"), code="rate_limited", wait=1),
    *(
        Line(id=f"429-{name}", status=429, body=openai(name, "insufficient_quota"), code=SPENT,
             headers={"retry-after": "1", "x-should-retry": "true"})
        for name in (
            "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded", "organization_usage_limit_exceeded", "a_new_one",
            "rate_limit_exceeded",
        )
    ),
    Line(id="429-code-alone", status=429, body=openai("insufficient_quota"), code=SPENT),
    Line(id="500", status=500, body=openai("server_error"), code="provider_error", wait=1),
    Line(id="503", status=503, body=openai("server_is_overloaded", "service_unavailable_error"),
         code="overloaded", wait=1),
    Line(id="503-older", status=503, body=openai("slow_down"), code="overloaded", wait=1),
    Line(id="responses-failed", status=200, body=openai("server_error"), code="provider_error",
         wait=1),
    Line(id="responses-rate", status=200, body=openai("rate_limit_exceeded"), code="rate_limited",
         wait=1),
    Line(id="responses-prompt", status=200, body=openai("invalid_prompt"), code="invalid_request"),
    Line(id="responses-bio", status=200, body=openai("bio_policy"), code="content_blocked"),
    Line(id="responses-misalignment", status=200, body=openai("misalignment_policy_violation"),
         code="content_blocked"),
    Line(id="responses-residency", status=200, body=openai("data_residency_mismatch"),
         code="region_unsupported"),
    Line(id="responses-image", status=200, body=openai("invalid_image"), code="invalid_request"),
]  # fmt: skip

ANTHROPIC = [
    Line(id="400", status=400, body=anthropic("invalid_request_error"), code="invalid_request"),
    Line(id="400-own-limit", status=400, code=SPENT, until=NEXT_MONTH,
         body=anthropic("invalid_request_error", message=OWN_LIMIT)),
    Line(id="400-own-limit-dated", status=400, code=SPENT,
         until=datetime(2026, 12, 5, 6, 30, tzinfo=UTC),
         body=anthropic("invalid_request_error", message=OWN_LIMIT + REGAIN)),
    Line(id="400-workspace-limit", status=400, code=SPENT, until=NEXT_MONTH,
         body=anthropic("invalid_request_error",
                        message="You have reached your specified workspace API usage limits.")),
    Line(id="400-on-hold", status=400, code="permission_denied",
         body=anthropic("invalid_request_error", "organization_on_hold")),
    Line(id="401", status=401, body=anthropic("authentication_error"), code="invalid_credential"),
    Line(id="403", status=403, body=anthropic("permission_error"), code="permission_denied"),
    Line(id="404", status=404, body=anthropic("not_found_error"), code="model_not_found"),
    Line(id="402", status=402, body=anthropic("billing_error"), code=SPENT),
    Line(id="402-linked", status=402, code=SPENT,
         body=anthropic("billing_error", "linked_organization_spend_limit_reached")),
    Line(id="409", status=409, body=anthropic("conflict_error"), code="provider_error", wait=1),
    Line(id="413", status=413, body=anthropic("request_too_large"), code="input_too_large"),
    Line(id="429", status=429, body=anthropic("rate_limit_error"), headers={"retry-after": "7"},
         code="rate_limited", wait=7),
    Line(id="429-ramp", status=429, body=anthropic("rate_limit_error", "ramp_limit_exceeded"),
         headers={"retry-after": "3"}, code="rate_limited", wait=3),
    Line(id="429-enforced", status=429, code=SPENT, until=NEXT_MONTH,
         body=anthropic("rate_limit_error", "enforced_spend_limit_reached")),
    Line(id="429-contract", status=429, code=SPENT, until=NEXT_MONTH,
         headers={"x-should-retry": "true"},
         body=anthropic("rate_limit_error", "contract_spend_limit_reached")),
    Line(id="500", status=500, body=anthropic("api_error"), code="provider_error", wait=1),
    Line(id="503", status=503, body=anthropic("api_error"), code="provider_error", wait=1),
    Line(id="504", status=504, body=anthropic("timeout_error"), code="timeout", wait=1),
    Line(id="529", status=529, body=anthropic("overloaded_error"), code="overloaded", wait=1),
    Line(id="200-overloaded", status=200, body=anthropic("overloaded_error"), code="overloaded",
         wait=1),
]  # fmt: skip

GOOGLE = [
    Line(id="400", status=400, body=google(400, "INVALID_ARGUMENT"), code="invalid_request"),
    Line(id="400-bad-key", status=400, code="invalid_credential",
         body=google(400, "INVALID_ARGUMENT", info("API_KEY_INVALID"))),
    Line(id="400-bad-key-in-a-list", status=400, code="invalid_credential",
         body=[google(400, "INVALID_ARGUMENT", info("API_KEY_INVALID"))]),
    Line(id="400-region", status=400, code="region_unsupported",
         body=google(400, "FAILED_PRECONDITION",
                     message="User location is not supported for the API use.")),
    Line(id="400-billing", status=400, code=SPENT,
         body=google(400, "FAILED_PRECONDITION", message="Please enable billing.")),
    Line(id="400-other-precondition", status=400, body=google(400, "FAILED_PRECONDITION"),
         code="invalid_request"),
    Line(id="400-too-long", status=400, code="input_too_large",
         body=google(400, "INVALID_ARGUMENT",
                     message="The input token count (9) exceeds the maximum number of tokens.")),
    Line(id="401", status=401, body=google(401, "UNAUTHENTICATED"), code="invalid_credential"),
    Line(id="403", status=403, body=google(403, "PERMISSION_DENIED"), code="permission_denied"),
    Line(id="403-billing", status=403, code=SPENT,
         body=google(403, "PERMISSION_DENIED", info("BILLING_DISABLED"))),
    Line(id="404", status=404, body=google(404, "NOT_FOUND"), code="model_not_found"),
    Line(id="402", status=402, body=google(402, "RESOURCE_EXHAUSTED"), code=SPENT),
    Line(id="429-minute", status=429, code="rate_limited", wait=34,
         body=google(429, "RESOURCE_EXHAUSTED", PER_MINUTE, retry_in("34s"))),
    Line(id="429-minute-decimal", status=429, code="rate_limited", wait=600.5,
         body=google(429, "RESOURCE_EXHAUSTED", PER_MINUTE, info("RATE_LIMIT_EXCEEDED"),
                     retry_in("600.5s"))),
    Line(id="A07-429-day", status=429, code=SPENT, until=MIDNIGHT_PACIFIC,
         body=google(429, "RESOURCE_EXHAUSTED", PER_DAY, retry_in("7s"))),
    Line(id="A07-429-day-and-minute", status=429, code=SPENT, until=MIDNIGHT_PACIFIC,
         body=google(429, "RESOURCE_EXHAUSTED", info("RATE_LIMIT_EXCEEDED"),
                     quota("PerMinute-FreeTier", "TokensPerDay-FreeTier"), retry_in("20000s"))),
    Line(id="A07-429-day-in-a-list", status=429, code=SPENT, until=MIDNIGHT_PACIFIC,
         body=[google(429, "RESOURCE_EXHAUSTED", PER_DAY)]),
    Line(id="A07-429-day-in-a-200", status=200, code=SPENT, until=MIDNIGHT_PACIFIC,
         body=google(429, "RESOURCE_EXHAUSTED", PER_DAY, retry_in("7s"))),
    Line(id="A07-429-no-quota-at-all", status=429, code=SPENT,
         body=google(429, "RESOURCE_EXHAUSTED", PER_DAY, retry_in("7s"),
                     message="Quota exceeded for metric: requests, limit: 0\nPlease retry in 7s")),
    Line(id="429-limit-of-some", status=429, code="rate_limited", wait=7,
         body=google(429, "RESOURCE_EXHAUSTED", PER_MINUTE, retry_in("7s"),
                     message="Quota exceeded, limit: 0.5 and limit: 05, limit: 20")),
    Line(id="429-vertex", status=429, code="rate_limited", wait=1,
         body=google(429, "RESOURCE_EXHAUSTED", message="Resource exhausted.")),
    Line(id="429-interactions-day", status=429, body=google(429, "quota_exceeded"), code=SPENT),
    Line(id="402-interactions", status=402, body=google(402, "payment_required"), code=SPENT),
    Line(id="499", status=499, body=google(499, "CANCELLED"), code="timeout", wait=1),
    Line(id="500", status=500, body=google(500, "INTERNAL"), code="provider_error", wait=1),
    Line(id="503", status=503, body=google(503, "UNAVAILABLE"), code="overloaded", wait=1),
    Line(id="504", status=504, body=google(504, "DEADLINE_EXCEEDED"), code="timeout", wait=1),
]  # fmt: skip

TOGETHER = "Input token count + `max_tokens` must be less than the context length of the model."
IN_FLIGHT = {"limit_source": "openrouter_in_flight_budget"}
WORKSPACE = {"limit_source": "openrouter_workspace_budget", "resets_at": "2026-12-06T00:00:00Z"}
FILTERED = {"code": "ResponsibleAIPolicyViolation"}

COMPATIBLE = [
    Line(id="mistral-402", status=402, body={"object": "error", "message": "pay"}, code=SPENT),
    Line(id="mistral-422", status=422, code="invalid_request",
         body={"detail": [{"loc": ["body", "temperature"], "msg": "too high"}]}),
    Line(id="mistral-429", status=429, code="rate_limited", wait=1,
         body={"object": "error", "message": "m", "type": "rate_limited", "code": "1300"}),
    *(
        Line(id=f"mistral-{status}", status=status, body={"object": "error", "message": "m"},
             code=code, wait=1)
        for status, code in ((500, "provider_error"), (502, "provider_error"),
                             (503, "overloaded"), (504, "timeout"))
    ),
    Line(id="deepseek-402", status=402, body=openai("invalid_request_error"), code=SPENT),
    Line(id="deepseek-422", status=422, body=openai("invalid_request_error"),
         code="invalid_request"),
    Line(id="groq-498", status=498, body=openai("capacity_exceeded"), code="overloaded", wait=1),
    Line(id="groq-429", status=429, body=openai("rate_limit_exceeded", "tokens"),
         headers={"retry-after": "2", "x-ratelimit-reset-requests": "2m59.56s"},
         code="rate_limited", wait=2),
    Line(id="together-402", status=402, body=openai(), code=SPENT),
    Line(id="together-403", status=403, body=openai(None, "invalid_request_error",
                                                    message=TOGETHER), code="input_too_large"),
    Line(id="together-503", status=503, body=openai(), code="overloaded", wait=1),
    Line(id="vllm-too-long", status=400, code="input_too_large",
         body=openai("400", "BadRequestError", message="the model's maximum context length is 9")),
    Line(id="openrouter-402", status=402, body=openai(), code=SPENT),
    Line(id="openrouter-402-in-a-200", status=200, body={"error": {"code": 402, "message": "m"}},
         code=SPENT),
    Line(id="openrouter-402-in-flight", status=402, headers={"retry-after": "5"},
         body={"error": {"code": 402, "message": "m", "metadata": IN_FLIGHT}},
         code="rate_limited", wait=5),
    Line(id="openrouter-403-budget", status=403, code=SPENT,
         until=datetime(2026, 12, 6, tzinfo=UTC),
         body={"error": {"code": 403, "message": "m", "metadata": WORKSPACE}}),
    Line(id="openrouter-403-moderation", status=403, code="content_blocked",
         body={"error": {"code": 403, "message": "m", "metadata": {"flagged_input": "x"}}}),
    *(
        Line(id=f"openrouter-{status}", status=200, body={"error": {"code": status}}, code=code,
             wait=1)
        for status, code in ((408, "timeout"), (429, "rate_limited"), (502, "provider_error"),
                             (503, "overloaded"))
    ),
    Line(id="llama.cpp-too-long", status=400, code="input_too_large",
         body={"error": {"code": 400, "message": "m", "type": "exceed_context_size_error"}}),
    Line(id="llama.cpp-loading", status=503, code="overloaded", wait=1,
         body={"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
    Line(id="litellm-429", status=429, body=openai("429", "throttling_error"),
         headers={"llm_provider-retry-after": "9"}, code="rate_limited", wait=9),
    Line(id="litellm-429-in-a-200", status=200, body=openai("429"), code="rate_limited", wait=1),
    Line(id="litellm-budget", status=400, body=openai("400", "budget_exceeded"), code=SPENT),
    Line(id="litellm-401", status=401, body=openai("401", "auth_error"), code="invalid_credential"),
    Line(id="azure-blocked", status=400, code="content_blocked",
         body=openai("content_filter", innererror=FILTERED)),
    Line(id="azure-blocked-inner", status=400, code="content_blocked",
         body=openai("BadRequest", innererror=FILTERED)),
    Line(id="azure-deployment", status=404, body=openai("DeploymentNotFound"),
         code="model_not_found"),
    Line(id="408", status=408, body="", code="timeout", wait=1),
    Line(id="425", status=425, body="", code="provider_error", wait=1),
    Line(id="502-page", status=502, body="<html>Bad Gateway</html>", code="provider_error", wait=1),
    Line(id="520-unknown", status=520, body="", code="provider_error", wait=1),
    Line(id="A05-days", status=429, headers={"retry-after": "250000"}, code=SPENT,
         body=openai(None, "UsageLimit"), until=NOW + timedelta(seconds=250_000)),
]  # fmt: skip

LINES = [
    pytest.param(line, id=f"{vendor}-{line.id}")
    for vendor, lines in (
        ("openai", OPENAI),
        ("anthropic", ANTHROPIC),
        ("google", GOOGLE),
        ("compatible", COMPATIBLE),
    )
    for line in lines
]


def read(status: int, body: Any, headers: dict[str, str] | None = None) -> CallFailure:
    """Return the failure that a response means."""
    return failure(status, headers or {}, body, NOW, unredacted)


def decided(said: CallFailure, attempt: int = 1) -> RetryDecision:
    """Return what follows, with four attempts allowed and no chance in it."""
    return decide(said, now=NOW, attempt=attempt, max_attempts=4, invalid_outputs=0, jitter=0.0)


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_tables(line: Line) -> None:
    """Kind, wait, code, reason and time of every error a vendor documents."""
    said = read(line.status, line.body, line.headers)
    decision = decided(said)
    assert (decision.code, said.http_status, said.sent) == (line.code, line.status, True)
    assert (decision.until, decision.retry) == (line.until, line.wait is not None)
    if line.wait is None:
        assert (decision.outcome, decision.wait_seconds) == (Outcome.PERMANENT, 0)
        assert decision.code in PERMANENT_CODES
        assert f"HTTP {line.status}" in decision.reason
        assert ("free again at" in decision.reason) is (line.until is not None)
    else:
        assert (decision.outcome, decision.wait_seconds) == (Outcome.RETRYABLE, line.wait)
        assert decision.code in RECOVERABLE_CODES
        assert line.code in decision.reason


def test_vertex_without_an_explanation_is_asked_at_most_twice_again() -> None:
    """Google advises two retries for a 429 of the pay-as-you-go tier, which names no quota."""
    blind = read(429, google(429, "RESOURCE_EXHAUSTED", message="Resource exhausted."))
    told = read(429, google(429, "RESOURCE_EXHAUSTED", PER_MINUTE, retry_in("1s")))
    assert [decided(blind, n).retry for n in (1, 2, 3)] == [True, True, False]
    assert decided(blind, 3).code == "attempts_exhausted"
    assert decided(told, 3).retry


@pytest.mark.parametrize("line", LINES)
def test_the_vendors_word_on_retrying_is_obeyed_unless_there_is_a_bill(line: Line) -> None:
    """`x-should-retry` decides for every status, but never that a used-up account is asked."""
    yes = decided(read(line.status, line.body, line.headers | {"x-should-retry": "true"}))
    no = decided(read(line.status, line.body, line.headers | {"x-should-retry": "false"}))
    assert yes.retry is (line.code != "quota_exhausted")
    assert not no.retry


@pytest.mark.parametrize(
    ("now", "midnight"),
    [
        ("2026-11-29T12:00:00Z", "2026-11-30T08:00:00Z"),
        ("2026-11-30T07:59:59Z", "2026-11-30T08:00:00Z"),
        ("2026-11-30T08:00:00Z", "2026-12-01T08:00:00Z"),
        ("2026-07-01T06:59:59Z", "2026-07-01T07:00:00Z"),
        ("2026-03-08T08:30:00Z", "2026-03-09T07:00:00Z"),
        ("2026-11-01T07:30:00Z", "2026-11-02T08:00:00Z"),
    ],
)
def test_midnight_pacific_follows_the_clock_there(now: str, midnight: str) -> None:
    """Also over both changes of the clock, the day ends when it ends in California."""
    found = quota_resets.next_midnight_pacific(datetime.fromisoformat(now))
    assert found == datetime.fromisoformat(midnight)


def test_without_zone_data_the_time_is_never_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without zone data names a time that is right in winter, an hour late in summer."""

    def missing(name: str) -> Any:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(quota_resets, "ZoneInfo", missing)
    assert quota_resets.next_midnight_pacific(NOW) == MIDNIGHT_PACIFIC
    summer = datetime(2026, 7, 1, 6, tzinfo=UTC)
    assert quota_resets.next_midnight_pacific(summer) == datetime(2026, 7, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "month"),
    [("2026-12-31T23:59:59Z", "2027-01-01"), ("2026-01-31T00:00:00Z", "2026-02-01")],
)
def test_the_next_month_begins_at_midnight_utc(now: str, month: str) -> None:
    """Also over the end of a year."""
    found = quota_resets.next_month(datetime.fromisoformat(now))
    assert found == datetime.fromisoformat(f"{month}T00:00:00Z")


@pytest.mark.parametrize(
    "resets_at", ["soon", "2026-12-06", "2026-12-06T00:00:00", 1, None, ["x"], "9999-13-01T00:00Z"]
)
def test_an_odd_reset_time_is_none(resets_at: Any) -> None:
    """A time that cannot be read is left out; the seat ends all the same."""
    metadata = {"limit_source": "openrouter_key_limit", "resets_at": resets_at}
    said = read(403, {"error": {"code": 403, "message": "m", "metadata": metadata}})
    assert (said.code, said.until) == ("quota_exhausted", None)


names = st.sampled_from(
    ["error", "code", "type", "status", "details", "@type", "reason", "violations", "quotaId",
     "metadata", "limit_source", "resets_at", "detail", "loc", "msg", "innererror", "message"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8)
    | st.sampled_from([".QuotaFailure", ".ErrorInfo", ".RetryInfo", "PerDay", "429"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.integers(min_value=200, max_value=599), values)
def test_no_body_raises(status: int, body: Any) -> None:
    """Whatever an error body holds, there is a code, a bounded message and a decision."""
    said = read(status, json.loads(json.dumps(body)))
    assert said.code in PERMANENT_CODES | RECOVERABLE_CODES
    assert len(said.message) <= 500
    assert isinstance(decided(said), RetryDecision)
