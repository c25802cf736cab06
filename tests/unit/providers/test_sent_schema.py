"""What each vendor is sent of a schema: never wrong, only weaker, and in an order that helps."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.core.prompts import Criterion, Rubric, Scale, answer_schema
from functions.core.schemas import answer_problem
from functions.providers.base import Endpoint
from functions.providers.sent_schema import anthropic_schema, gemini_schema, openai_schema

OPENAI = Endpoint(name="openai", base_url="https://api.openai.com/v1")
DEFAULT = answer_schema(Rubric(instructions="x", criteria=(Criterion(name="a"),)))
Schema = dict[str, Any]


def closed(properties: Mapping[str, Any], **more: Any) -> Schema:
    """Return the schema of an object with just these properties."""
    rest = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": dict(properties), **rest, **more}


def openai(schema: Schema, endpoint: Endpoint = OPENAI) -> Schema | None:
    """Return what OpenAI is sent as strict, None when it is not strict."""
    sent = openai_schema(schema, endpoint)
    return sent.schema if sent.strict else None


def part(schema: Schema | None, name: str = "a") -> Any:
    """Return one property of a cut schema."""
    assert schema is not None
    return schema["properties"][name]


WHOLE_NUMBER = {"type": "integer", "minimum": 1, "maximum": 5}


@pytest.mark.parametrize(
    ("full", "sent"),
    [
        pytest.param({"type": "string"}, {"type": "string"}, id="type"),
        pytest.param(
            {"type": "string", "minLength": 1, "pattern": "^a"},
            {"type": "string", "description": '(minLength 1, pattern "^a")'},
            id="string-bounds-told",
        ),
        pytest.param(
            {"type": "number", "minimum": 0, "maximum": 1, "description": "Share."},
            {"type": "number", "description": "Share. (minimum 0, maximum 1)"},
            id="number-bounds-told",
        ),
        pytest.param(
            {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0},
            {"type": "number", "description": "(multipleOf 0.5, exclusiveMinimum 0)"},
            id="more-number-bounds",
        ),
        pytest.param(WHOLE_NUMBER, {"enum": [1, 2, 3, 4, 5]}, id="small-range"),
        pytest.param(
            {"type": "integer", "minimum": 0, "maximum": 1000},
            {"type": "integer", "description": "(minimum 0, maximum 1000)"},
            id="large-range",
        ),
        pytest.param(
            {"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}, id="format"
        ),
        pytest.param(
            {"type": "string", "format": "regex"},
            {"type": "string", "description": '(format "regex")'},
            id="unknown-format",
        ),
        pytest.param({"enum": ["a", "b"]}, {"enum": ["a", "b"]}, id="enum"),
        pytest.param({"const": 1}, {"const": 1}, id="const"),
        pytest.param(
            {"type": ["string", "null"], "enum": ["a", None]},
            {"enum": ["a", None]},
            id="values-of-several-types",
        ),
        pytest.param(
            {"type": ["integer", "null"], "minimum": 1, "maximum": 3},
            {"anyOf": [{"enum": [1, 2, 3]}, {"type": "null"}]},
            id="several-types",
        ),
        pytest.param(
            {"oneOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            id="oneOf",
        ),
        pytest.param(
            {"type": "string", "anyOf": [{"minLength": 1}, {"const": ""}]},
            {
                "anyOf": [
                    {"type": "string", "description": "(minLength 1)"},
                    {"const": ""},
                ]
            },
            id="the-type-before-a-choice",
        ),
        pytest.param(
            {"type": "integer", "oneOf": [{"type": "null"}, {"$ref": "#/$defs/n~1a"}, {}]},
            {
                "anyOf": [
                    {"type": "null"},
                    {"enum": [1, 2, 3, 4, 5]},
                    {"type": "integer"},
                ]
            },
            id="branches-with-types-of-their-own",
        ),
        pytest.param({"type": "number", "enum": [1, 2.5, "x"]}, {"enum": [1, 2.5]}, id="numbers"),
        pytest.param({"type": "string", "not": {"const": "x"}}, {"type": "string"}, id="not"),
        pytest.param(
            {"type": "string", "allOf": [{"minLength": 1}], "if": {}, "then": {}},
            {"type": "string"},
            id="allOf-and-if",
        ),
        pytest.param(
            {"allOf": [{"$ref": "#/$defs/n~1a"}], "title": "N", "description": "Grade."},
            {"enum": [1, 2, 3, 4, 5], "description": "Grade."},
            id="references-written-out",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 4},
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "(minItems 3, maxItems 4)",
            },
            id="minItems-at-most-1",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "(uniqueItems true)",
            },
            id="minItems-kept",
        ),
        pytest.param(
            {"type": "object", "properties": {"b": {"type": "string"}}},
            {
                "type": "object",
                "properties": {"b": {"type": "string"}},
                "additionalProperties": False,
            },
            id="open-objects-closed",
        ),
    ],
)
def test_anthropics_subset(full: Schema, sent: Schema) -> None:
    """Each keyword is kept, put into the vendor's words, or told in the description."""
    schema = closed({"a": full}, **{"$defs": {"n/a": WHOLE_NUMBER}})
    result = anthropic_schema(schema)
    assert result is not None
    assert result.keys() == {"type", "properties", "required", "additionalProperties"}
    assert part(result) == sent


