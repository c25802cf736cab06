"""A headless Chromium, driven over the DevTools protocol, that notes all it complains about.

It is Debian's `chromium`, or what `EMPANEL_BROWSER` names. Without one the tests are skipped;
`EMPANEL_REQUIRE_BROWSER=1` (CI) makes that an error.
"""

import asyncio
import base64
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-features=PasswordManager,AutofillServerCommunication",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
DOMAINS = ("Page", "Runtime", "Log", "Network")
TIMEOUT_SECONDS = 30.0


def find_browser() -> str:
    """Return the browser's command; the test ends here where there is none."""
    chosen = os.environ.get("EMPANEL_BROWSER")
    found = next(filter(None, map(shutil.which, (chosen,) if chosen else NAMES)), None)
    if found is None:
        if os.environ.get("EMPANEL_REQUIRE_BROWSER") == "1":
            pytest.fail("EMPANEL_REQUIRE_BROWSER=1, and there is no Chromium")
        pytest.skip("no Chromium is installed (on Debian: apt install chromium)")
    return found


class Tab:
    """One page of the browser; `complaints` and `requested` grow while it is used."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def listen(self) -> None:
        """Take what the browser says until it ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            if (answered := self._waiting.pop(said.get("id", 0), None)) is not None:
                answered.set_result(said)
            elif "method" in said:
                self._note(said["method"], said["params"])

    def _note(self, event: str, facts: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.requested.append(facts["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(facts["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if facts["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(facts["args"]))
            case "Log.entryAdded" if facts["entry"]["level"] in ("error", "warning"):
                self.complaints.append(json.dumps(facts["entry"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._ids)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answered, TIMEOUT_SECONDS)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Go to an address."""
        await self.call("Page.navigate", url=url)

    async def ask(self, expression: str) -> Any:
        """Return what an expression gives in the page as it is; None while the page changes."""
        with suppress(RuntimeError):
            said = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            return said["result"].get("value")
        return None

    async def until(self, expression: str) -> None:
        """Wait until an expression holds in the page."""
        await until(
            lambda: self.ask(f"document.readyState === 'complete' && Boolean({expression})"),
            bool,
            what=f"{expression} in the browser",
            look_seconds=0.05,
        )

    async def at(self, path: str) -> None:
        """Wait until a page whose path begins like this is loaded."""
        await self.until(f"location.pathname.startsWith({json.dumps(path)})")

    async def click(self, selector: str) -> None:
        """Click on an element as a mouse does."""
        place = await self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        assert place, f"nothing to click: {selector}"
        point = {"x": place[0], "y": place[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, **point)

    async def type(self, selector: str, text: str) -> None:
        """Put a text into a field in place of what is there."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.ask(f"({found}.focus(), {found}.select())")
        await self.call("Input.insertText", text=text)

    async def text(self) -> str:
        """Return what the page shows."""
        return str(await self.ask("document.body.innerText"))

    async def look(self, *, width: int, dark: bool = False) -> None:
        """Take a size and a colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def save(self, path: Path) -> None:
        """Save a picture of the whole page."""
        said = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(said["data"]))


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Tab]:
    """A browser with an empty profile in `folder`, for the length of the block."""
    profile = folder / "profile"
    command = (find_browser(), *FLAGS, f"--user-data-dir={profile}", "about:blank")
    with (folder / "browser.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        port = await _port(process, profile, folder / "browser.log")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                [target] = [t for t in await answer.json() if t["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                for domain in DOMAINS:
                    await tab.call(f"{domain}.enable")
                yield tab
                listening.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _port(process: asyncio.subprocess.Process, profile: Path, log: Path) -> int:
    """Return the port of the DevTools, which the browser writes into its profile."""

    async def look() -> str:
        return await asyncio.to_thread(_told, profile / "DevToolsActivePort")

    told = await until(
        look, lambda text: "\n" in text or process.returncode is not None, what="DevTools listen"
    )
    assert process.returncode is None, await asyncio.to_thread(_told, log)
    return int(told.split()[0])


def _told(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
