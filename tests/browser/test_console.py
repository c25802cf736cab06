"""The console in a real browser, from signing in to signing out."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from infra.local.emulators import EmulatorHosts
from infra.local.options import StackOptions
from infra.local.stack import Stack
from tests.browser.chromium import Tab, browsing, find_browser
from tests.e2e.gate import Gate
from tests.stub import StubProvider

JOB = {
    "facts": {"stub-key": "browser", "note": "<script>alert(1)</script>"},
    "rubric": {
        "instructions": "Score it.",
        "criteria": [{"name": "portability"}, {"name": "value"}],
    },
    "seats": [
        {"seat": "first", "provider": "openai", "model": "a"},
        {"seat": "second", "provider": "openai", "model": "b"},
    ],
    "labels": {"run": "<b>november</b>"},
}
SIZES = [(1280, False), (1280, True), (360, False), (360, True)]
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


class HeldGate(Gate):
    """A gate that lets nobody through until `released` is set."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.released = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.released.wait()
        await super()._serve(reader, writer)


@asynccontextmanager
async def held_stack(hosts: EmulatorHosts, folder: Path) -> AsyncIterator[tuple[Stack, HeldGate]]:
    """A stack whose provider answers once the gate is opened."""
    async with StubProvider() as stub, HeldGate(urlsplit(stub.base_url).netloc) as gate:
        path = urlsplit(stub.base_url).path
        environment = {**stub.environment, "OPENAI_BASE_URL": f"http://{gate.address}{path}"}
        options = StackOptions(
            folder=folder / ".local",
            project="console",
            environment=environment,
            model=False,
            embedded=False,
            emulators=hosts,
        )
        async with Stack(options) as stack:
            yield stack, gate


async def test_a_person_submits_a_job_and_reads_its_report(
    emulator_hosts: EmulatorHosts, tmp_path: Path
) -> None:
    """Sign in, submit, see it end without loading the page again, compare, sign out.

    Nothing is asked of another host, and the browser has nothing to complain about: no error of a
    script, nothing its policy had to stop. Each page fits a phone, in light and in dark.
    """
    find_browser()
    async with held_stack(emulator_hosts, tmp_path) as (stack, gate), browsing(tmp_path) as tab:
        api = stack.info.api
        await tab.look(width=1280)
        await tab.open(f"{api}/submit")
        await tab.at("/login")
        await fits(tab, "login")
        await tab.type("#key", stack.info.api_key)
        await tab.click("main button")
        await tab.at("/submit")

        await tab.type("#job", "{}")
        await tab.click("button[value=submit]")
        await tab.until("document.querySelector('#faults')")
        assert "/facts" in await tab.text()
        await fits(tab, "refused")
        wrong = [text for text in tab.complaints if "422" in text]
        assert len(tab.complaints) == len(wrong), tab.complaints
        tab.complaints.clear()  # that the form was refused, as it had to be

        await tab.type("#job", json.dumps(JOB))
        await tab.click("button[value=estimate]")
        await tab.until("document.body.innerText.includes('2 requests if nothing fails')")
        await tab.click("button[value=submit]")
        await tab.at("/jobs/")
        job = await tab.ask("location.pathname")
        await tab.ask("window.sameDocument = true")
        await tab.until("document.querySelector('#part-state').innerText.includes('running')")
        await fits(tab, "running")
        gate.released.set()
        await tab.until(
            "document.querySelector('#part-state').innerText.includes('2 of 2 seats ended')"
        )
        assert await tab.ask("window.sameDocument"), "the page was loaded again"
        assert "2 of 2 seats gave a score" in await tab.text()
        assert not await tab.ask("document.querySelector('form[action$=\"/cancel\"]')")
        await fits(tab, "ended")

        await tab.click("#part-actions a")
        await tab.at("/compare")
        assert await tab.ask("document.querySelectorAll('table.compare tbody tr').length") == 6
        await fits(tab, "compare")
        for path in ("/", "/audits", "/incidents"):
            await tab.click(f"header a[href='{path}']")
            await tab.until(f"location.pathname === '{path}'")
            await fits(tab, path.strip("/") or "jobs")
        await tab.click(".who button")
        await tab.at("/login")
        await tab.open(f"{api}{job}")
        await tab.until("location.search.startsWith('?next=/jobs/')")

        assert tab.complaints == []
        assert {urlsplit(url).netloc for url in tab.requested} == {urlsplit(api).netloc}


async def fits(tab: Tab, name: str) -> None:
    """Hold a page against each size; nothing is wider than the screen but what scrolls by itself.

    With `EMPANEL_SCREENSHOTS` a picture of each is kept in that folder.
    """
    folder = os.environ.get("EMPANEL_SCREENSHOTS")
    for width, dark in SIZES:
        await tab.look(width=width, dark=dark)
        if folder:
            await tab.save(Path(folder) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        assert await tab.ask(FITS), f"{name} is wider than {width} pixels"
    await tab.look(width=1280)
