"""The server of one function process: `python -m functions.serving`.

uvicorn over functions-framework's own ASGI application. Under the framework's default server a
SIGTERM drops requests in flight without telling the handlers; here it first stops new claims, gives
the calls in flight the grace time, cuts the rest, and lets every handler answer.
"""

import asyncio
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType

import uvicorn
from functions_framework.aio import create_asgi_app
from starlette.applications import Starlette

from functions import bootstrap, config, export_settings, telemetry
from functions.core.errors import ConfigurationError
from functions.providers import registry
from functions.web.flushing import Flushing
from functions.web.refusals import speak_problems

SOURCE = Path(__file__).resolve().parent.parent / "main.py"
# Longer than clients keep an idle connection (5 s in httpx): who closes first is the one who sends,
# so no request meets a connection that is just being closed.
KEEP_ALIVE_SECONDS = 75
SETTLE_SECONDS = 1.5  # from the last cut to the last answer; Cloud Run kills 10 s after SIGTERM
# What answers a target's requests: main.py imports it at the first of them, too late.
DOORS = {
    "api": "functions.web.api",
    "evaluate": "functions.web.push",
    "notify": "functions.web.notify_push",
    "reconcile": "functions.web.push",
    "dead_letter": "functions.web.dead_letter_push",
}
TELL_SECONDS = 1.0  # for the last traces and metrics, when all requests are answered


class Server(uvicorn.Server):
    """A uvicorn server whose first signal starts the orderly end of the calls in flight."""

    def __init__(self, settings: uvicorn.Config, grace_seconds: float) -> None:
        super().__init__(settings)
        self._grace_seconds = grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None
        self._told_until: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Note the loop, which signals are handed to, and start."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is open, then send the last telemetry, within the same grace time."""
        await super().shutdown(sockets)
        exporting = bootstrap.exporting()
        if exporting is not None:
            left = (self._told_until or 0.0) - asyncio.get_running_loop().time()
            await exporting.finish(min(TELL_SECONDS, max(0.1, left)))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the end: once, whatever the number of signals."""
        if self._loop is not None and self._ending is None:
            self._loop.call_soon_threadsafe(self._end_calls)
        super().handle_exit(sig, frame)

    def _end_calls(self) -> None:
        if self._ending is None:
            grace = self._grace_seconds + SETTLE_SECONDS
            self._told_until = asyncio.get_running_loop().time() + grace
            inflight = bootstrap.application().services.inflight
            self._ending = asyncio.ensure_future(inflight.shut_down(self._grace_seconds))
            telemetry.event("shutting down", calls=len(inflight.calls))


def main() -> None:
    """Serve the target in FUNCTION_TARGET on PORT until SIGTERM or SIGINT."""
    telemetry.configure(os.environ.get("GOOGLE_CLOUD_PROJECT", "").strip())
    target = os.environ.get("FUNCTION_TARGET", "")
    try:
        settings = _checked(target)
        port = int(os.environ.get("PORT", "8080"))
    except (ConfigurationError, ValueError) as exc:
        telemetry.error("cannot start", target=target, reason=str(exc))
        sys.exit(2)
    server = Server(
        uvicorn.Config(
            create_app(target),
            host=os.environ.get("EMPANEL_HOST", "0.0.0.0"),  # noqa: S104 - a container
            port=port,
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(settings.grace_seconds + SETTLE_SECONDS + 0.5),
        ),
        settings.grace_seconds,
    )
    server.run()


def create_app(target: str) -> Starlette:
    """Return the framework's application for a target, its own refusals as problems."""
    import_module(DOORS[target])
    app = speak_problems(create_asgi_app(target, str(SOURCE)))  # type: ignore[no-untyped-call]
    if export_settings.load(os.environ).any:
        app.add_middleware(Flushing, exporting=bootstrap.exporting)
    return app


def _checked(target: str) -> config.Settings:
    """Check everything the target needs before the first request.

    Raises:
        ConfigurationError: a setting breaks its rule.
        ValueError: a variable breaks a rule of OpenTelemetry's SDK, which would refuse it at every
            request.
    """
    if target not in config.TARGETS:
        names = ", ".join(config.TARGETS)
        raise ConfigurationError(f"FUNCTION_TARGET={target!r} must be one of {names}")
    settings = config.load(os.environ)
    export_settings.load(os.environ)
    registry.load(os.environ)
    if target == "api":
        config.require_audience(settings)
    else:
        config.require_callers(settings)
    if target == "notify":
        config.require_secrets(settings)
    bootstrap.exporting()
    return settings


if __name__ == "__main__":
    main()
