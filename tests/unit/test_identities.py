"""Digests and the names made from them: the same for the same, everywhere; else different."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from functions.core.identities import (
    SHARDS,
    canonical_json,
    decision_id,
    digest,
    input_object,
    job_id,
    output_object,
    shard_of,
    window_of,
    work_key,
)

PARTS: dict[str, Any] = {
    "tenant": "tenant",
    "facts": "f" * 64,
    "rubric": "r" * 64,
    "endpoint": "e" * 64,
    "model": "m",
    "parameters": {"temperature": 0},
    "sample": 0,
    "prompt": "p" * 64,
}

# (one, other, same?): key order and number forms do not count; array order, Unicode form and the
# presence of a key do.
PAIRS = [
    ('{"a":1,"b":2}', '{"b":2, "a":1}', True),
    ('{"w":1.0}', '{"w":1}', True),
    ('{"w":1e2}', '{"w":100}', True),
    ('{"t":"\\u00e9"}', '{"t":"é"}', True),
    ('{"t":"e\\u0301"}', '{"t":"é"}', False),
    ('{"w":-0.0}', '{"w":0}', True),
    ('{"l":[1,2]}', '{"l":[2,1]}', False),
    ('{"x":null}', "{}", False),
]


@pytest.mark.parametrize(("one", "other", "same"), PAIRS)
def test_the_table_of_equal_bodies(one: str, other: str, *, same: bool) -> None:
    """Two bodies have one digest exactly where the table says so."""
    assert (digest(json.loads(one)) == digest(json.loads(other))) is same


def test_a_digest_is_the_same_in_every_process() -> None:
    """Another process with another hash seed and locale finds the same digests."""
    value = {"é": [1.0, 1e21, -0.0, "\u2028"], "b": {"z": None, "a": True}}
    code = (
        "import json, sys; from functions.core.identities import *; "
        "v = json.loads(sys.argv[1]); "
        "print(digest(v), job_id('t', idempotency_key='k', request_digest=digest(v)), "
        "shard_of('x'))"
    )
    expected = [
        digest(value),
        job_id("t", idempotency_key="k", request_digest=digest(value)),
        str(shard_of("x")),
    ]
    for seed, locale in (("1", "C"), ("4711", "tr_TR.UTF-8")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "LANG": locale}
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(value)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert done.stdout.split() == expected


def test_canonical_json_is_rfc_8785() -> None:
    """Keys are sorted, numbers are written as ECMAScript does, nothing is escaped needlessly."""
    value = {"b": [1.0, 1e21, 0.000001], "a": "é/\u20ac"}
    assert canonical_json(value) == '{"a":"é/€","b":[1,1e+21,0.000001]}'.encode()


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("tenant", "other"),
        ("facts", "0" * 64),
        ("rubric", "0" * 64),
        ("endpoint", "0" * 64),
        ("model", "m2"),
        ("parameters", {"temperature": 0.7}),
        ("parameters", {}),
        ("sample", 1),
        ("prompt", "0" * 64),
    ],
)
def test_every_part_of_a_question_is_in_its_key(part: str, other: object) -> None:
    """Changing any one part of the question gives another key."""
    assert work_key(**PARTS | {part: other}) != work_key(**PARTS)


def test_the_key_ignores_how_parameters_are_ordered_and_written() -> None:
    """The same parameters in another order, or with 0.0 for 0, are the same question."""
    one = work_key(**PARTS | {"parameters": {"temperature": 0, "seed": 1}})
    other = work_key(**PARTS | {"parameters": {"seed": 1, "temperature": 0.0}})
    assert one == other


def test_parts_do_not_run_into_one_another() -> None:
    """Text moved from one part to its neighbour gives another key."""
    one = work_key(**PARTS | {"tenant": "a b", "model": ""})
    other = work_key(**PARTS | {"tenant": "a", "model": " b"})
    assert one != other


def test_rubric_wording_and_scale_change_the_rubrics_digest() -> None:
    """One character, or another end of the scale, is another rubric."""
    rubric = {"instructions": "Score it.", "scale": {"min": 0, "max": 10}}
    digests = {
        digest(rubric),
        digest(rubric | {"instructions": "Score it!"}),
        digest(rubric | {"scale": {"min": 0, "max": 100}}),
    }
    assert len(digests) == 3


def test_a_key_makes_the_identity_without_the_body() -> None:
    """With an idempotency key the body does not count; without one, only the body does."""
    keyed = {job_id("t", idempotency_key="k", request_digest=d) for d in ("1", "2")}
    bodies = {job_id("t", idempotency_key=None, request_digest=d) for d in ("1", "2")}
    assert (len(keyed), len(bodies)) == (1, 2)


def test_a_key_that_looks_like_a_digest_is_no_digest() -> None:
    """The two kinds of identity cannot meet."""
    text = "a" * 64
    keyed = job_id("t", idempotency_key=text, request_digest="")
    assert keyed != job_id("t", idempotency_key=None, request_digest=text)


def test_tenants_never_share_an_identity() -> None:
    """The same key of two tenants names two jobs and two decisions."""
    jobs = {job_id(t, idempotency_key="k", request_digest="r") for t in ("a", "b")}
    assert len(jobs) == 2
    assert len({decision_id(t, "job") for t in ("a", "b")}) == 2


def test_identities_are_names_that_any_store_takes() -> None:
    """Lower-case letters, digits and one underscore: fit for paths, attributes and addresses."""
    identity = job_id("t", idempotency_key="k", request_digest="r")
    assert identity.startswith("job_")
    assert identity.isascii()
    assert identity.replace("_", "").isalnum()
    assert identity == identity.lower()


def test_a_window_is_the_hour_in_utc() -> None:
    """A moment in another zone lies in the UTC hour."""
    zone = timezone(timedelta(hours=5, minutes=30))
    assert window_of(datetime(2026, 11, 29, 17, 45, tzinfo=zone)) == "2026-11-29T12"


def test_shards_are_few_and_all_used() -> None:
    """Identities spread over all shards and over no other number."""
    assert {shard_of(f"job_{n}") for n in range(200)} == set(range(SHARDS))


def test_object_names_carry_the_tenant_and_the_epoch() -> None:
    """No two tenants and no two epochs share an object."""
    names = {output_object(t, "w", "k", e) for t in ("a", "b") for e in (0, 1)}
    assert len(names) == 4
    assert output_object("a", "w", "k", 1) == "outputs/a/w/k/1.json"
    assert input_object("a", "d") == "inputs/a/d"
