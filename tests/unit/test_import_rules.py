"""The import rules in `pyproject.toml` name every module: a rule says nothing about others."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
UNRULED = {"telemetry"}  # what every step may use
WIRING = {"bootstrap", "serving"}  # where adapters are chosen and started


def contract(name: str) -> dict[str, Any]:
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    [found] = [c for c in document["tool"]["importlinter"]["contracts"] if c["name"] == name]
    return dict(found)


def modules() -> set[str]:
    """Every module that lies directly in `functions/`."""
    names = {path.stem for path in (REPOSITORY / "functions").glob("*.py")}
    return names - {"__init__", "__main__"}


@pytest.mark.parametrize(
    ("name", "option", "left_out"),
    [
        ("The flow points one way", "layers", UNRULED),
        ("Adapters and providers know only the core", "forbidden_modules", set()),
        (
            "Only adapters, providers and the command line speak to vendors",
            "source_modules",
            UNRULED | WIRING,
        ),
    ],
)
def test_every_module_is_under_the_rule(name: str, option: str, left_out: set[str]) -> None:
    """A module that was added later obeys the rule as the others do."""
    named = {each.strip() for line in contract(name)[option] for each in line.split("|")}
    assert not {module for module in modules() - left_out if f"functions.{module}" not in named}
