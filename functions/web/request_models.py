"""The request body field by field: names, types, ranges, and what each one means.

Nothing is converted: `"5"` is not 5, `true` is not 1, and null is not an absent field. The models
carry what a rule needs to look at one field; rules between fields are in `functions.web.requests`.
"""

import re
from typing import Annotated, Any, Literal
from unicodedata import category

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from functions.core.webhooks import MAX_URL_CHARACTERS
from functions.web.faults import Fault, Path
from functions.web.output_schemas import output_schema_faults
from functions.web.request_faults import refuse, refuse_parts

MAX_SEATS = 50
MAX_CRITERIA = 50
MAX_LABELS = 64
MAX_LABEL_CHARACTERS = 255
MAX_OWNER_CHARACTERS = 128
SEAT_NAME = r"^[A-Za-z0-9._:/@-]{1,128}$"
IDEMPOTENCY_KEY = r"^[ -~]{1,255}$"
LABEL_KEY = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"  # Firestore reserves __names__
MAX_PAIR_CHARACTERS = 63 + len(":") + MAX_LABEL_CHARACTERS

_CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
_LABEL_KEY = re.compile(LABEL_KEY)


def has_control_characters(text: str) -> bool:
    """Whether a text holds characters that break lines, logs or headers."""
    return any(category(character) in _CONTROL_CATEGORIES for character in text)


def _printable(text: str) -> str:
    if has_control_characters(text):
        raise refuse("must not hold control characters or line breaks")
    return _not_blank(text)


def _not_blank(text: str) -> str:
    if text and not text.strip():
        raise refuse("must not be blank")
    return text


def _labels(labels: dict[str, Any]) -> dict[str, Any]:
    if len(labels) > MAX_LABELS:
        raise refuse(f"must have at most {MAX_LABELS} labels, not {len(labels)}")
    faults = [
        Fault(path=(key,), detail=detail)
        for key, value in labels.items()
        if (detail := _label_fault(key, value))
    ]
    if faults:
        raise refuse_parts(faults)
    return labels


def _label_fault(key: str, value: Any) -> str | None:
    if not _LABEL_KEY.fullmatch(key):
        return f"is a label key that does not match {LABEL_KEY}"
    if not isinstance(value, str):
        return "must be a string"
    if len(value) > MAX_LABEL_CHARACTERS:
        return f"must have at most {MAX_LABEL_CHARACTERS} characters, not {len(value)}"
    return "must not hold control characters" if has_control_characters(value) else None


def _required_seats(value: Any) -> Any:
    if value == "all" or (type(value) is int and 1 <= value <= MAX_SEATS):
        return value
    raise refuse('must be "all" or an integer from 1 to the number of seats')


def _output_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if faults := output_schema_faults(schema):
        raise refuse_parts(faults)
    return schema


def _without_null(schema: dict[str, Any]) -> None:
    """Show an optional field in the OpenAPI document as it is: absent or a value, never null."""
    schema.pop("default", None)
    options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    for option in options:
        schema.update(option)


def _optional(description: str, *examples: Any, **rules: Any) -> Any:
    return Field(
        default=None,
        description=description,
        examples=list(examples) or None,
        json_schema_extra=_without_null,
        **rules,
    )


class Body(BaseModel):
    """Base of all parts: strict types, no unknown fields, no null."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise refuse("must not be null; an optional field is left out")
        return value


class ParametersBody(Body):
    """What is passed on to the model; every part is optional and has the provider's default."""

    max_output_tokens: int | None = _optional(
        "The longest answer, in tokens, including reasoning.", 800, ge=1, le=1_000_000
    )
    temperature: float | None = _optional("Randomness of the answer.", 0.2, ge=0, le=2)
    top_p: float | None = _optional("Share of the likeliest tokens looked at.", 0.9, gt=0, le=1)
    seed: int | None = _optional("Asks the provider for repeatable sampling.", 7)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        _optional("How much a reasoning model thinks before it answers.", "low")
    )


class SeatBody(Body):
    """One place on the panel: which model is asked, and how."""

    seat: str | None = _optional(
        "Name of the seat, unique in the job; `provider/model` when left out.",
        "second",
        pattern=SEAT_NAME,
    )
    provider: str = Field(
        min_length=1, description="Name of a configured provider.", examples=["openai"]
    )
    model: Annotated[str, AfterValidator(_printable)] = Field(
        min_length=1,
        max_length=200,
        description="Name of the model, as the provider knows it.",
        examples=["gpt-x"],
    )
    sample: int = Field(
        default=0,
        ge=0,
        description="Number that tells apart seats which ask the same model the same question.",
        examples=[1],
    )
    parameters: ParametersBody = Field(
        default_factory=ParametersBody, description="Parameters of the model."
    )


class CriterionBody(Body):
    """One aspect that is scored by itself."""

    name: Annotated[str, AfterValidator(_printable)] = Field(
        min_length=1, max_length=128, description="Unique name.", examples=["portability"]
    )
    weight: float = Field(default=1, gt=0, description="Weight in the score.", examples=[2])


