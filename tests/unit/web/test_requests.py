"""From bytes and headers to a submission: defaults, and a table of requests that are refused."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from functions.core.jobs import Policy
from functions.core.submissions import SeatRequest, Submission
from functions.web import strict_json
from functions.web.problems import Problem
from functions.web.request_models import JobBody
from functions.web.requests import read_submission

ENDPOINTS = {"openai": "e1", "mirror": "e1", "anthropic": "e2"}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Change = Callable[[dict[str, Any]], object]


def body() -> dict[str, Any]:
    """Return a request that breaks no rule."""
    return {
        "facts": {"name": "Aurora 14", "weight_kg": 1.2},
        "rubric": {
            "name": "travel-laptop",
            "revision": "3",
            "instructions": "Score the laptop.",
            "criteria": [{"name": "portability", "weight": 2}, {"name": "value"}],
            "scale": {"min": 0, "max": 100},
        },
        "seats": [
            {"provider": "openai", "model": "gpt-x"},
            {
                "seat": "second",
                "provider": "anthropic",
                "model": "claude-x",
                "sample": 1,
                "parameters": {"max_output_tokens": 800, "temperature": 0.5},
            },
        ],
        "policy": {"required_seats": "all", "max_requests": 16},
        "owner": "catalog-team",
        "labels": {"run": "november"},
    }


def read(data: bytes, key: str | None = None, traceparent: str | None = None) -> Submission:
    """Read a body as the routes do."""
    return read_submission(
        strict_json.parse(data),
        tenant="acme",
        default_owner="acme",
        endpoints=ENDPOINTS,
        refused_parameters=lambda name, given: {},
        idempotency_key=key,
        traceparent=traceparent,
    )


def read_value(value: Any) -> Submission:
    """Read a body given as a value."""
    return read(json.dumps(value).encode())


def changed(change: Change) -> dict[str, Any]:
    """Return the good request with one change."""
    value = body()
    change(value)
    return value


def put(*path: Any) -> Change:
    """Return a change that sets the place that all but the last part name to the last part."""
    *parents, last, new = path

    def change(value: Any) -> None:
        for part in parents:
            value = value[part]
        value[last] = new

    return change


def drop(*path: Any) -> Change:
    """Return a change that takes a member out."""
    *parents, last = path

    def change(value: Any) -> None:
        for part in parents:
            value = value[part]
        del value[last]

    return change


def seats(*given: dict[str, Any]) -> Change:
    """Return a change that puts other seats in; provider and model have defaults."""
    return put("seats", [{"provider": "openai", "model": "m", **seat} for seat in given])


def parameter(name: str, value: Any) -> Change:
    """Return a change of one parameter of the second seat."""
    return put("seats", 1, "parameters", {name: value})


def schema(value: Any) -> Change:
    """Return a change that puts an output schema in the place of the criteria."""

    def change(request: dict[str, Any]) -> None:
        del request["rubric"]["criteria"]
        request["rubric"]["output_schema"] = value

    return change


def objects(**more: Any) -> dict[str, Any]:
    """Return a schema of an object with further keywords."""
    return {"type": "object", **more}


def deep_schema(levels: int) -> dict[str, Any]:
    """Return schemas in schemas."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"not": value}
    return value


DOUBLING = {
    f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
    for n in range(14)
} | {"d14": {}}
CHAIN = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(200)} | {"d200": {}}
SAME = {"provider": "openai", "model": "m"}
OUT = "/rubric/output_schema"

