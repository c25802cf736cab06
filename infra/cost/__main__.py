"""`python -m infra.cost`: print COST.md, or write it."""

import argparse
from pathlib import Path

from infra.cost.model import read_counts, read_prices
from infra.cost.page import page

PAGE = Path(__file__).resolve().parents[1] / "COST.md"


def main() -> None:
    """Print the page; with `--write` put it where it belongs."""
    parser = argparse.ArgumentParser(prog="python -m infra.cost", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    text = page(read_counts(), read_prices())
    if parser.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()
