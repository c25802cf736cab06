"""Known vulnerabilities of what is pinned: `python -m infra.dependency_audit FILE...`.

pip-audit asks a database on the network about each pinned package. Its exit status is the same for
a vulnerability and for a network that is not there, and good where the database knows none of the
packages, as a mirror may not. Here these are told apart: an audit that did not take place is no
clean one.

    0  nothing known     1  vulnerabilities     3  no answer about all packages: not audited
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

CLEAN, VULNERABLE, UNREACHABLE = 0, 1, 3
SHOWN = 5
OPTIONS = ("--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off")


def main(files: Sequence[str]) -> int:
    """Audit each file of pinned requirements; return the worst that was found."""
    if not files:
        print("Name the files of pinned requirements to audit.", file=sys.stderr)  # noqa: T201 - a command
        return UNREACHABLE
    return max([_audit(file) for file in files], key=(CLEAN, UNREACHABLE, VULNERABLE).index)


def _audit(file: str) -> int:
    done = subprocess.run(  # noqa: S603 - our own interpreter, no shell
        [sys.executable, "-m", "pip_audit", "--requirement", file, *OPTIONS],
        capture_output=True,
        text=True,
        check=False,
    )
    status, lines = judge(file, done.stdout, done.stderr)
    print("\n".join(lines), file=sys.stderr if status else sys.stdout)
    return status


def judge(file: str, output: str, errors: str) -> tuple[int, list[str]]:
    """Return the exit status for what pip-audit said of a file, and what to say of it."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (errors.strip().splitlines() or ["pip-audit said nothing"])[-1][:500]
        return UNREACHABLE, [
            f"{file}: NOT AUDITED. pip-audit got no answer from the vulnerability database",
            f"  {reason}",
        ]
    found = [
        f"{file}: {package['name']} {package['version']}: {flaw['id']},"
        f" fixed in {', '.join(flaw.get('fix_versions') or ['no version yet'])}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    skipped = [package for package in packages if "skip_reason" in package]
    left_out = [
        f"  {package['name']}: {package['skip_reason']}"[:200] for package in skipped[:SHOWN]
    ]
    if skipped:
        count = f"{len(skipped)} of {len(packages)} packages"
        left_out.insert(0, f"{file}: NOT AUDITED: {count}, among them")
    if found or skipped:
        return VULNERABLE if found else UNREACHABLE, found + left_out
    return CLEAN, [f"{file}: nothing is known against {len(packages)} packages"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