REFUSED: list[tuple[str, Change, list[str]]] = [
    ("no facts", drop("facts"), ["/facts"]),
    ("null facts", put("facts", None), ["/facts"]),
    ("facts as an array", put("facts", []), ["/facts"]),
    ("facts as a string", put("facts", "{}"), ["/facts"]),
    ("large facts", put("facts", {"x": "y" * 524_281}), ["/facts"]),
    ("no rubric", drop("rubric"), ["/rubric"]),
    ("rubric as a string", put("rubric", "judge"), ["/rubric"]),
    ("large rubric", put("rubric", "instructions", "y" * 131_072), ["/rubric"]),
    ("no instructions", drop("rubric", "instructions"), ["/rubric/instructions"]),
    ("empty instructions", put("rubric", "instructions", ""), ["/rubric/instructions"]),
    ("blank instructions", put("rubric", "instructions", " \n"), ["/rubric/instructions"]),
    ("instructions as lines", put("rubric", "instructions", ["a"]), ["/rubric/instructions"]),
    ("unknown field in the rubric", put("rubric", "criterias", []), ["/rubric/criterias"]),
    ("revision as a number", put("rubric", "revision", 3), ["/rubric/revision"]),
    ("no criteria in the list", put("rubric", "criteria", []), ["/rubric/criteria"]),
    ("51 criteria", put("rubric", "criteria", [{"name": "a"}] * 51), ["/rubric/criteria"]),
    (
        "criterion named twice",
        put("rubric", "criteria", [{"name": "a"}, {"name": "b"}, {"name": "a"}]),
        ["/rubric/criteria/2/name"],
    ),
    ("nameless criterion", put("rubric", "criteria", [{}]), ["/rubric/criteria/0/name"]),
    ("weight 0", put("rubric", "criteria", 0, "weight", 0), ["/rubric/criteria/0/weight"]),
    ("weight as text", put("rubric", "criteria", 0, "weight", "2"), ["/rubric/criteria/0/weight"]),
    ("weight true", put("rubric", "criteria", 0, "weight", True), ["/rubric/criteria/0/weight"]),
    ("unknown in a criterion", put("rubric", "criteria", 0, "x", 1), ["/rubric/criteria/0/x"]),
    ("scale turned round", put("rubric", "scale", {"min": 5, "max": 1}), ["/rubric/scale"]),
    ("scale of one point", put("rubric", "scale", {"min": 1, "max": 1.0}), ["/rubric/scale"]),
    ("half a scale", put("rubric", "scale", {"max": 1}), ["/rubric/scale/min"]),
    ("no seats", drop("seats"), ["/seats"]),
    ("0 seats", put("seats", []), ["/seats"]),
    ("51 seats", seats(*({"sample": n, "seat": str(n)} for n in range(51))), ["/seats"]),
    ("seats as an object", put("seats", {"0": SAME}), ["/seats"]),
    ("seat as a string", put("seats", ["openai/m"]), ["/seats/0"]),
    ("seat without provider", drop("seats", 0, "provider"), ["/seats/0/provider"]),
    ("seat without model", drop("seats", 1, "model"), ["/seats/1/model"]),
    ("empty model", put("seats", 0, "model", ""), ["/seats/0/model"]),
    ("model with a line break", put("seats", 0, "model", "a\nb"), ["/seats/0/model"]),
    ("unknown provider", put("seats", 0, "provider", "nobody"), ["/seats/0/provider"]),
    ("unknown field in a seat", put("seats", 0, "a/b~", 1), ["/seats/0/a~1b~0"]),
    ("empty seat name", put("seats", 0, "seat", ""), ["/seats/0/seat"]),
    ("seat name with a space", put("seats", 0, "seat", "a b"), ["/seats/0/seat"]),
    ("seat name with a line break", put("seats", 0, "seat", "a\n"), ["/seats/0/seat"]),
    ("seat name of 129", put("seats", 0, "seat", "a" * 129), ["/seats/0/seat"]),
    ("seat name null", put("seats", 0, "seat", None), ["/seats/0/seat"]),
    ("model that gives no name", put("seats", 0, "model", "a b"), ["/seats/0/seat"]),
    (
        "seat names twice",
        seats({"seat": "a"}, {"seat": "a", "sample": 1}),
        ["/seats/0/seat", "/seats/1/seat"],
    ),
    (
        "default name twice",
        seats({}, {"seat": "openai/m", "sample": 1}),
        ["/seats/0/seat", "/seats/1/seat"],
    ),
    ("the same question twice", seats({}, {"seat": "b"}), ["/seats/0", "/seats/1"]),
    ("the same under two providers", seats({}, {"provider": "mirror"}), ["/seats/0", "/seats/1"]),
    (
        "the same with numbers spelled apart",
        seats({"parameters": {"top_p": 1}}, {"seat": "b", "parameters": {"top_p": 1.0}}),
        ["/seats/0", "/seats/1"],
    ),
    (
        "the same with sample given",
        seats({}, {"seat": "b", "sample": 0, "parameters": {}}),
        ["/seats/0", "/seats/1"],
    ),
    ("negative sample", put("seats", 1, "sample", -1), ["/seats/1/sample"]),
    ("sample as text", put("seats", 1, "sample", "1"), ["/seats/1/sample"]),
    ("sample true", put("seats", 1, "sample", True), ["/seats/1/sample"]),
    ("half a sample", put("seats", 1, "sample", 0.5), ["/seats/1/sample"]),
    ("parameters as an array", put("seats", 1, "parameters", []), ["/seats/1/parameters"]),
    ("unknown parameter", parameter("top_k", 5), ["/seats/1/parameters/top_k"]),
    ("stream parameter", parameter("stream", True), ["/seats/1/parameters/stream"]),
    ("0 tokens", parameter("max_output_tokens", 0), ["/seats/1/parameters/max_output_tokens"]),
    (
        "too many tokens",
        parameter("max_output_tokens", 1_000_001),
        ["/seats/1/parameters/max_output_tokens"],
    ),
    ("temperature 2.1", parameter("temperature", 2.1), ["/seats/1/parameters/temperature"]),
    ("temperature as text", parameter("temperature", "0"), ["/seats/1/parameters/temperature"]),
    ("temperature true", parameter("temperature", True), ["/seats/1/parameters/temperature"]),
    ("top_p 0", parameter("top_p", 0), ["/seats/1/parameters/top_p"]),
    ("seed as a fraction", parameter("seed", 1.5), ["/seats/1/parameters/seed"]),
    (
        "effort unknown",
        parameter("reasoning_effort", "huge"),
        ["/seats/1/parameters/reasoning_effort"],
    ),
    ("policy as a string", put("policy", "all"), ["/policy"]),
    ("null policy", put("policy", None), ["/policy"]),
    ("unknown in the policy", put("policy", "retries", 3), ["/policy/retries"]),
    ("0 required", put("policy", "required_seats", 0), ["/policy/required_seats"]),
    ("3 of 2 required", put("policy", "required_seats", 3), ["/policy/required_seats"]),
    ("51 required", put("policy", "required_seats", 51), ["/policy/required_seats"]),
    ("true required", put("policy", "required_seats", True), ["/policy/required_seats"]),
    ("any required", put("policy", "required_seats", "any"), ["/policy/required_seats"]),
    ("required null", put("policy", "required_seats", None), ["/policy/required_seats"]),
    ("required as an array", put("policy", "required_seats", ["all"]), ["/policy/required_seats"]),
    ("deadline 0", put("policy", "deadline_seconds", 0), ["/policy/deadline_seconds"]),
    ("deadline too late", put("policy", "deadline_seconds", 604_801), ["/policy/deadline_seconds"]),
    ("deadline as text", put("policy", "deadline_seconds", "5"), ["/policy/deadline_seconds"]),
    ("0 attempts", put("policy", "max_attempts", 0), ["/policy/max_attempts"]),
    ("11 attempts", put("policy", "max_attempts", 11), ["/policy/max_attempts"]),
    ("attempts true", put("policy", "max_attempts", True), ["/policy/max_attempts"]),
    ("0 requests", put("policy", "max_requests", 0), ["/policy/max_requests"]),
    ("reuse 1", put("policy", "reuse", 1), ["/policy/reuse"]),
    ("a cost cap of nothing", put("policy", "max_cost_usd", 0), ["/policy/max_cost_usd"]),
    ("a cost cap without end", put("policy", "max_cost_usd", 1e7), ["/policy/max_cost_usd"]),
    ("a negative cost cap", put("policy", "max_cost_usd", -1), ["/policy/max_cost_usd"]),
    ("a webhook as text", put("notify", "https://example.com/hook"), ["/notify"]),
    ("a webhook over http", put("notify", {"url": "http://example.com/hook"}), ["/notify/url"]),
    ("a webhook here", put("notify", {"url": "https://127.0.0.1/hook"}), ["/notify/url"]),
    ("a webhook at loopback", put("notify", {"url": "http://127.0.0.1:9/hook"}), ["/notify/url"]),
    ("a webhook too long", put("notify", {"url": "https://a.io/" + "x" * 2048}), ["/notify/url"]),
    ("an empty webhook", put("notify", {"url": ""}), ["/notify/url"]),
    ("a webhook as a number", put("notify", {"url": 5}), ["/notify/url"]),
    ("a webhook without address", put("notify", {}), ["/notify/url"]),
    ("empty owner", put("owner", ""), ["/owner"]),
    ("blank owner", put("owner", "  "), ["/owner"]),
    ("owner of 129", put("owner", "a" * 129), ["/owner"]),
    ("owner with a line break", put("owner", "a\r\nb"), ["/owner"]),
    ("owner with NUL", put("owner", "a\0"), ["/owner"]),
    ("labels as an array", put("labels", []), ["/labels"]),
    ("65 labels", put("labels", {str(n): "" for n in range(65)}), ["/labels"]),
    (
        "bad label keys",
        put("labels", {"a b": "", "": "", "c/d": "", "x" * 64: "", "e\n": ""}),
        ["/labels/a b", "/labels/", "/labels/c~1d", "/labels/" + "x" * 64, "/labels/e\n"],
    ),
    (
        "bad label values",
        put("labels", {"a": 1, "b": None, "c": "x" * 256, "d": "\n"}),
        ["/labels/a", "/labels/b", "/labels/c", "/labels/d"],
    ),
    ("unknown field", put("priority", 1), ["/priority"]),
    ("empty field name", put("", 1), ["/"]),
    ("schema beside criteria", put("rubric", "output_schema", objects()), [OUT]),
    ("schema as a boolean", schema(True), [OUT]),
    ("schema without type", schema({}), [OUT + "/type"]),
    ("schema of an array", schema({"type": "array"}), [OUT + "/type"]),
    ("schema of two types", schema({"type": ["object", "null"]}), [OUT + "/type"]),
    (
        "no such type",
        schema(objects(properties={"a": {"type": "num"}})),
        [OUT + "/properties/a/type"],
    ),
    ("properties as an array", schema(objects(properties=[])), [OUT + "/properties"]),
    (
        "another dialect",
        schema({"$schema": "http://json-schema.org/draft-07/schema#", **objects()}),
        [OUT + "/$schema"],
    ),
    (
        "a remote reference",
        schema(objects(not_={}, items={"$ref": "https://x.org/s"})),
        [OUT + "/items/$ref"],
    ),
    (
        "a file reference",
        schema(objects(items={"$ref": "file:///etc/passwd"})),
        [OUT + "/items/$ref"],
    ),
    ("an anchor reference", schema(objects(items={"$ref": "#a"})), [OUT + "/items/$ref"]),
    ("a reference to nowhere", schema(objects(items={"$ref": "#/$defs/a"})), [OUT + "/items/$ref"]),
    (
        "a reference into data",
        schema(objects(items={"$ref": "#/enum/0"}, enum=[{}])),
        [OUT + "/items/$ref"],
    ),
    ("a new base", schema(objects(items={"$id": "https://x.org/"})), [OUT + "/items/$id"]),
    (
        "a dynamic reference",
        schema(objects(items={"$dynamicRef": "#a"})),
        [OUT + "/items/$dynamicRef"],
    ),
    ("a reference to itself", schema(objects(allOf=[{"$ref": "#"}])), [OUT]),
    ("a recursive schema", schema(objects(properties={"a": {"$ref": "#"}})), [OUT]),
    (
        "references that double",
        schema({**objects(allOf=[{"$ref": "#/$defs/d0"}]), "$defs": DOUBLING}),
        [OUT],
    ),
    (
        "references in a chain",
        schema({**objects(allOf=[{"$ref": "#/$defs/d0"}]), "$defs": CHAIN}),
        [OUT + "/$defs/d30"],
    ),
    ("a deep schema", schema(objects(items=deep_schema(40))), [OUT + "/items" + "/not" * 31]),
    (
        "too many subschemas",
        schema(objects(allOf=[{}] * 499 + [{"not": {}}, {}])),
        [OUT + "/allOf"],
    ),
    ("501 subschemas", schema(objects(allOf=[{}] * 498 + [{"not": {}}])), [OUT]),
    ("a long array", schema(objects(required=[{}] * 501)), [OUT + "/required"]),
    ("a large schema", schema(objects(description="x" * 32_768)), [OUT]),
    ("a pattern", schema(objects(items={"pattern": "(a+)+$"})), [OUT + "/items/pattern"]),
    (
        "a name pattern",
        schema(objects(patternProperties={"^a$": {}})),
        [OUT + "/patternProperties"],
    ),
    ("step of 0", schema(objects(items={"multipleOf": 0})), [OUT + "/items/multipleOf"]),
]