@pytest.mark.parametrize(
    ("full", "sent"),
    [
        pytest.param(
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "number", "minimum": 0, "maximum": 1},
            id="bounds",
        ),
        pytest.param(
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "description": "(exclusiveMinimum 0)"},
            id="exclusive",
        ),
        pytest.param({"const": "x"}, {"type": "string", "enum": ["x"]}, id="const"),
        pytest.param({"enum": ["x", 1]}, {"type": ["integer", "string"], "enum": ["x", 1]}, id="e"),
        pytest.param(
            {"type": ["string", "null"], "enum": ["x", None]},
            {"type": ["string", "null"]},
            id="null-in-an-enum",
        ),
        pytest.param(
            {"oneOf": [{"type": "string"}, WHOLE_NUMBER]},
            {"anyOf": [{"type": "string"}, WHOLE_NUMBER]},
            id="oneOf",
        ),
        pytest.param(
            {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "maxItems": 1},
            {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1},
            id="prefixItems",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": WHOLE_NUMBER},
            {
                "type": "object",
                "properties": {},
                "propertyOrdering": [],
                "additionalProperties": WHOLE_NUMBER,
            },
            id="a-table",
        ),
        pytest.param(
            {"type": "string", "format": "uuid"},
            {"type": "string", "description": '(format "uuid")'},
            id="format",
        ),
        pytest.param({"$ref": "#/$defs/n~1a", "title": "N"}, WHOLE_NUMBER, id="reference"),
    ],
)
def test_geminis_keywords(full: Schema, sent: Schema) -> None:
    """What `responseJsonSchema` takes is kept, and the properties' order is said."""
    result = gemini_schema(closed({"a": full}, **{"$defs": {"n/a": WHOLE_NUMBER}}))
    assert part(result) == sent
    assert result is not None
    assert result["propertyOrdering"] == ["a"]


