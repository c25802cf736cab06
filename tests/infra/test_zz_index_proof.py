"""The proof of indexes, over everything that the session's other tests made the code ask.

These tests run last. That a query is not covered is a failure in any run; that an index is not
used, or a query not made, only a whole run can tell.
"""

from pathlib import Path

import pytest

from tests.infra.indexes import DECLARED, read_declared
from tests.infra.recording import RECORDED, query_sites

ADVICE = f"declare it in {DECLARED.parent.name}/{DECLARED.name}"


@pytest.fixture
def whole_run(request: pytest.FixtureRequest) -> None:
    """Skip unless all tests were asked for."""
    config = request.config
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not everything or config.option.keyword or config.option.lf or config.option.maxfail:
        pytest.skip("only a run of all tests can tell (make test)")


def test_every_query_has_its_index() -> None:
    """Firestore refuses a query without its index, and the emulator does not: C12."""
    declared = read_declared()
    missing = [
        f"{shape} (asked in {file}:{line})"
        for shape, (file, line) in RECORDED.shapes.items()
        if declared.used_by(shape) is None
    ]
    assert not missing, f"no index for these; {ADVICE}"


@pytest.mark.usefixtures("whole_run")
def test_every_index_is_used() -> None:
    """An index that no query uses costs storage and a part of every write."""
    declared = read_declared()
    used = {index for shape in RECORDED.shapes for index in declared.used_by(shape) or ()}
    assert not [str(index) for index in declared.composites if index not in used]


@pytest.mark.usefixtures("whole_run")
def test_every_query_of_the_code_was_made() -> None:
    """A query that no test makes is a query whose index nobody has proved."""
    unseen = {site: line for site, line in query_sites().items() if site not in RECORDED.sites}
    assert not unseen


@pytest.mark.usefixtures("whole_run")
def test_no_time_is_indexed_that_nobody_asks_for() -> None:
    """The index of a time takes every write at its end: 500 a second at most."""
    declared = read_declared()
    asked = {(shape.collection, shape.order) for shape in RECORDED.shapes if not shape.equal}
    assert not sorted(RECORDED.times - declared.exempt - asked), f"exempted? {ADVICE}"


@pytest.mark.usefixtures("whole_run")
def test_what_expires_is_deleted() -> None:
    """A collection has a time to live where its documents have an `expire_at`, and nowhere else."""
    expiring = {name for name, fields in RECORDED.created.items() if "expire_at" in fields}
    expiring |= {collection for collection, name in RECORDED.times if name == "expire_at"}
    assert expiring == {collection for collection, _ in read_declared().ttl}


def test_the_session_is_written_down(pytestconfig: pytest.Config) -> None:
    """What was asked in this session is in pytest's cache, for whoever wants to read it."""
    shapes = sorted(str(shape) for shape in RECORDED.shapes)
    assert pytestconfig.cache is not None
    pytestconfig.cache.set("empanel/query_shapes", shapes)
    assert pytestconfig.cache.get("empanel/query_shapes", None) == shapes
    assert Path(DECLARED).is_file()
