"""`python -m functions`: the command line."""

import io
import sys

from functions.cli import app


def main() -> None:
    """Run the command line; a terminal that lacks a character shows `?` instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="empanel")


if __name__ == "__main__":
    main()
