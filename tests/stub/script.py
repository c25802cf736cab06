"""Scripted faults: which requests get which answers instead of the normal one.

A script is JSON (a file given with ``--script``, or the body of ``POST /admin/script``)::

    {"latency_seconds": 0.2,
     "rules": [
       {"label": "item-3", "responses": [{"status": 429, "headers": {"retry-after": "1"}}]},
       {"label": "item-4", "always": {"status": 429, "error_code": "insufficient_quota"}},
       {"every": 5, "responses": [{"fault": "close_mid_body"}, {"status": 503}]},
       {"model": "slow-*", "always": {"delay_seconds": 30}},
       {"has_field": "temperature", "order": -1,
        "always": {"status": 400, "error_code": "unsupported_value"}}]}

The same rules can be written in Python with ``Rule`` and ``ScriptedResponse``.

A rule **matches** when everything it names holds: ``label`` and ``model`` (shell patterns),
``every`` (N: the label ends in a number that N divides; ``item-0`` never matches), ``has_field``
(the request's body has that field). A rule that names nothing matches every request.

A matching rule **gives** its ``responses`` one after the other, then ``always`` (a response, or
true: the last of ``responses`` again and again), then nothing: the request is passed on to the
next matching rule and in the end gets the normal answer. The list is counted afresh for each
request key, or with ``"per": "rule"`` once for all requests that match. Among several matching
rules the lowest ``order`` (default 0) goes first, then the order of writing.
"""

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tests.stub.question import Json, JsonObject, Question

Fault = Literal[
    "close_before_answer",
    "reset_before_answer",
    "never_answer",
    "close_mid_body",
    "stall_mid_body",
    "slow_drip",
    "garbage",
    "wrong_content_length",
    "huge_body",
]

_FRAMING_HEADERS = frozenset({"content-length", "transfer-encoding", "connection"})


class _Written(BaseModel):
    """What a script is written in: unknown fields are refused, so a typing error is no no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class ScriptedResponse(_Written):
    """One answer. Every field may be left out; an empty one is the normal answer.

    Body, at most one of: ``body`` (any JSON value but null), ``text`` (raw, UTF-8), ``body_hex``
    (raw bytes), ``content`` (the assistant's text inside an otherwise normal completion). Without
    any: a normal completion for 2xx, an OpenAI error for 4xx and 5xx (``error_code`` and
    ``error_param`` fill it; the type follows), nothing for the rest. ``finish_reason``,
    ``refusal``, ``returned_model`` and ``usage`` change single fields of a completion.

    ``delay_seconds`` replaces the server's latency. ``headers`` replace or join the usual ones.

    ``fault`` breaks the delivery of that answer:

    - ``close_before_answer``, ``reset_before_answer``: the connection ends (FIN, RST) unanswered;
    - ``never_answer``: silence until the client goes away;
    - ``close_mid_body``, ``stall_mid_body``: half the body, then the end or silence;
    - ``slow_drip``: one byte each ``drip_seconds``; with ``drip_endless`` spaces without end;
    - ``garbage``: bytes that are not HTTP, then the end;
    - ``wrong_content_length``: ``declared_bytes`` (default: 64 too many) is what the header says,
      the whole body is sent, then the connection ends;
    - ``huge_body``: the answer, then ``huge_bytes`` of white space, chunked: valid when read whole.
    """

    status: int = Field(default=200, ge=200, le=599)
    headers: dict[str, str] = Field(default_factory=dict)
    body: Json = None
    text: str | None = None
    body_hex: str | None = None
    content: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    returned_model: str | None = None
    usage: JsonObject | None = None
    error_code: str | None = None
    error_param: str | None = None
    delay_seconds: float | None = Field(default=None, ge=0, le=3600)
    fault: Fault | None = None
    drip_seconds: float = Field(default=0.2, gt=0)
    drip_endless: bool = False
    declared_bytes: int | None = Field(default=None, ge=0)
    huge_bytes: int = Field(default=64 * 2**20, gt=0)

    @field_validator("body_hex")
    @classmethod
    def _is_hex(cls, value: str | None) -> str | None:
        bytes.fromhex(value or "")
        return value

    @field_validator("headers")
    @classmethod
    def _no_framing(cls, headers: dict[str, str]) -> dict[str, str]:
        if wrong := sorted(_FRAMING_HEADERS & {name.lower() for name in headers}):
            raise ValueError(f"{wrong[0]} is set by the stub; use a fault to break it")
        return headers

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        bodies = (self.body, self.text, self.body_hex, self.content)
        if sum(body is not None for body in bodies) > 1:
            raise ValueError("give only one of body, text, body_hex and content")
        return self


class Rule(_Written):
    """Which requests, and what they get: see the module's text. ``name`` shows up in the stats."""

    name: str = ""
    label: str | None = None
    model: str | None = None
    every: int | None = Field(default=None, ge=1)
    has_field: str | None = None
    order: int = 0
    per: Literal["key", "rule"] = "key"
    responses: tuple[ScriptedResponse, ...] = ()
    always: ScriptedResponse | bool = False

    @model_validator(mode="after")
    def _gives_something(self) -> Self:
        if not self.responses and not isinstance(self.always, ScriptedResponse):
            raise ValueError("a rule needs responses, or a response under always")
        return self

    def matches(self, question: Question) -> bool:
        """Whether everything that the rule names holds for the request."""
        return (
            (self.label is None or fnmatchcase(question.label or "", self.label))
            and (self.model is None or fnmatchcase(question.model, self.model))
            and (self.every is None or self._divides(question.label_number))
            and (self.has_field is None or self.has_field in question.body)
        )

    def response(self, given: int) -> ScriptedResponse | None:
        """The response that follows after ``given`` earlier ones; None when all are used up."""
        if given < len(self.responses):
            return self.responses[given]
        if isinstance(self.always, ScriptedResponse):
            return self.always
        return self.responses[-1] if self.always else None

    def _divides(self, number: int | None) -> bool:
        return bool(number) and self.every is not None and (number or 0) % self.every == 0


class Script(_Written):
    """All rules, and the latency of answers without a ``delay_seconds`` (None: leave as it is).

    The latency of a request is ``latency_seconds``, more or less by at most the fraction
    ``jitter``, drawn from ``seed``, the request's key and how often that key was asked.
    """

    rules: tuple[Rule, ...] = ()
    latency_seconds: float | None = Field(default=None, ge=0)
    jitter: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """A response chosen for a request, and the name of the rule that gave it."""

    rule: str
    response: ScriptedResponse


class Director:
    """Gives each request its scripted response and remembers what was given already."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        named = [
            rule if rule.name else rule.model_copy(update={"name": f"rule-{number}"})
            for number, rule in enumerate(rules, start=1)
        ]
        self._rules = list(enumerate(sorted(named, key=lambda rule: rule.order)))
        self._given: Counter[tuple[int, str]] = Counter()

    def cue(self, question: Question) -> Cue | None:
        """The next scripted response for this request; None: it gets the normal answer."""
        for position, rule in self._rules:
            if not rule.matches(question):
                continue
            turn = (position, question.key if rule.per == "key" else "")
            if (response := rule.response(self._given[turn])) is not None:
                self._given[turn] += 1
                return Cue(rule=rule.name, response=response)
        return None
