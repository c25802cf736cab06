"""All tests, in two pytest runs side by side: `python -m tests [options of pytest]`.

Those with stacks of their own mostly wait for processes, the others compute; together they take
little longer than the slower half. With arguments that name tests there is one run, of these.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

STACKS = ("tests/e2e", "tests/independent")
NOTHING_SELECTED = 5  # pytest's exit code when a selection leaves a run without tests


def main(options: Sequence[str]) -> int:
    """Run the tests; the exit code is 0 only when both runs passed."""
    if any(Path(option.partition("::")[0]).exists() for option in options):
        return subprocess.run(_command(*options), check=False).returncode
    with tempfile.TemporaryFile() as output:
        stacks = _start(output, *STACKS, *options)
        try:
            rest = subprocess.run(
                _command(*(f"--ignore={folder}" for folder in STACKS), *options), check=False
            ).returncode
            print("\nTests with stacks of their own, run beside these:", flush=True)
            code = stacks.wait()
        finally:
            stacks.terminate()
            stacks.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    codes = [result for result in (rest, code) if result != NOTHING_SELECTED]
    return max(codes, default=NOTHING_SELECTED)


def _start(output: IO[bytes], *arguments: str) -> subprocess.Popen[bytes]:
    # A cache of its own: two runs that write one would lose the other's last failures.
    command = _command("-o", "cache_dir=.pytest_cache/stacks", *arguments)
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
