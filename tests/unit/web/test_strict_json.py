"""What counts as JSON: refusals with their places, one representation per number, bounded time."""

import json
import time

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.web.problems import Problem
from functions.web.strict_json import MAX_DEPTH, MAX_INTEGER, parse

MEGABYTE = 1024 * 1024


def nested(levels: int) -> bytes:
    """Return arrays in arrays; the innermost is empty."""
    return b"[" * levels + b"]" * levels


def problem_of(data: bytes) -> Problem:
    """Return the problem that a text is refused with."""
    with pytest.raises(Problem) as caught:
        parse(data)
    return caught.value


REFUSED: list[tuple[bytes, int, list[str]]] = [
    (b"", 400, []),
    (b"   ", 400, []),
    (b"{", 400, []),
    (b"{} {}", 400, []),
    (b"{'a': 1}", 400, []),
    (b'{"a": 1,}', 400, []),
    (b"[01]", 400, []),
    (b"[1.]", 400, []),
    (b"[.5]", 400, []),
    (b"[+1]", 400, []),
    (b"[0x10]", 400, []),
    (b'["\x01"]', 400, []),
    (b'["\\x"]', 400, []),
    (b"// note\n{}", 400, []),
    (b"\xef\xbb\xbf{}", 400, []),
    (b'{"a": "\xff"}', 400, []),
    (b'{"a": "\xed\xa0\x80"}', 400, []),
    ("{}".encode("utf-16"), 400, []),
    (b"NaN", 400, [""]),
    (b'{"a": NaN}', 400, ["/a"]),
    (b'{"a": [0, -Infinity]}', 400, ["/a/1"]),
    (b'{"a": Infinity, "b": NaN}', 400, ["/a", "/b"]),
    (b"1e400", 400, [""]),
    (b'{"a": {"b": [-1e400]}}', 400, ["/a/b/0"]),
    (b'{"a": 1, "a": 1}', 400, ["/a"]),
    (b'{"a": [{"b/c": 1, "b/c": 2, "~": 1, "~": 2}]}', 400, ["/a/0/b~1c", "/a/0/~0"]),
    (b'{"a": 1, "\\u0061": 2}', 400, ["/a"]),
    (b'{"a": "\\ud800"}', 400, ["/a"]),
    (b'{"a": ["\\uDC00 x"]}', 400, ["/a/0"]),
    (b'{"a": "\\udc00\\ud800"}', 400, ["/a"]),
    (b'"\\ud83d"', 400, [""]),
    (b'{"\\ud800": 1}', 400, ["/\ud800"]),
    (b'{"a": 9007199254740992}', 422, ["/a"]),
    (b'{"a": 9007199254740993}', 422, ["/a"]),
    (b"[-9007199254740992]", 422, ["/0"]),
    (b"[9007199254740993.0]", 422, ["/0"]),
    (b"[1e20]", 422, ["/0"]),
    (b"[" + b"9" * 5000 + b"]", 422, ["/0"]),
    (b"[" + b"9" * 5000 + b", NaN]", 400, ["/1"]),
    (nested(MAX_DEPTH + 1), 400, ["/0" * MAX_DEPTH]),
    (nested(100_000), 400, []),
    (b"[" * 100_000, 400, []),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, []),
]


@pytest.mark.parametrize(("data", "status", "pointers"), REFUSED)
def test_refused_with_status_and_place(data: bytes, status: int, pointers: list[str]) -> None:
    """A text that readers may understand differently is refused, and each place is named."""
    problem = problem_of(data)
    assert problem.status == status
    assert [fault.pointer for fault in problem.errors] == pointers


