"""The audit of what is pinned: an audit that did not take place is told from a clean one."""

import json
from typing import Any

import pytest

from infra.dependency_audit import CLEAN, UNREACHABLE, VULNERABLE, judge

FLAW = {"id": "PYSEC-1", "fix_versions": ["2.0"]}


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(packages)})


@pytest.mark.parametrize(
    ("output", "errors", "status", "told"),
    [
        (report({"name": "a", "version": "1", "vulns": []}), "", CLEAN, "against 1 packages"),
        (
            report({"name": "a", "version": "1", "vulns": [FLAW]}),
            "Found 1 known vulnerability",
            VULNERABLE,
            "a 1: PYSEC-1, fixed in 2.0",
        ),
        (
            report({"name": "a", "version": "1", "vulns": [{"id": "X", "fix_versions": []}]}),
            "",
            VULNERABLE,
            "no version yet",
        ),
        (report({"name": "a", "skip_reason": "unknown"}), "", UNREACHABLE, "NOT AUDITED: 1 of 1"),
        (
            report(
                {"name": "a", "skip_reason": "x"}, {"name": "b", "version": "1", "vulns": [FLAW]}
            ),
            "",
            VULNERABLE,
            "PYSEC-1",
        ),
        ("", "ERROR: x\nCould not connect to the server", UNREACHABLE, "Could not connect"),
        ("", "", UNREACHABLE, "NOT AUDITED"),
        ("[]", "", UNREACHABLE, "NOT AUDITED"),
    ],
)
def test_each_outcome_has_its_status(output: str, errors: str, status: int, told: str) -> None:
    """Nothing known, a flaw, a package left out, and no answer, which is none of these."""
    found, lines = judge("requirements.txt", output, errors)
    assert found == status
    assert told in "\n".join(lines)
    assert all(line.startswith(("requirements.txt", "  ")) for line in lines)