@pytest.mark.parametrize(
    ("full", "sent"),
    [
        pytest.param({**WHOLE_NUMBER, "default": 3}, WHOLE_NUMBER, id="bounds"),
        pytest.param({"type": "string", "maxLength": 9}, {"type": "string"}, id="string-bounds"),
        pytest.param(
            {"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}, id="format"
        ),
        pytest.param({"type": "string", "format": "uri"}, {"type": "string"}, id="other-format"),
        pytest.param({"type": ["string", "null"]}, {"type": ["string", "null"]}, id="nullable"),
        pytest.param(
            {"oneOf": [{"const": 1}, {"type": "null"}]},
            {"anyOf": [{"type": "integer", "const": 1}, {"type": "null"}]},
            id="oneOf",
        ),
        pytest.param({**WHOLE_NUMBER, "allOf": [{"minimum": 2}]}, WHOLE_NUMBER, id="allOf"),
        pytest.param({**WHOLE_NUMBER, "not": {"const": 2}}, WHOLE_NUMBER, id="not"),
        pytest.param({"$ref": "#/$defs/n~1a"}, WHOLE_NUMBER, id="reference"),
        pytest.param(
            {"type": "array", "items": WHOLE_NUMBER, "minItems": 2, "contains": {"const": 2}},
            {"type": "array", "items": WHOLE_NUMBER, "minItems": 2},
            id="arrays",
        ),
    ],
)
def test_openais_strict_subset(full: Schema, sent: Schema) -> None:
    """What strict mode refuses is left out, and the rest is enforced by the server."""
    result = openai(closed({"a": full}, **{"$defs": {"n/a": WHOLE_NUMBER}}))
    assert part(result) == sent


def nested(levels: int) -> Schema:
    """Return objects within objects, so many levels with the number at the bottom."""
    schema: Schema = WHOLE_NUMBER
    for _ in range(levels - 1):
        schema = closed({"a": schema})
    return schema


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        pytest.param(nested(10), nested(11), id="levels"),
        pytest.param(
            closed({"a": {"enum": list(range(1000))}}),
            closed({"a": {"enum": list(range(1001))}}),
            id="enum-values",
        ),
        pytest.param(
            closed({"a" * 119_999: WHOLE_NUMBER, "b": WHOLE_NUMBER}),
            closed({"a" * 120_000: WHOLE_NUMBER, "b": WHOLE_NUMBER}),
            id="characters",
        ),
        pytest.param(
            closed({"a": WHOLE_NUMBER}), {"anyOf": [closed({"a": WHOLE_NUMBER})]}, id="root-choice"
        ),
        pytest.param(
            closed({"a": WHOLE_NUMBER}), {**closed({"a": WHOLE_NUMBER}), "required": []}, id="opt"
        ),
        pytest.param(
            closed({"a": WHOLE_NUMBER}),
            {"type": "object", "properties": {"a": WHOLE_NUMBER}, "required": ["a"]},
            id="open",
        ),
        pytest.param(closed({"a": WHOLE_NUMBER}), closed({"a": {}}), id="anything"),
        pytest.param(closed({"a": WHOLE_NUMBER}), closed({"a": {"type": "array"}}), id="any-items"),
    ],
)
def test_what_strict_mode_refuses_is_sent_whole_and_not_strict(
    within: Schema, beyond: Schema
) -> None:
    """Beyond a limit or outside the subset, the full schema still guides the model."""
    assert openai(within) is not None
    assert openai_schema(beyond, OPENAI) == (beyond, False)


@pytest.mark.parametrize(
    "full",
    [
        pytest.param({"type": "object"}, id="any-object"),
        pytest.param({}, id="anything"),
        pytest.param({"type": "array"}, id="any-items"),
        pytest.param({"type": "array", "items": False}, id="no-items"),
        pytest.param({"type": "string", "enum": [1]}, id="no-value"),
        pytest.param({"$ref": "#/$defs/missing"}, id="lost-reference"),
        pytest.param({"$ref": "#/properties/a"}, id="endless-reference"),
        pytest.param({"anyOf": [{"type": "string"}, True]}, id="true-in-a-choice"),
        pytest.param(
            {
                "type": "object",
                "properties": {"b": WHOLE_NUMBER},
                "patternProperties": {"^c": {"type": "string"}},
                "additionalProperties": False,
            },
            id="patterns-in-a-closed-object",
        ),
    ],
)
def test_what_cannot_be_said_is_not_sent(full: Schema) -> None:
    """A schema without a faithful form is left to the prompt, which names it in full."""
    assert anthropic_schema(closed({"a": full})) is None
    assert gemini_schema(closed({"a": full})) is None


@pytest.mark.parametrize(
    "full",
    [
        pytest.param(
            {
                "type": "object",
                "properties": {"b": WHOLE_NUMBER},
                "allOf": [{"properties": {"c": WHOLE_NUMBER}, "required": ["c"]}],
            },
            id="allOf",
        ),
        pytest.param(
            {"type": "object", "properties": {"b": WHOLE_NUMBER}, "required": ["c"]},
            id="required-only",
        ),
        pytest.param(
            {"type": "object", "properties": {"b": WHOLE_NUMBER}, "minProperties": 2}, id="count"
        ),
        pytest.param(
            {"$ref": "#/$defs/open", "required": ["c"], "properties": {"c": WHOLE_NUMBER}},
            id="beside-a-reference",
        ),
        pytest.param({"type": "object", "additionalProperties": WHOLE_NUMBER}, id="a-table"),
        pytest.param(
            {"type": "array", "prefixItems": [{"type": "string"}], "items": WHOLE_NUMBER},
            id="tuples",
        ),
    ],
)
def test_an_object_is_not_closed_when_that_may_forbid_what_is_demanded(full: Schema) -> None:
    """A left out rule may demand what a closed object forbids: then nothing is sent."""
    definitions = {"open": {"type": "object", "properties": {"b": WHOLE_NUMBER}}}
    assert anthropic_schema(closed({"a": full}, **{"$defs": definitions})) is None


