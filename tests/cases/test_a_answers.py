"""A: what an answer is, and what is none.

| case | where else it is shown |
|---|---|
| A10, A14, A16 | every stop reason of a dialect: its tests in `tests/unit/providers/` |
| A17 to A22 | text by text, with the verdict: `tests/unit/test_verdicts.py` |
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from functions.core.jobs import Job, JobState, Outcome, SeatState
from functions.core.strict_json import parse
from functions.core.submissions import Submission
from functions.core.verdicts import PREVIEW_CHARACTERS
from tests.cases.scenes import error_code, messages, total_sent
from tests.cases.wire import DIALECTS, Raw, attempts, completion, good, played, shown, wired
from tests.faults.world import World, seat_of, submission

ALL = list(DIALECTS)
CAP = "max_output_tokens"
CUT = '{"rationale": "long text that sto'


def nothing_is_stored(world: World, job: Job) -> None:
    """Assert that the first seat left no answer behind, valid or not."""
    seat = seat_of(world, job)
    assert (seat.state, seat.output) == (SeatState.FAILED, None)
    outputs = [name for name in world.objects.names() if name.startswith("outputs/")]
    assert not [name for name in outputs if seat.work_key in name]


def said(world: World, job: Job) -> str:
    """Return the message with which the first seat ended."""
    error = seat_of(world, job).error
    assert error is not None
    assert len(error.message) <= PREVIEW_CHARACTERS + 200  # a bounded preview, and our own words
    return error.message


@pytest.mark.parametrize(
    ("body", "code", "shown_reason"),
    [
        (
            {
                "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
                "usageMetadata": {"promptTokenCount": 40},
            },
            "content_blocked",
            "PROHIBITED_CONTENT",
        ),
        ({"promptFeedback": {"blockReason": "A_NEW_ONE"}}, "content_blocked", "A_NEW_ONE"),
        (
            {"candidates": [], "promptFeedback": {"blockReason": "MODEL_ARMOR"}},
            "content_blocked",
            "MODEL_ARMOR",
        ),
        ({"candidates": []}, "empty_response", "no candidates"),
        (
            {"candidates": [{"finishReason": "SAFETY", "index": 0}]},
            "content_blocked",
            "SAFETY",
        ),
        (
            {"candidates": [{"finishReason": "RECITATION", "content": {"parts": []}}]},
            "content_blocked",
            "RECITATION",
        ),
        *(
            ({"candidates": [{"finishReason": reason, "content": {}}]}, "content_blocked", reason)
            for reason in ("LANGUAGE", "BLOCKLIST", "SPII", "ESCALATION", "PUP_LIMITED_DISABLED")
        ),
    ],
)
async def test_a10_a_blocked_prompt_or_answer_is_asked_once(
    body: dict[str, Any], code: str, shown_reason: str
) -> None:
    """One call, the vendor's own reason, no stored answer."""
    world = World()
    wired(world, "gemini").plays(Raw(body=body))
    job = await played(world, submission())
    assert (error_code(world, job), total_sent(world)) == (code, 1)
    assert shown_reason in said(world, job)
    nothing_is_stored(world, job)