def test_depth_limit_is_inclusive() -> None:
    """Exactly 64 levels are read, also when the innermost holds a value."""
    assert parse(nested(MAX_DEPTH)) == json.loads(nested(MAX_DEPTH))
    assert parse(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH)
    assert problem_of(b'{"a":' * MAX_DEPTH + b"{}" + b"}" * MAX_DEPTH).status == 400


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.0", 1),
        ("1e2", 100),
        ("100E-2", 1),
        ("-0.0", 0),
        ("-0", 0),
        ("1.5", 1.5),
        ("1e21", 1e21),
        ("1e308", 1e308),
        ("1e-400", 0),
        (str(MAX_INTEGER), MAX_INTEGER),
        (str(-MAX_INTEGER), -MAX_INTEGER),
        ('"\\ud83d\\ude00"', "\N{GRINNING FACE}"),
        ('"\\u0000"', "\x00"),
        ('"\\\\ud800"', "\\ud800"),
        ("null", None),
        ("true", True),
    ],
)
def test_one_representation_per_value(text: str, value: object) -> None:
    """Spellings of the same value give the same value of the same type."""
    parsed = parse(text.encode())
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ('{"a":1,"b":2}', '{"b":2, "a":1}', True),
        ('{"w":1.0}', '{"w":1}', True),
        ('{"w":1e2}', '{"w":100}', True),
        ('{"t":"\\u00e9"}', '{"t":"é"}', True),
        ('{"t":"e\\u0301"}', '{"t":"\\u00e9"}', False),
        ('{"w":-0.0}', '{"w":0}', True),
        ('{"l":[1,2]}', '{"l":[2,1]}', False),
        ('{"x":null}', "{}", False),
    ],
)
def test_digest_table(first: str, second: str, same: bool) -> None:
    """Spelling never decides whether two bodies are the same; order of arrays, form of text do."""
    forms = [rfc8785.dumps(parse(text.encode())) for text in (first, second)]
    assert (forms[0] == forms[1]) is same


HOSTILE_MEGABYTES = [
    b"[" + b"7" * MEGABYTE + b"]",
    b"[0." + b"7" * MEGABYTE + b"]",
    b"[" + b"7" * MEGABYTE + b".5]",
    b"[1e" + b"7" * MEGABYTE + b"]",
    b"[" + b"0," * (MEGABYTE // 2) + b"0]",
    b"[" + b"[]," * (MEGABYTE // 3) + b"0]",
    b"[" + b"NaN," * (MEGABYTE // 4) + b"0]",
    b"{" + b'"a":0,' * (MEGABYTE // 6) + b'"a":0}',
    b'"' + b"\\ud800" * (MEGABYTE // 6) + b'"',
    b'"' + b'\\"' * (MEGABYTE // 2),
    b"[" * MEGABYTE,
]


@pytest.mark.parametrize("data", HOSTILE_MEGABYTES, ids=range(len(HOSTILE_MEGABYTES)))
def test_a_hostile_megabyte_costs_linear_time(data: bytes) -> None:
    """No megabyte holds the process for seconds, whether it is accepted or refused."""
    begin = time.process_time()
    try:
        parse(data)
    except Problem as problem:
        assert problem.to_response().status_code in (400, 422)
    assert time.process_time() - begin < 3


def test_the_number_of_faults_is_bounded() -> None:
    """A body of nothing but faults lists the first hundred."""
    assert len(problem_of(b"[" + b"NaN," * 1000 + b"0]").errors) == 100


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@unhurried
@given(JSON_VALUES)
def test_accepted_values_survive_their_canonical_form(value: object) -> None:
    """The canonical form of whatever is accepted is accepted, and is its own canonical form."""
    try:
        canonical = rfc8785.dumps(parse(json.dumps(value).encode()))
    except Problem as problem:
        assert problem.status in (400, 422)
        return
    assert rfc8785.dumps(parse(canonical)) == canonical


@unhurried
@given(st.binary())
def test_any_bytes_give_a_value_or_a_problem(data: bytes) -> None:
    """No bytes raise anything but Problem."""
    try:
        parse(data)
    except Problem as problem:
        assert problem.status in (400, 422)
