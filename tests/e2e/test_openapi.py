"""Requests made up from the published document, against the running API.

Schemathesis makes them: valid ones, broken ones, sequences that follow the links. No answer may be
a 5xx, of a status or a shape that the document does not have, or accept what breaks a rule.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from functions.web.api import API_ROUTES
from functions.web.openapi import document
from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Site, open_site, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
SEED = 1
QUICK = ("examples", "fuzzing", "stateful")
EVERYTHING = ("examples", "coverage", "fuzzing", "stateful")
MAKERS, MANY_MAKERS = 2, 4  # processes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    # Schemathesis waits until an answer has ended, also one that is an open job's events.
    environment = {"EMPANEL_STREAM_SECONDS": "1"}
    folder = tmp_path_factory.mktemp("openapi")
    async with open_site(emulator_hosts, folder, environment=environment) as running:
        await running.ended(await running.accepted(panel("before", "a")))
        yield running


async def made_up(site: Site, folder: Path, phases: tuple[str, ...], most: int, seed: int) -> int:
    """Send at most so many requests per operation and phase; how many were sent.

    Fails with Schemathesis's report when a check does.
    """
    info = site.stack.info
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "schemathesis.cli", "--config-file", str(CONFIGURATION)),
        *("run", f"{info.api}/openapi.json"),
        *("--header", f"Authorization: Bearer {info.api_key}"),
        *("--phases", ",".join(phases), "--max-examples", str(most), "--seed", str(seed)),
        *("--workers", "1", "--continue-on-failure"),  # no threads: cpython#106905
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    report = output.decode(errors="replace")
    assert process.returncode == 0, report
    generated = re.search(r"^\s*([\d,]+) generated", report, re.MULTILINE)
    assert generated is not None, report
    return int(generated.group(1).replace(",", ""))


async def test_the_running_api_publishes_this_document(site: Site) -> None:
    """What is served is made from the routes of this code, and so is the page."""
    assert await site.read("/openapi.json") == document(API_ROUTES)
    assert (await site.call("GET", "/docs")).status_code == 200


async def by_makers(
    site: Site, folder: Path, phases: tuple[str, ...], *, most: int, makers: int
) -> int:
    """Let so many makers send requests at once, each from a seed of its own; how many were sent."""
    async with asyncio.TaskGroup() as group:
        made = [
            group.create_task(made_up(site, folder, phases, most, SEED + number))
            for number in range(makers)
        ]
    return sum(each.result() for each in made)


async def test_made_up_requests_get_promised_answers(site: Site, tmp_path: Path) -> None:
    """Two thousand requests: no 5xx, no status and no shape that is not published."""
    assert await by_makers(site, tmp_path, QUICK, most=40, makers=MAKERS) >= 2_000


@pytest.mark.long
async def test_thousands_of_made_up_requests_get_promised_answers(
    site: Site, tmp_path: Path
) -> None:
    """Ten thousand and more, from several makers at once, with every corner of every schema."""
    assert await by_makers(site, tmp_path, EVERYTHING, most=150, makers=MANY_MAKERS) >= 10_000