TRUNCATED = [
    ("chat", completion(CUT, "length")),
    ("chat", completion(None, "length")),
    ("chat", completion('{"rationale": "whole", "score": 64}', "length")),
    ("chat", completion(CUT, "model_length")),
    (
        "responses",
        good(
            "responses",
            CUT,
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
    ),
    ("anthropic", good("anthropic", CUT, stop_reason="max_tokens")),
    ("anthropic", good("anthropic", CUT, stop_reason="model_context_window_exceeded")),
    (
        "gemini",
        good(
            "gemini",
            candidates=[{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": CUT}]}}],
        ),
    ),
    ("gemini", good("gemini", candidates=[{"finishReason": "MAX_TOKENS"}])),
]


@pytest.mark.parametrize(("dialect", "cut"), TRUNCATED)
async def test_a14_a_cut_answer_is_paid_for_once(dialect: str, cut: Raw) -> None:
    """`truncated` though the text may be whole, no second request, tokens charged, cap named."""
    world = World()
    wired(world, dialect).plays(cut)
    job = await played(world, submission(max_attempts=5))
    assert (error_code(world, job), total_sent(world)) == ("truncated", 1)
    assert CAP in said(world, job)
    usage = (await shown(world, job))["job"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (40, 12)
    nothing_is_stored(world, job)


REFUSED = [
    ("chat", completion(None, "content_filter"), "content_blocked", "content_filter"),
    ("chat", completion(None, refusal="cannot help"), "refused", "cannot help"),
    (
        "chat",
        completion('{"rationale": "ok", "score": 7}', refusal="cannot help"),
        "refused",
        "cannot help",
    ),
    ("chat", completion("cannot", "content_filter"), "content_blocked", "content_filter"),
    (
        "chat",
        Raw(status=400, body={"error": {"code": "content_filter", "message": "Azure blocked it"}}),
        "content_blocked",
        "Azure blocked it",
    ),
    (
        "responses",
        good(
            "responses",
            output=[
                {"type": "message", "content": [{"type": "refusal", "refusal": "cannot help"}]}
            ],
        ),
        "refused",
        "cannot help",
    ),
    (
        "responses",
        good("responses", status="incomplete", incomplete_details={"reason": "content_filter"}),
        "content_blocked",
        "content_filter",
    ),
    ("anthropic", good("anthropic", content=[], stop_reason="refusal"), "refused", "refused"),
    ("anthropic", good("anthropic", "I would not", stop_reason="refusal"), "refused", "would not"),
    (
        "anthropic",
        good(
            "anthropic",
            stop_reason="refusal",
            stop_details={"category": "cyber", "explanation": "not this"},
        ),
        "refused",
        "not this",
    ),
    (
        "gemini",
        good("gemini", candidates=[{"finishReason": "PROHIBITED_CONTENT"}]),
        "content_blocked",
        "PROHIBITED_CONTENT",
    ),
]


@pytest.mark.parametrize(("dialect", "raw", "code", "words"), REFUSED)
async def test_a16_a_refusal_is_asked_once(dialect: str, raw: Raw, code: str, words: str) -> None:
    """One call, a code of its own, the refusal's own words, no score."""
    world = World()
    wired(world, dialect).plays(raw)
    job = await played(world, submission(max_attempts=5))
    assert (error_code(world, job), total_sent(world)) == (code, 1)
    assert words in said(world, job)
    nothing_is_stored(world, job)


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("text", ["", " \n"])
async def test_a16_an_empty_answer_is_asked_for_once_more(dialect: str, text: str) -> None:
    """A normal stop without text: `empty_response` after two calls, and no score of 0."""
    world = World()
    wired(world, dialect).plays(good(dialect, text))
    job = await played(world, submission(max_attempts=5))
    assert (error_code(world, job), total_sent(world)) == ("empty_response", 2)
    assert [a.outcome for a in attempts(world, job)] == [Outcome.INVALID_OUTPUT] * 2
    nothing_is_stored(world, job)


def scored(score: str) -> str:
    """Return an answer with this score, as written."""
    return f'{{"rationale": "ok", "score": {score}}}'


INVALID = {
    "A17": [scored(s) for s in ("98989898", "9.2e124", "-1", "100.0001", "1e400", "9" * 400)],
    "A18": [
        *(scored(s) for s in ('"80"', '"8/10"', '"80%"', "null", "true", "[80]", '{"value": 80}')),
        '{"rationale": "ok", "Score": 80}',
        '{"rationale": "ok", "score": 80, "score_extra": 1}',
        '{"score": 80}',
    ],
    "A19": [scored(s) for s in ("NaN", "Infinity", "-Infinity")],
    "A21": [
        "There are 5 reasons why this is a 9",
        "Score: 8/10",
        "I cannot evaluate this",
        "not excellent",
        "80",
        f"The verdict is {scored('80')}",
    ],
    "A22": [
        f"```json\n{scored('63')}\n```\n```json\n{scored('10')}\n```",
        f"{scored('63')}\n{scored('10')}",
        '{"rationale": "ok", "score": 63,}',
        '{"rationale": "ok", "score": 63, "score": 10}',
    ],
}


async def no_verdict(text: str) -> None:
    """Assert two calls, `invalid_output`, nothing stored, and the mean of the other seat alone."""
    world = World()
    wired(world).plays(good("chat", text))
    job = await played(world, submission(["m0", "m1"], required_seats=1))
    assert error_code(world, job) == "invalid_output"
    assert (len(attempts(world, job)), total_sent(world)) == (2, 3)
    said(world, job)
    nothing_is_stored(world, job)
    summary = (await shown(world, job))["report"]["summary"]
    assert (summary["mean"], summary["n"], summary["of"]) == (71, 1, 2)


@pytest.mark.parametrize("text", INVALID["A17"])
async def test_a17_what_is_off_the_scale_is_no_score(text: str) -> None:
    """A score beyond the scale is not clamped: it is no answer."""
    await no_verdict(text)


@pytest.mark.parametrize("text", INVALID["A18"])
async def test_a18_what_is_of_another_type_is_no_score(text: str) -> None:
    """Text, truth values, null, lists and objects are no numbers; other keys are no `score`."""
    await no_verdict(text)


@pytest.mark.parametrize("text", INVALID["A19"])
async def test_a19_a_number_that_json_lacks_is_no_score(text: str) -> None:
    """What no strict reader of JSON takes is no answer."""
    await no_verdict(text)


@pytest.mark.parametrize("text", INVALID["A21"])
async def test_a21_a_number_in_prose_is_no_score(text: str) -> None:
    """No number is guessed from prose, and no default takes its place."""
    await no_verdict(text)


@pytest.mark.parametrize("text", INVALID["A22"])
async def test_a22_several_verdicts_or_broken_json_are_no_score(text: str) -> None:
    """Two verdicts, or JSON that needs repair, are no answer."""
    await no_verdict(text)


@pytest.mark.parametrize("score", [100, 0, 63])
@pytest.mark.parametrize("dialect", ALL)
async def test_a17_the_ends_of_the_scale_are_scores(dialect: str, score: int) -> None:
    """What lies within the scale is kept exactly, in every dialect."""
    world = World()
    wired(world, dialect).plays(good(dialect, scored(str(score))))
    job = await played(world, submission())
    [seat] = (await shown(world, job))["report"]["seats"]
    assert (seat["score"], total_sent(world)) == (score, 1)


def with_rubric(rubric: Mapping[str, Any]) -> Submission:
    """Return a job with a rubric of its own."""
    asked = submission()
    return replace(asked, rubric=rubric, body={**asked.body, "rubric": dict(rubric)})


@pytest.mark.parametrize("number", ["-Infinity", "NaN", "1e999"])
async def test_a19_no_number_that_json_lacks_hides_in_an_own_schema(number: str) -> None:
    """Nested outside the score as well: what no strict reader takes is no answer."""
    world = World()
    wired(world).plays(good("chat", f'{{"score": 50, "detail": {{"conf": {number}}}}}'))
    rubric = {"instructions": "x", "output_schema": {"type": "object"}}
    job = await played(world, with_rubric(rubric))
    assert (error_code(world, job), total_sent(world)) == ("invalid_output", 2)
    nothing_is_stored(world, job)


async def test_a19_everything_stored_and_shown_is_strict_json() -> None:
    """Objects and answers of the API parse with a reader that knows no NaN."""
    world = World()
    wired(world).plays(good("chat", scored("NaN")), good("chat", scored("50.5")))
    job = await played(world, submission(["m0", "m1"]))
    assert job.state is JobState.SUCCEEDED
    for stored in world.objects._objects.values():
        assert parse(stored.data.decode())
    assert parse(json.dumps(await shown(world, job)))


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{scored('63')}\n```",
        f"```\n{scored('63')}\n```",
        "\ufeff" + scored("63"),
        '{"rationale": "use ```json {\\"score\\": 1}``` here", "score": 63}',
    ],
    ids=["fence", "bare fence", "byte order mark", "fence in the rationale"],
)
async def test_a22_one_fence_is_taken_off_and_none_is_searched_for(text: str) -> None:
    """The score is 63 after one call, and a rationale that quotes a fence stays whole."""
    world = World()
    wired(world).plays(good("chat", text))
    job = await played(world, submission())
    [seat] = (await shown(world, job))["report"]["seats"]
    assert (seat["score"], total_sent(world)) == (63, 1)
    assert "```" in seat["rationale"] or "```" not in text.removeprefix("```")[:-3]


NO_ANSWERS = [
    Raw(data=b"<html><title>502 Bad Gateway</title></html>", headers={"content-type": "text/html"}),
    Raw(data=b"<html>blocked</html>", headers={"content-type": "application/json"}),
    Raw(data=b"", headers={"content-type": "application/json"}),
    Raw(data=bytes.fromhex("fffe7b22"), headers={"content-type": "application/json"}),
    Raw(data=b"[]"),
    Raw(data=b'"ok"'),
    Raw(data=b"{}"),
    Raw(data=b"null"),
    Raw(data=b"12"),
    Raw(data=b"[" * 100_000),
    Raw(data=b"<html>" + b"x" * 100_000),
]


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("raw", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_a23_a_page_instead_of_an_answer_is_asked_again(dialect: str, raw: Raw) -> None:
    """Transient within the attempts, then its own code; acked every time, preview bounded."""
    world = World()
    wired(world, dialect).plays(raw)
    job = await world.submit(submission(max_attempts=3))
    [message] = messages(world)
    assert await world.deliver(message)
    await world.finish()
    assert (error_code(world, job), total_sent(world)) == ("invalid_response", 3)
    assert "no " in said(world, job)
    nothing_is_stored(world, job)


@pytest.mark.parametrize("dialect", ALL)
async def test_a23_a_good_answer_after_a_page_succeeds(dialect: str) -> None:
    """One bad gateway costs one more request and nothing else."""
    world = World()
    wired(world, dialect).plays(NO_ANSWERS[0], repeat_last=False)
    job = await played(world, submission())
    assert (job.state, total_sent(world)) == (JobState.SUCCEEDED, 2)