@pytest.mark.parametrize(
    ("change", "pointers"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused_with_places(change: Change, pointers: list[str]) -> None:
    """Each broken rule is a 422 that names exactly the places that break it."""
    with pytest.raises(Problem) as caught:
        read_value(changed(change))
    assert caught.value.status == 422
    assert [fault.pointer for fault in caught.value.errors] == pointers


@pytest.mark.parametrize("value", [None, [], "{}", 1, True, [body()]])
def test_a_body_that_is_no_object(value: object) -> None:
    """JSON that is not an object is a 422 about the whole body."""
    with pytest.raises(Problem) as caught:
        read_value(value)
    assert (caught.value.status, [fault.pointer for fault in caught.value.errors]) == (422, [""])


RAW: list[tuple[str, str, int, str]] = [
    ('"facts": {', '"facts": {"n": NaN, ', 400, "/facts/n"),
    ('"facts": {', '"facts": {"n": -1e400, ', 400, "/facts/n"),
    ('"facts": {', '"facts": {"name": 1, ', 400, "/facts/name"),
    ('"facts": {', '"owner": "b", "facts": {', 400, "/owner"),
    ('"facts": {', '"facts": {"n": "\\ud800", ', 400, "/facts/n"),
    ('"facts": {', '"facts": {"n": 9007199254740993, ', 422, "/facts/n"),
    ('"facts": {', '"facts": {"n": ' + "9" * 5000 + ", ", 422, "/facts/n"),
    ('"facts": {', '"facts": {"n": ' + "[" * 62 + "]" * 62 + ", ", 202, ""),
    ('"facts": {', '"facts": {"n": ' + "[" * 63 + "]" * 63 + ", ", 400, "/facts/n" + "/0" * 62),
    ('"max_requests": 16', '"max_requests": 1e400', 400, "/policy/max_requests"),
    ('"max_requests": 16', '"max_requests": 1e30', 422, "/policy/max_requests"),
    ('"max_requests": 16', '"max_requests": 1.6e1', 202, ""),
    ('"sample": 1', '"sample": 1.0', 202, ""),
    ('"sample": 1', '"sample": 99999999999999999999', 422, "/seats/1/sample"),
]


@pytest.mark.parametrize(("old", "new", "status", "pointer"), RAW)
def test_raw_text(old: str, new: str, status: int, pointer: str) -> None:
    """Texts that no JSON writer makes are refused, or read by their value; 202 is accepted."""
    text = json.dumps(body())
    assert old in text
    data = text.replace(old, new, 1).encode()
    if status == 202:
        assert read(data).tenant == "acme"
        return
    with pytest.raises(Problem) as caught:
        read(data)
    assert caught.value.status == status
    assert [fault.pointer for fault in caught.value.errors] == [pointer]


def test_all_faults_are_told_together() -> None:
    """Faults of fields and faults between fields come in one answer."""
    value = body() | {"colour": 1, "facts": 5, "labels": {"a b": ""}}
    value["seats"] = [SAME, SAME | {"seat": "b"}, {"provider": "nobody"}, SAME | {"provider": "no"}]
    value["policy"] = {"required_seats": 9, "max_attempts": 99}
    with pytest.raises(Problem) as caught:
        read_value(value)
    assert {fault.pointer for fault in caught.value.errors} == {
        "/colour",
        "/facts",
        "/labels/a b",
        "/seats/0",
        "/seats/1",
        "/seats/2/model",
        "/seats/3/provider",
        "/policy/required_seats",
        "/policy/max_attempts",
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (parameter("top_k", 5), ["top_k", "max_output_tokens", "reasoning_effort"]),
        (put("seats", 0, "provider", "x"), ["anthropic, mirror, openai"]),
        (seats({}, {"seat": "b"}), ["0 and 1", "`sample`"]),
        (put("policy", "max_attempts", 11), ["at most 10", "not 11"]),
        (put("policy", "max_attempts", "5"), ["an integer", 'not "5"']),
        (put("policy", "reuse", 1), ["true or false", "not 1"]),
        (put("policy", "max_cost_usd", 0), ["more than 0", "not 0"]),
        (put("notify", {"url": "ftp://example.com"}), ["must be an https address"]),
        (put("prio", 1), ["prio", "facts, rubric, seats"]),
        (put("seats", 1, "sample", None), ["must not be null"]),
    ],
)
def test_faults_say_what_and_how(change: Change, words: list[str]) -> None:
    """The text of a fault names the value, the rule and the way out."""
    with pytest.raises(Problem) as caught:
        read_value(changed(change))
    for word in words:
        assert word in caught.value.errors[0].detail
        assert word in caught.value.detail


def test_a_full_request() -> None:
    """Every part arrives where the steps look for it, and facts and rubric as they were sent."""
    value = body()
    data = json.dumps(value).encode()
    assert read(data, key="k-1", traceparent=TRACEPARENT) == Submission(
        tenant="acme",
        body=value,
        facts=value["facts"],
        rubric=value["rubric"],
        seats=(
            SeatRequest(seat="openai/gpt-x", provider="openai", model="gpt-x"),
            SeatRequest(
                seat="second",
                provider="anthropic",
                model="claude-x",
                sample=1,
                parameters={"max_output_tokens": 800, "temperature": 0.5},
            ),
        ),
        policy=Policy(required_seats=2, max_requests=16),
        owner="catalog-team",
        labels={"run": "november"},
        idempotency_key="k-1",
        traceparent=TRACEPARENT,
    )


def test_defaults() -> None:
    """Only facts, instructions and seats are required; the rest has the documented defaults."""
    rubric = {"instructions": "Judge."}
    read_back = read_value({"facts": {}, "rubric": rubric, "seats": [SAME]})
    assert read_back.policy == Policy(
        required_seats=1, deadline_seconds=3600, max_attempts=4, reuse=True
    )
    assert (read_back.owner, read_back.labels, read_back.rubric) == ("acme", {}, rubric)
    assert (read_back.idempotency_key, read_back.traceparent) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        seats(*({"sample": n, "seat": f"s{n}"} for n in range(50))),
        seats({}, {"provider": "anthropic"}),
        seats({}, {"provider": "mirror", "parameters": {"seed": 1}}),
        put("policy", {"required_seats": 1, "max_requests": 1, "deadline_seconds": 604_800}),
        put("policy", {"required_seats": 2, "max_attempts": 10, "reuse": False}),
        put("seats", 0, "seat", "a.B_9:/@-" + "x" * 119),
        put("seats", 1, "parameters", {"top_p": 1, "temperature": 0, "seed": -5}),
        put("seats", 1, "parameters", {"reasoning_effort": "none", "max_output_tokens": 1_000_000}),
        put("facts", {"x": "y" * 524_280}),
        put("facts", {"n": None, "big": 6.02e23, "text": "\0 \U0001f600"}),
        put("labels", {f"k{n}": "é" * 255 for n in range(64)}),
        put("owner", "Zoë's team"),
        put("rubric", "scale", {"min": -1.5, "max": 1e9}),
        put("rubric", "criteria", [{"name": str(n)} for n in range(50)]),
        schema(objects(properties={"score": {"type": "number"}}, required=["score"])),
        schema(objects(properties={"a": {"$ref": "#/$defs/a~1b%20c"}}) | {"$defs": {"a/b c": {}}}),
        schema(objects(items={"$ref": "#/allOf/0"}, allOf=[{"minLength": 1}])),
        schema(objects(enum=[{"$ref": "not a reference"}], properties={"$ref": {}, "type": {}})),
        schema(objects() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    ],
)
def test_accepted_at_the_limits(change: Change) -> None:
    """What a rule just allows is accepted, and nothing of it is changed."""
    value = changed(change)
    read_back = read_value(value)
    assert (read_back.body, read_back.facts) == (value, value["facts"])
    assert read_back.rubric == value["rubric"]
    assert len(read_back.seats) == len(value["seats"])


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb", "a\n", "\x7f"])
def test_bad_idempotency_keys(key: str) -> None:
    """A key that is not 1 to 255 printable ASCII characters is a 400: the header is malformed."""
    with pytest.raises(Problem) as caught:
        read(json.dumps(body()).encode(), key=key)
    assert caught.value.status == 400


