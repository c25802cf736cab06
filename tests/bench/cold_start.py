"""How long the image's start command takes until it answers, for each target.

    python -m tests.bench.cold_start
    python -m tests.bench.cold_start --imports evaluate    # where the time goes

From the start of the process to the first `/health` that is answered 200: the median of some
starts, with the files of the image, compiled as there, and warm file caches. Cloud Run adds what it
takes to fetch the image and to set up the sandbox, and lends a second vCPU while starting
(`startup_cpu_boost`).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from functions.config import TARGETS
from tests.bench.seat_cpu import cpu_seconds
from tests.infra.image import environment, lay_out, serving, start_command

STARTS = 7
LOOK_SECONDS = 0.005
MOST_SECONDS = 60.0
SHOWN = 25


def start_seconds(app: Path, target: str) -> tuple[float, float]:
    """Return how long one start takes, and the CPU time that it takes."""
    began = time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with serving(app, target) as (address, process):
        while time.monotonic() - began < MOST_SECONDS and process.poll() is None:
            try:
                with opener.open(f"{address}/health", timeout=5) as answer:
                    assert answer.status == 200
                    return time.monotonic() - began, cpu_seconds(process.pid)
            except urllib.error.URLError:
                time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{target} did not start")


def bare_seconds() -> float:
    """Return how long Python itself takes to start and end: the floor."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.monotonic() - began


def imports(app: Path, target: str) -> list[tuple[int, str]]:
    """Return microseconds and names of what a start imports, dearest first."""
    code = f"from functions import serving; serving.create_app({target!r})"
    done = subprocess.run(
        [start_command()[0], "-X", "importtime", "-c", code],
        cwd=app,
        env=environment(target, 0),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2]
    found = [(int(row[1]), row[2].strip()) for row in rows[1:]]
    return sorted(found, reverse=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cold_start")
    parser.add_argument("--imports", metavar="TARGET", choices=TARGETS)
    target = parser.parse_args().imports
    with tempfile.TemporaryDirectory() as folder:
        app = lay_out(Path(folder) / "app")
        if target is not None:
            for microseconds, name in imports(app, target)[:SHOWN]:
                print(f"{microseconds / 1000:>8.1f} ms  {name}")
            return
        bare = statistics.median(bare_seconds() for _ in range(STARTS))
        print(f"median of {STARTS} starts; Python alone {bare:.2f} s\n")
        print(f"{'target':<14}{'seconds':>8}{'of CPU':>8}")
        for name in TARGETS:
            starts = [start_seconds(app, name) for _ in range(STARTS)]
            seconds, cpu = (statistics.median(column) for column in zip(*starts, strict=True))
            print(f"{name:<14}{seconds:>8.2f}{cpu:>8.2f}")


if __name__ == "__main__":
    main()
