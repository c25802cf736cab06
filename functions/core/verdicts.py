"""What a provider said: the request, the answer, the failure, and the verdict read from it.

A verdict is never repaired: no clamping, no guessing from prose, no closing of cut brackets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from functions.core.jobs import Usage
from functions.core.prompts import Rubric, Scale, answer_schema
from functions.core.schemas import answer_problem
from functions.core.strict_json import StrictJsonError, parse, unsafe_integer

PREVIEW_CHARACTERS = 500
# What an answer may take of a seat without `max_output_tokens`: sent where an API demands a cap,
# and what estimates and budgets count with everywhere. It covers reasoning, and stays far below
# what needs a streamed answer. Why it is no part of a work key: `infra/decisions`, endpoint habits.
DEFAULT_OUTPUT_TOKENS = 8192

_FENCE = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRequest:
    """One question for one provider.

    `schema` is the full JSON Schema of the answer; a dialect sends the part its vendor accepts.
    `parameters` holds only what the caller gave. `attempt_key` names the attempt, the same at every
    sending of it; it goes to endpoints whose configuration names an idempotency header.
    """

    model: str
    system: str
    user: str
    schema: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    attempt_key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderAnswer:
    """A finished answer's text, with an accepted stop reason; not yet validated."""

    text: str
    model_returned: str | None = None
    usage: Usage | None = None
    request_id: str | None = None
    http_status: int = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class CallFailure:
    """A request that brought no usable answer, as a value.

    `code` is a seat or attempt code of the interface document. `sent` is False only when the
    request certainly never reached the provider. `http_status` is that of a whole response, None
    when none arrived. `hint_seconds` is the provider's own wish, as read. `message` is bounded and
    holds no secret. `should_retry` is what the `x-should-retry` header says. `until` is when a
    quota or limit that is used up is free again, where the vendor says or documents it.
    `most_retries` is how often, at most, the vendor advises to ask again, None when it does not.
    """

    code: str
    message: str
    sent: bool = True
    http_status: int | None = None
    hint_seconds: float | None = None
    usage: Usage | None = None
    model_returned: str | None = None
    request_id: str | None = None
    should_retry: bool | None = None
    until: datetime | None = None
    most_retries: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A validated answer: the whole JSON value, and its parts where the default shape is used."""

    answer: Mapping[str, Any]
    score: float | None = None
    criteria: Mapping[str, float] = field(default_factory=dict)
    rationale: str | None = None


def preview(text: str) -> str:
    """Return a bounded piece of foreign text that any store, log and terminal can hold.

    Lone surrogates and control characters are replaced. Redact before: a cut may hide a secret's
    beginning from the redaction.
    """
    piece = text[: 2 * PREVIEW_CHARACTERS].encode("utf-8", "replace").decode()
    plain = " ".join("".join(c if c.isprintable() else " " for c in piece).split())
    if len(plain) <= PREVIEW_CHARACTERS and len(text) <= 2 * PREVIEW_CHARACTERS:
        return plain
    return plain[: PREVIEW_CHARACTERS - 1] + "…"


def read_answer(answer: ProviderAnswer, rubric: Rubric) -> Verdict | CallFailure:
    """Read the verdict of a finished answer; a failure keeps what the answer cost."""
    verdict = read_verdict(answer.text, rubric)
    if isinstance(verdict, Verdict):
        return verdict
    return replace(
        verdict,
        http_status=answer.http_status,
        usage=answer.usage,
        model_returned=answer.model_returned,
        request_id=answer.request_id,
    )


def read_verdict(text: str, rubric: Rubric) -> Verdict | CallFailure:
    """Return the verdict that `text` is, or a failure `invalid_output` or `empty_response`.

    Accepted: the JSON object alone, or as the only content of one Markdown fence. The plain reading
    comes first, so a rationale may quote fences. Nothing is searched in prose, and two verdicts are
    none.
    """
    stripped = text.removeprefix("\ufeff").strip()
    if not stripped:
        return CallFailure(code="empty_response", message="the answer has no text")
    try:
        answer = _parse(stripped)
    except StrictJsonError as exc:
        return _invalid(str(exc), text)
    problem = _problem(answer, rubric)
    return _verdict(answer, rubric) if problem is None else _invalid(problem, text)


def _parse(stripped: str) -> Any:
    try:
        return parse(stripped)
    except StrictJsonError:
        fenced = _FENCE.fullmatch(stripped)
        if fenced is None:
            raise
        # Greedy: with two blocks the text between the outer fences is no JSON, and fails closed.
        return parse(fenced[1])


def _problem(answer: Any, rubric: Rubric) -> str | None:
    if not isinstance(answer, dict):
        return "the answer is no JSON object"
    if unsafe_integer(answer) is not None:
        return "an integer beyond 2^53"
    if (problem := answer_problem(answer, answer_schema(rubric))) is not None:
        return problem
    return _scale_problem(_score(answer), rubric.scale)


def _scale_problem(score: float | None, scale: Scale | None) -> str | None:
    """Check a custom shape's score, whose schema need not repeat the scale."""
    if score is None or scale is None or scale.holds(score):
        return None
    return f"score {score} is outside the scale {scale.minimum} to {scale.maximum}"


def _score(answer: Mapping[str, Any]) -> float | None:
    score = answer.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    return score


def _verdict(answer: Mapping[str, Any], rubric: Rubric) -> Verdict:
    if rubric.output_schema is not None:
        return Verdict(answer=answer, score=_score(answer))
    return Verdict(
        answer=answer,
        score=_score(answer),
        criteria=answer.get("criteria", {}),
        rationale=answer["rationale"],
    )


def _invalid(problem: str, text: str) -> CallFailure:
    """Say what is wrong with an answer, not what it says: records hold no answers."""
    message = preview(f"{problem}; the answer has {len(text)} characters")
    return CallFailure(code="invalid_output", message=message)
