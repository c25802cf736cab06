"""Ends the process groups of a supervisor that died without cleaning up (kill -9, a crash).

The supervisor starts this file as a process of its own and writes `+PID` and `-PID` lines to its
standard input as groups come and go. The end of that input means that the supervisor is gone:
what is still registered then is ended. This holds on Linux and macOS alike, because it needs
nothing but a pipe. Standard library only: it must start fast and stay small.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_SECONDS = 2.0


def registered_at_the_end(lines: Iterable[str]) -> set[int]:
    """Read registrations until the input ends; the groups that were never taken back."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def signal_groups(groups: Iterable[int], signal_number: int) -> None:
    """Send a signal to each group that still exists."""
    for group in groups:
        try:
            os.killpg(group, signal_number)
        except (ProcessLookupError, PermissionError):
            continue  # gone already, or the number now belongs to somebody else


def main() -> None:
    """Wait for the end of the supervisor, then end what it left."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    orphans = registered_at_the_end(sys.stdin)
    if orphans:
        signal_groups(orphans, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        signal_groups(orphans, signal.SIGKILL)


if __name__ == "__main__":
    main()