@pytest.mark.parametrize("cut", [openai, anthropic_schema, gemini_schema])
def test_reasons_come_before_what_they_lead_to(cut: Any) -> None:
    """Free text first, then what is made of parts, then numbers and choices, at every level."""
    score = {"anyOf": [{"type": "number"}, {"type": "null"}]}
    inner = closed({"a": {"type": "boolean"}, "b": {"type": ["string", "null"]}})
    schema = closed(
        {"grade": {"enum": ["A", "B"]}, "parts": inner, "score": score, "why": {"type": "string"}}
    )
    result = cut(schema)
    assert list(result["properties"]) == ["why", "parts", "grade", "score"]
    assert list(part(result, "parts")["properties"]) == ["b", "a"]
    assert list(cut(DEFAULT)["properties"]) == ["rationale", "criteria", "score"]


@pytest.mark.parametrize("cut", [anthropic_schema, gemini_schema])
def test_integers_on_request(cut: Any) -> None:
    """An endpoint that wants integers gets them; a scale too fine for them stays as it is."""
    wide = answer_schema(Rubric(instructions="x", scale=Scale(minimum=1, maximum=5)))
    fine = answer_schema(Rubric(instructions="x", scale=Scale(minimum=0, maximum=1)))
    half, tenths = {"rationale": "x", "score": 4.5}, {"rationale": "x", "score": 0.7}
    assert answer_problem(half, cut(wide, integers=True)) is not None
    assert answer_problem(tenths, cut(fine, integers=True)) is None
    assert answer_problem(half, cut(wide)) is None


def test_a_loose_schema_keeps_the_bounds_that_make_a_choice() -> None:
    """Without its bound, the second branch would fit whatever fits the first, and none would do."""
    choice = {"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}]}
    schema = {"type": "object", "properties": {"a": choice}}
    assert openai_schema(schema, OPENAI) == (schema, False)


def test_a_local_server_keeps_short_string_bounds() -> None:
    """A bound is lowered to what the server's grammar can hold."""
    local = Endpoint(name="l", base_url="http://h/v1", max_string_characters=300)
    assert part(openai(DEFAULT, local), "rationale") == {"type": "string", "maxLength": 300}


Pair = tuple[Schema, Any]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from([0.5, 2.0, -1.25]), st.text()
)
OTHERS: tuple[Schema, ...] = ({"type": "null"}, {"const": "-"}, {"type": "string", "minLength": 2})
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


@st.composite
def scalar_pairs(draw: st.DrawFn) -> Pair:
    """Draw a value and a schema that it fits."""
    value: Any = draw(SCALARS)
    kind = TYPES[type(value)]
    forms: list[Schema] = [{"type": kind}, {"const": value}, {"enum": ["?", value, None]}]
    forms.append({"type": [kind, "null"] if kind != "null" else "null"})
    if kind in ("integer", "number"):
        forms.append({"type": "number", "minimum": value - 1, "maximum": value + 0.5})
        forms.append({"type": kind, "exclusiveMinimum": value - 1, "maximum": value + 3})
    if kind == "string":
        forms.append({"type": "string", "minLength": len(value), "maxLength": len(value) + 1})
        forms.append({"type": "string", "not": {"const": value + "!"}})
    return draw(st.sampled_from(forms)), value


@st.composite
def array_pairs(draw: st.DrawFn, items: st.SearchStrategy[Pair]) -> Pair:
    """Draw an array and a schema that it fits."""
    schema, value = draw(items)
    length = draw(st.integers(0, 3))
    bounds: Schema = draw(st.sampled_from([{}, {"minItems": length}, {"maxItems": length + 1}]))
    return {"type": "array", "items": schema, **bounds}, [value] * length