class ScaleBody(Body):
    """The range in which every score has to lie; a score outside it is refused, never clamped."""

    min: float = Field(description="The lowest score.", examples=[0])
    max: float = Field(description="The highest score.", examples=[100])

    @model_validator(mode="after")
    def _ascending(self) -> "ScaleBody":
        if self.min >= self.max:
            raise refuse("min must be less than max")
        return self


def _unique_names(criteria: list[CriterionBody]) -> list[CriterionBody]:
    first: dict[str, int] = {}
    faults = [
        Fault(path=(index, "name"), detail=f"is also the name of criterion {before}")
        for index, criterion in enumerate(criteria)
        if (before := first.setdefault(criterion.name, index)) != index
    ]
    if faults:
        raise refuse_parts(faults)
    return criteria


class RubricBody(Body):
    """How to judge: instructions, and either criteria or a schema of the answer's own."""

    instructions: Annotated[str, AfterValidator(_not_blank)] = Field(
        min_length=1,
        description="What the model is told to do.",
        examples=["Score the laptop for frequent travellers."],
    )
    name: str | None = _optional("Name of the rubric.", "travel-laptop", max_length=255)
    revision: str | None = _optional("Revision of the rubric.", "3", max_length=255)
    criteria: (
        Annotated[
            list[CriterionBody],
            Field(min_length=1, max_length=MAX_CRITERIA),
            AfterValidator(_unique_names),
        ]
        | None
    ) = _optional("Aspects that are scored each by itself.")
    scale: ScaleBody | None = _optional("Range of the scores; 0 to 100 when left out.")
    output_schema: Annotated[dict[str, Any], AfterValidator(_output_schema)] | None = _optional(
        "JSON Schema (2020-12) of the answer, instead of the usual one. Its top has type object; a"
        " numeric `score` there is used for statistics. Not together with `criteria`."
    )


class PolicyBody(Body):
    """What the caller allows the job to use."""

    required_seats: Annotated[
        Any,
        PlainValidator(_required_seats),
        WithJsonSchema(
            {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1, "maximum": MAX_SEATS}]}
        ),
    ] = Field(
        default="all",
        description="How many seats have to succeed for the job to succeed.",
        examples=["all"],
    )
    deadline_seconds: int = Field(
        default=3600,
        ge=1,
        le=604_800,
        description="Seconds from the acceptance until the job expires.",
    )
    max_attempts: int = Field(
        default=4,
        ge=1,
        le=10,
        description="Most attempts of one seat; at most 5 interrupted ones come on top.",
    )
    max_requests: int | None = _optional("Most provider requests of the whole job.", 16, ge=1)
    max_cost_usd: float | None = _optional(
        "Most money the whole job may cost, in US dollars. Refused when the price of a model is"
        " unknown, or when it is below the worst case of one attempt per seat (`/v1/estimate`).",
        1.0,
        gt=0,
        le=1_000_000,
    )
    reuse: bool = Field(
        default=True,
        description="Whether an earlier answer to the same question may be used again.",
    )


class NotifyBody(Body):
    """Where to send the hint that the job has ended."""

    url: str = Field(
        min_length=1,
        max_length=MAX_URL_CHARACTERS,
        description="An https address at port 443 or 8443 that the open internet can reach.",
        examples=["https://example.com/hook"],
    )


class JobBody(Body):
    """A request for a panel: the facts, how to judge them, and who is asked."""

    facts: dict[str, Any] = Field(
        description="What is judged; at most 512 KiB as canonical JSON.",
        examples=[{"name": "Aurora 14", "weight_kg": 1.2, "price_eur": 1290}],
    )
    rubric: RubricBody = Field(description="How to judge; at most 128 KiB as canonical JSON.")
    seats: list[SeatBody] = Field(
        min_length=1, max_length=MAX_SEATS, description="The panel, in the order of the report."
    )
    policy: PolicyBody = Field(default_factory=PolicyBody, description="Limits of the job.")
    notify: NotifyBody | None = _optional("Webhook to call at the end of each run.")
    owner: Annotated[str, AfterValidator(_printable)] | None = _optional(
        "Team to ask about the job; the tenant's name when left out.",
        "catalog-team",
        min_length=1,
        max_length=MAX_OWNER_CHARACTERS,
    )
    labels: Annotated[dict[str, Any], AfterValidator(_labels)] = Field(
        default_factory=dict,
        description="Texts to find the job by.",
        examples=[{"run": "november"}],
        json_schema_extra={
            "maxProperties": MAX_LABELS,
            "propertyNames": {"pattern": LABEL_KEY},
            "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_CHARACTERS},
        },
    )


class LineBody(JobBody):
    """A line of a batch: a job, with the key that a single job has in its header."""

    idempotency_key: str | None = _optional(
        "Identity of the line: the same key and job are the same job. Without it the digest of the"
        " job is the identity, for ever.",
        "november-0001",
        pattern=IDEMPOTENCY_KEY,
    )


MODELS_BY_PATH: dict[Path, type[BaseModel]] = {
    (): JobBody,
    ("rubric",): RubricBody,
    ("rubric", "scale"): ScaleBody,
    ("rubric", "criteria", "*"): CriterionBody,
    ("seats", "*"): SeatBody,
    ("seats", "*", "parameters"): ParametersBody,
    ("policy",): PolicyBody,
    ("notify",): NotifyBody,
}
