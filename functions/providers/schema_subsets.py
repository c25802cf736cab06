"""What each vendor's structured output takes of JSON Schema, as data.

Sources: OpenAI's guide to structured outputs; the schema transformer of Anthropic's SDK; the
description of `responseJsonSchema` in Google's SDK (all as of November 2026).
"""

from dataclasses import dataclass
from typing import Literal

# Bounds of single values: leaving them out cannot contradict anything that stays.
BOUNDS = {
    "minimum": ("integer", "number"),
    "maximum": ("integer", "number"),
    "exclusiveMinimum": ("integer", "number"),
    "exclusiveMaximum": ("integer", "number"),
    "multipleOf": ("integer", "number"),
    "minLength": ("string",),
    "maxLength": ("string",),
    "pattern": ("string",),
    "format": ("string",),
    "minItems": ("array",),
    "maxItems": ("array",),
    "uniqueItems": ("array",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """What one vendor's structured output takes.

    `bounds` are the keywords from `BOUNDS` that are kept. `enum_kinds` are the types that values
    of an `enum` may have. `objects` is `any`, or `closed` where a vendor refuses objects that are
    open or have optional properties, or `closing` where open ones become closed. `tells_bounds`
    puts the bounds that were left out into the description. `lists_types` is for vendors that take
    several types in one `type`, `types_literals` for those that take a type beside listed values.
    `enumerated_integers` is the largest number of integers that stand
    in for bounds which a vendor does not take.
    """

    bounds: frozenset[str]
    formats: frozenset[str] = frozenset()
    enum_kinds: frozenset[str] = frozenset({"null", "boolean", "integer", "number", "string"})
    has_const: bool = True
    objects: Literal["any", "closed", "closing"]
    lists_types: bool = False
    types_literals: bool = True
    tells_bounds: bool = False
    has_prefix_items: bool = False
    largest_min_items: int | None = None
    enumerated_integers: int = 0
    orders_properties: bool = False


_NUMBER_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

OPENAI = Subset(
    bounds=_NUMBER_BOUNDS | {"format", "minItems", "maxItems"},
    formats=_FORMATS,
    objects="closed",
    lists_types=True,
)
OPENAI_PROPERTIES = 5000
OPENAI_LEVELS = 10
OPENAI_CHARACTERS = 120_000  # of all names and listed values
OPENAI_ENUM_VALUES = 1000

ANTHROPIC = Subset(
    bounds=frozenset({"format", "minItems"}),
    formats=_FORMATS | {"uri"},
    objects="closing",
    types_literals=False,
    tells_bounds=True,
    largest_min_items=1,
    enumerated_integers=101,  # as a scale from 0 to 100
)

GEMINI = Subset(
    bounds=frozenset({"minimum", "maximum", "minItems", "maxItems", "format"}),
    formats=frozenset({"date-time", "date", "time"}),
    enum_kinds=frozenset({"integer", "number", "string"}),
    has_const=False,
    objects="any",
    lists_types=True,
    tells_bounds=True,
    has_prefix_items=True,
    orders_properties=True,
)