def test_good_idempotency_keys() -> None:
    """Keys at the limits are kept as they are."""
    for key in ("k", "~" * 255, '"a b"'):
        assert read(json.dumps(body()).encode(), key=key).idempotency_key == key


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (TRACEPARENT, TRACEPARENT),
        ("cc" + TRACEPARENT[2:] + "-more", "cc" + TRACEPARENT[2:]),
        ("ff" + TRACEPARENT[2:], None),
        (TRACEPARENT.upper(), None),
        ("00-" + "0" * 32 + TRACEPARENT[35:], None),
        (TRACEPARENT[:36] + "0" * 16 + "-01", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_traceparent(sent: str, kept: str | None) -> None:
    """A trace context goes on only when it is one; a broken one never refuses a job."""
    assert read(json.dumps(body()).encode(), traceparent=sent).traceparent == kept


def test_costly_schemas_are_refused_quickly() -> None:
    """No schema within the limits of a rubric holds the process for long at submission."""
    costly = [
        objects(properties={f"p{n}": {"type": "string", "minLength": 1} for n in range(498)}),
        objects(**{"$defs": {f"d{n}": {"required": [{}] * 500} for n in range(20)}}),
        objects(**{"$defs": {f"d{n}": {"$ref": "#/$defs/d0"} for n in range(490)}}),
        objects(enum=[{}] * 500, required=[[]] * 500, type=[{}] * 500),
        objects(dependencies={str(n): {"dependencies": {"a": 1}} for n in range(500)}),
    ]
    for value in costly:
        begin = time.process_time()
        try:
            read_value(changed(schema(value)))
        except Problem as problem:
            assert problem.status == 422
        assert time.process_time() - begin < 2


def test_the_published_schema_agrees() -> None:
    """The models' JSON Schema describes every field, and no optional one may be null."""
    document = JobBody.model_json_schema()
    assert document["required"] == ["facts", "rubric", "seats"]
    for part in (document, *document["$defs"].values()):
        assert part["additionalProperties"] is False
        for field in part["properties"].values():
            assert field["description"]
            assert "null" not in json.dumps(field)


WORDS = (
    "facts rubric seats policy labels owner notify instructions criteria scale output_schema name "
    "provider model parameters sample seat required_seats $ref $defs type properties items "
    "pattern allOf min max"
)
KEYS = st.sampled_from(WORDS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["all", "openai", "object", "#", "#/allOf/0", "(", "#/properties/name"])
)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS | st.text(st.characters(), max_size=3), inner, max_size=5)
    ),
    max_leaves=15,
)
PLACES: list[Callable[[Any], Change]] = [
    lambda value: put("facts", value),
    lambda value: put("rubric", value),
    lambda value: put("seats", value),
    lambda value: put("seats", 0, value),
    lambda value: put("seats", 1, "parameters", value),
    lambda value: put("policy", value),
    lambda value: put("policy", "required_seats", value),
    lambda value: put("labels", value),
    lambda value: put("rubric", "criteria", value),
    lambda value: schema(value),
    lambda value: schema(objects(properties=value)),
    lambda value: schema(objects(allOf=[value])),
]


