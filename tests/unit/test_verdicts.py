"""A verdict is what the model wrote, or nothing: the answers that are accepted, and all others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.core.jobs import Usage
from functions.core.prompts import Criterion, Rubric, Scale
from functions.core.strict_json import MAX_DEPTH, StrictJsonError, parse
from functions.core.verdicts import (
    PREVIEW_CHARACTERS,
    CallFailure,
    ProviderAnswer,
    Verdict,
    preview,
    read_answer,
    read_verdict,
)

PLAIN = Rubric(instructions="x")
GRADED = Rubric(
    instructions="x",
    criteria=(Criterion(name="a"), Criterion(name="b")),
    scale=Scale(minimum=1, maximum=5),
)
FREE = Rubric(
    instructions="x",
    output_schema={"type": "object", "properties": {"score": {"type": "number"}}},
)


def answer(score: str, rationale: str = '"r"') -> str:
    """Return the default shape with a score and rationale written as given."""
    return f'{{"rationale": {rationale}, "score": {score}}}'


FENCED = f"```json\n{answer('63')}\n```"
QUOTING = answer("63", '"use ```json {\\"score\\": 1}``` here"')


@pytest.mark.parametrize(
    ("text", "score"),
    [
        pytest.param(answer("100"), 100, id="A17-upper-end"),
        pytest.param(answer("0"), 0, id="A17-lower-end"),
        pytest.param(answer("63.5"), 63.5, id="fraction"),
        pytest.param(answer("1e1"), 10, id="exponent"),
        pytest.param(FENCED, 63, id="A22-fenced"),
        pytest.param(f"```\n{answer('63')}\n```", 63, id="A22-fence-without-a-tag"),
        pytest.param(f"\n ```JSON \r\n{answer('63')}```\n", 63, id="A22-loose-fence"),
        pytest.param("\ufeff" + answer("63"), 63, id="A22-byte-order-mark"),
        pytest.param(QUOTING, 63, id="A22-fence-in-the-rationale"),
        pytest.param(f"```json\n{QUOTING}\n```", 63, id="A22-fence-within-a-fence"),
    ],
)
def test_a_right_answer_is_read_exactly(text: str, score: float) -> None:
    """Plain and fenced JSON gives the number that was written."""
    verdict = read_verdict(text, PLAIN)
    assert isinstance(verdict, Verdict)
    assert verdict.score == score
    assert verdict.rationale == verdict.answer["rationale"]


def nested(levels: int) -> str:
    """Return an answer whose score is that many arrays."""
    return answer("[" * levels + "]" * levels)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(answer("98989898"), id="A17-far-above"),
        pytest.param(answer("9.2e124"), id="A17-huge"),
        pytest.param(answer("-1"), id="A17-below"),
        pytest.param(answer("100.0001"), id="A17-just-above"),
        pytest.param(answer("1e400"), id="A17-overflows-to-infinity"),
        pytest.param(answer("9" * 5000), id="A17-five-thousand-digits"),
        pytest.param(answer('"80"'), id="A18-numeric-string"),
        pytest.param(answer('"8/10"'), id="A18-ratio"),
        pytest.param(answer('"80%"'), id="A18-percent"),
        pytest.param(answer("null"), id="A18-null"),
        pytest.param(answer("true"), id="A18-true"),
        pytest.param(answer("[80]"), id="A18-list"),
        pytest.param(answer('{"value": 80}'), id="A18-object"),
        pytest.param('{"rationale": "r", "Score": 80}', id="A18-other-case"),
        pytest.param('{"rationale": "r", "score": 80, "score_extra": 1}', id="A18-extra-key"),
        pytest.param('{"score": 80}', id="A18-missing-key"),
        pytest.param(answer("NaN"), id="A19-nan"),
        pytest.param(answer("Infinity"), id="A19-infinity"),
        pytest.param("There are 5 reasons why this is a 9", id="A21-prose"),
        pytest.param("Score: 8/10", id="A21-score-in-prose"),
        pytest.param("I cannot evaluate this", id="A21-refusal-in-prose"),
        pytest.param("not excellent", id="A21-words"),
        pytest.param(f"{FENCED}\n```json\n{answer('10')}\n```", id="A22-two-fences"),
        pytest.param(f"{answer('63')}\n{answer('10')}", id="A22-two-objects"),
        pytest.param(f"{answer('10')}\n{FENCED}", id="A22-plain-and-fenced"),
        pytest.param(f"Sure, a 10:\n{FENCED}", id="A22-prose-before-the-fence"),
        pytest.param('{"rationale": "r", "score": 63,}', id="A22-trailing-comma"),
        pytest.param('{"rationale": "r", "score": 63, "score": 10}', id="A22-duplicate-key"),
        pytest.param('{"rationale": "r", "score": 63', id="cut"),
        pytest.param(answer("50", '"\\ud800"'), id="lone-surrogate-escaped"),
        pytest.param(answer("50", '"\ud800"'), id="lone-surrogate"),
        pytest.param(nested(100_000), id="nested-beyond-any-stack"),
        pytest.param("[]", id="A23-array"),
        pytest.param('"ok"', id="A23-string"),
        pytest.param("<html>blocked</html>", id="A23-html"),
        pytest.param(answer("50", '"' + "x" * 4001 + '"'), id="endless-rationale"),
    ],
)
def test_anything_else_is_no_verdict(text: str) -> None:
    """A wrong answer becomes `invalid_output` with a bounded, storable message, never a number."""
    failure = read_verdict(text, PLAIN)
    assert isinstance(failure, CallFailure)
    assert failure.code == "invalid_output"
    assert 0 < len(failure.message) <= PREVIEW_CHARACTERS
    failure.message.encode()


@pytest.mark.parametrize("text", ["", "  \n", "\ufeff"])
def test_a16_nothing_is_an_empty_response(text: str) -> None:
    """An answer without text has its own code."""
    failure = read_verdict(text, PLAIN)
    assert isinstance(failure, CallFailure)
    assert failure.code == "empty_response"


def test_criteria_are_read_and_kept_within_the_scale() -> None:
    """Each criterion is a number of the scale; one outside fails the whole answer."""
    right = '{"rationale": "r", "criteria": {"a": 1, "b": 5.0}, "score": 3}'
    verdict = read_verdict(right, GRADED)
    assert isinstance(verdict, Verdict)
    assert verdict.criteria == {"a": 1, "b": 5.0}
    for wrong in (
        right.replace("5.0", "6"),
        right.replace('"b"', '"c"'),
        right.replace("1", "true"),
    ):
        assert isinstance(read_verdict(wrong, GRADED), CallFailure)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 9.2e124}', 9.2e124),
        ('{"score": 7, "more": [1]}', 7),
        ('{"more": 1}', None),
    ],
)
def test_an_own_schema_rules_alone(text: str, score: float | None) -> None:
    """With an output schema and no scale, what the schema allows is a verdict."""
    verdict = read_verdict(text, FREE)
    assert isinstance(verdict, Verdict)
    assert verdict.score == score
    assert verdict.answer == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"score": 50, "detail": {"conf": -Infinity}}', id="A19-nested-infinity"),
        pytest.param('{"score": 1, "n": 9007199254740992}', id="integer-beyond-2^53"),
        pytest.param('{"score": true}', id="A18-true-is-no-number"),
    ],
)
def test_an_own_schema_does_not_open_the_door(text: str) -> None:
    """Strict JSON and safe numbers hold for every shape."""
    assert isinstance(read_verdict(text, FREE), CallFailure)


def test_a_given_scale_binds_an_own_schemas_score() -> None:
    """A numeric `score` of an own schema lies within the scale when one is given."""
    rubric = Rubric(
        instructions="x",
        scale=Scale(minimum=0, maximum=1),
        output_schema={"properties": {"score": True}},
    )
    assert isinstance(read_verdict('{"score": 1.0}', rubric), Verdict)
    assert isinstance(read_verdict('{"score": 1.01}', rubric), CallFailure)
    assert isinstance(read_verdict('{"score": "high"}', rubric), Verdict)


@pytest.mark.parametrize(
    ("score", "accepted"), [("3", True), ("3.0", True), ("3.5", False), ("true", False)]
)
def test_an_integer_may_be_written_with_a_point(score: str, accepted: bool) -> None:
    """`1.0` is an integer, as Draft 2020-12 says; `true` is none, though Python thinks so."""
    rubric = Rubric(instructions="x", output_schema={"properties": {"score": {"type": "integer"}}})
    assert isinstance(read_verdict(f'{{"score": {score}}}', rubric), Verdict) is accepted


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/schema.json", "file:///etc/passwd", "#/$defs/none", "#"]
)
def test_references_are_never_fetched(reference: str) -> None:
    """A reference that leads out, nowhere or in a circle fails the answer and reads nothing."""
    rubric = Rubric(instructions="x", output_schema={"$ref": reference})
    assert isinstance(read_verdict('{"score": 1}', rubric), CallFailure)


def test_a_failed_reading_keeps_what_the_answer_cost() -> None:
    """Usage, model and request ID of an unusable answer stay with the failure."""
    usage = Usage(input_tokens=40, output_tokens=12)
    said = ProviderAnswer(text="no", model_returned="m-1", usage=usage, request_id="r-1")
    failure = read_answer(said, PLAIN)
    assert isinstance(failure, CallFailure)
    assert (failure.usage, failure.model_returned, failure.request_id) == (usage, "m-1", "r-1")
    assert failure.http_status == 200


def test_nesting_ends_at_the_limit() -> None:
    """64 levels are read, 65 are refused; brackets inside strings do not count."""
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse(json.dumps(["[" * 100 + '\\"{']))
    with pytest.raises(StrictJsonError, match="nested"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_a_hostile_text_is_refused_in_linear_time() -> None:
    """Two megabytes of escaped quotes without an end are refused at once."""
    with pytest.raises(StrictJsonError):
        parse('"' + '\\"' * 1_000_000)


@given(st.text())
def test_any_text_gives_a_verdict_or_a_failure(text: str) -> None:
    """No text makes the reader raise, and no prose becomes a verdict."""
    assert isinstance(read_verdict(text, PLAIN), CallFailure)


@given(st.text(max_size=2000))
def test_a_preview_is_bounded_and_storable(text: str) -> None:
    """A preview fits its bound, encodes as UTF-8 and has no control characters."""
    shown = preview(text)
    assert len(shown) <= PREVIEW_CHARACTERS
    assert shown.encode().decode().isprintable()