@st.composite
def object_pairs(draw: st.DrawFn, values: st.SearchStrategy[Pair]) -> Pair:
    """Draw an object and a schema that it fits, open or closed, with optional properties."""
    names = st.sampled_from(["a", "b", "c", "score"])
    parts = draw(st.dictionaries(names, values, min_size=1))
    if draw(st.booleans()):
        whole = {name: pair[1] for name, pair in parts.items()}
        return closed({name: pair[0] for name, pair in parts.items()}), whole
    present = draw(st.sets(st.sampled_from(sorted(parts))))
    answer = {name: parts[name][1] for name in parts if name in present}
    schema: Schema = {"type": "object", "properties": {n: pair[0] for n, pair in parts.items()}}
    schema["required"] = sorted(draw(st.sets(st.sampled_from(sorted(present) or ["a"]))) & present)
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans())
    extra: Schema = draw(
        st.sampled_from(
            [
                {},
                {"minProperties": len(answer)},
                {"allOf": [{"required": sorted(answer)}]},
                {"if": {"required": ["a"]}, "then": {"required": sorted(answer)}},
                {"anyOf": [{"required": ["zz"]}, {"required": sorted(answer)}]},
            ]
        )
    )
    return {**schema, **extra}, answer


@st.composite
def combined(draw: st.DrawFn, pairs: st.SearchStrategy[Pair]) -> Pair:
    """Draw a pair whose schema stands inside a choice or a conjunction."""
    schema, value = draw(pairs)
    other = draw(st.sampled_from(OTHERS))
    forms: list[Schema] = [
        {"anyOf": [other, schema]},
        {"oneOf": [schema, other]},
        {"allOf": [schema]},
        {"allOf": [schema], "description": "d", "title": "t"},
        {"allOf": [schema, {}]},
        {**schema, "allOf": [{}]},
    ]
    return draw(st.sampled_from(forms)), value


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PAIRS = st.recursive(
    scalar_pairs(), lambda p: array_pairs(p) | object_pairs(p) | combined(p), max_leaves=8
)


@st.composite
def with_references(draw: st.DrawFn) -> Pair:
    """Draw a whole answer and its schema, a part of which may stand among the definitions."""
    schema, answer = draw(object_pairs(PAIRS))
    name = draw(st.sampled_from(sorted(schema["properties"])))
    if draw(st.booleans()):
        schema["$defs"] = {"x": schema["properties"][name]}
        schema["properties"] = {**schema["properties"], name: {"$ref": "#/$defs/x"}}
    return schema, answer


@unhurried
@given(with_references())
def test_a_cut_refuses_no_valid_answer(pair: Pair) -> None:
    """Whatever fits the full schema, with no property that it does not name, fits every cut."""
    schema, answer = pair
    if answer_problem(answer, schema) is not None:  # a `oneOf` whose other branch fits as well
        return
    for sent in (openai_schema(schema, OPENAI).schema, anthropic_schema(schema)):
        assert sent is None or answer_problem(answer, sent) is None, json.dumps(sent)
    sent = gemini_schema(schema)
    assert sent is None or answer_problem(answer, sent) is None, json.dumps(sent)


COMMON = {"type", "description", "enum", "anyOf", "items", "properties", "required"}
COMMON |= {"additionalProperties"}
OPENAIS = COMMON | {"const", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems"}
ANTHROPICS = COMMON | {"const", "minItems"}
GEMINIS = COMMON | {"minimum", "maximum", "minItems", "maxItems", "propertyOrdering"}


@unhurried
@given(with_references())
def test_a_cut_stays_within_the_vendors_keywords(pair: Pair) -> None:
    """Nothing is sent that a vendor would answer with a 400."""
    schema, _ = pair
    for node in nodes(openai(schema)):
        assert node.keys() <= OPENAIS
        if "properties" in node:
            assert node["required"] == list(node["properties"])
            assert node["additionalProperties"] is False
    for node in nodes(anthropic_schema(schema)):
        assert node.keys() <= ANTHROPICS
        assert node.get("minItems", 0) <= 1
        assert "properties" not in node or node["additionalProperties"] is False
    for node in nodes(gemini_schema(schema)):
        assert node.keys() <= GEMINIS
        assert all(type(value) in (int, float, str) for value in node.get("enum", ()))


def nodes(schema: Schema | None) -> list[Schema]:
    """Return a cut schema's subschemas, each with a form; none when nothing is sent."""
    if schema is None:
        return []
    assert {"type", "anyOf", "enum", "const"} & schema.keys()
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    below += [schema["items"]] if "items" in schema else []
    return [schema, *(node for one in below for node in nodes(one))]