def attempt(read_it: Callable[[], Submission]) -> None:
    """Read; whatever is refused is refused with a problem that can be rendered."""
    try:
        assert read_it().tenant == "acme"
    except Problem as problem:
        assert problem.to_response().status_code in (400, 422)


@unhurried
@given(JSON_VALUES)
def test_any_value_gives_a_submission_or_a_problem(value: Any) -> None:
    """No JSON value as a body raises anything but Problem."""
    attempt(lambda: read_value(value))


@unhurried
@given(st.sampled_from(PLACES), JSON_VALUES)
def test_any_value_in_any_place(place: Callable[[Any], Change], value: Any) -> None:
    """No JSON value in the place of a part raises anything but Problem."""
    attempt(lambda: read_value(changed(place(value))))


@unhurried
@example(PLACES[0], {"\ud800": None})
@example(PLACES[0], {"a": float("nan")})
@example(PLACES[6], 10**5000)
@given(st.sampled_from(PLACES), JSON_VALUES)
def test_values_that_skipped_the_parser(place: Callable[[Any], Change], value: Any) -> None:
    """Reading does not lean on the parser's checks to stay free of crashes."""
    attempt(
        lambda: read_submission(
            changed(place(value)),
            tenant="acme",
            default_owner="acme",
            endpoints=ENDPOINTS,
            refused_parameters=lambda name, given: {},
            idempotency_key=None,
            traceparent=None,
        )
    )
