"""The stub's HTTP side: the provider's two routes, and the admin routes that tests use.

- ``POST /v1/chat/completions``: the scripted or the normal answer
- ``GET /v1/models``: the model list
- ``POST /admin/script``: replace the rules (``tests.stub.script.Script``), the latency if given
- ``POST /admin/reset``: forget everything seen; rules go too unless ``{"keep_rules": true}``
- ``GET /admin/stats``: ``tests.stub.book.Stats``; ``?requests=false&bodies=false`` leaves out most
"""

import asyncio
import hmac
import json
import time
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tests.stub.answers import drawn_fraction
from tests.stub.book import Arrival, Book, RequestRecord, Stats
from tests.stub.completions import Reply, error_reply, reply_to
from tests.stub.delivery import deliver
from tests.stub.question import Question, UnreadableError, read_question
from tests.stub.script import Cue, Director, Rule, Script, ScriptedResponse

MAX_BODY_BYTES = 16 * 2**20
STATS = TypeAdapter(Stats)


class Settings(BaseModel):
    """How the stub behaves without rules. With ``require_key`` a wrong key is answered 401."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency_seconds: float = Field(default=0.0, ge=0)
    jitter: float = Field(default=0.0, ge=0, le=1)
    seed: int = 0
    api_key: str = "stub-secret"
    require_key: bool = False
    models: tuple[str, ...] = ("stub-a", "stub-b")
    kept_requests: int = Field(default=20_000, ge=1)
    kept_body_bytes: int = Field(default=32 * 2**20, ge=0)


def drawn_latency_seconds(settings: Settings, key: str, occurrence: int) -> float:
    """How long the ``occurrence``-th request of a key waits; the same in every run of a seed."""
    spread = 2 * drawn_fraction(settings.seed, key, occurrence) - 1
    return settings.latency_seconds * (1 + settings.jitter * spread)


class StubServer:
    """The state behind the routes: settings, the book, and the director of the script."""

    def __init__(self, settings: Settings, script: Script) -> None:
        self._settings = settings
        self._rules: tuple[Rule, ...] = ()
        self._director = Director(())
        self._book = self._fresh_book()
        self._apply(script)

    def application(self) -> web.Application:
        """The aiohttp application, without a running server."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_post("/v1/chat/completions", self._complete_chat)
        application.router.add_get("/v1/models", self._list_models)
        application.router.add_post("/admin/script", self._change_script)
        application.router.add_post("/admin/reset", self._reset)
        application.router.add_get("/admin/stats", self._show_stats)
        return application

    async def _complete_chat(self, request: web.Request) -> web.StreamResponse:
        arrival = self._arrival(request)
        try:
            question = read_question(await request.read())
        except web.HTTPRequestEntityTooLarge:
            self._book.reject()
            raise
        except UnreadableError as exc:
            self._book.reject()
            return (await deliver(request, error_reply(400, str(exc), param=exc.param)))[0]
        book = self._book  # a reset while this request waits must not mix two books
        record = book.arrive(question, arrival)
        return await self._answer(request, question, record, book)

    async def _answer(
        self, request: web.Request, question: Question, record: RequestRecord, book: Book
    ) -> web.StreamResponse:
        refused = self._settings.require_key and not record.authorization_right
        cue = None if refused else self._director.cue(question)
        rule = cue.rule if cue else None
        try:
            reply = _unauthorized(record) if refused else _reply(question, record, cue)
            await asyncio.sleep(self._wait_seconds(record, reply.scripted))
            response, outcome = await deliver(request, reply)
        except (asyncio.CancelledError, ConnectionError):
            book.end(record, "client_gone", status=None, rule=rule)
            raise
        except Exception:
            book.end(record, "stub_error", status=500, rule=rule)
            raise
        book.end(record, outcome, status=reply.status if outcome == "answered" else None, rule=rule)
        return response

    def _wait_seconds(self, record: RequestRecord, scripted: ScriptedResponse) -> float:
        if scripted.delay_seconds is not None:
            return scripted.delay_seconds
        return drawn_latency_seconds(self._settings, record.key, record.occurrence)

    def _arrival(self, request: web.Request) -> Arrival:
        expected = f"Bearer {self._settings.api_key}".encode()
        given = request.headers.get("authorization", "").encode("utf-8", "surrogateescape")
        return Arrival(
            at=datetime.now(UTC),
            monotonic=time.monotonic(),
            header_names=tuple(sorted({name.lower() for name in request.headers})),
            authorization_right=hmac.compare_digest(given, expected),
        )

    async def _list_models(self, request: web.Request) -> web.Response:
        models = [
            {"id": name, "object": "model", "created": 1_767_225_600, "owned_by": "stub"}
            for name in self._settings.models
        ]
        return web.json_response({"object": "list", "data": models})

    async def _change_script(self, request: web.Request) -> web.Response:
        try:
            script = Script.model_validate_json(await request.read())
        except ValidationError as exc:
            return web.json_response({"error": str(exc)}, status=400)
        self._apply(script)
        return web.json_response({"rules": len(script.rules)})

    async def _reset(self, request: web.Request) -> web.Response:
        options: Any = json.loads(await request.read() or b"{}")
        if not options.get("keep_rules", False):
            self._rules = ()
        self._director = Director(self._rules)
        self._book = self._fresh_book()
        return web.json_response({"rules": len(self._rules)})

    async def _show_stats(self, request: web.Request) -> web.Response:
        stats = self._book.stats(
            with_requests=request.query.get("requests") != "false",
            with_bodies=request.query.get("bodies") != "false",
        )
        return web.Response(body=STATS.dump_json(stats), content_type="application/json")

    def _apply(self, script: Script) -> None:
        self._rules = script.rules
        self._director = Director(script.rules)
        changes = script.model_dump(include={"latency_seconds", "jitter", "seed"})
        given = {name: value for name, value in changes.items() if value is not None}
        self._settings = self._settings.model_copy(update=given)

    def _fresh_book(self) -> Book:
        return Book(
            kept_requests=self._settings.kept_requests,
            kept_body_bytes=self._settings.kept_body_bytes,
        )


def _reply(question: Question, record: RequestRecord, cue: Cue | None) -> Reply:
    return reply_to(question, record, cue.response if cue else ScriptedResponse())


def _unauthorized(record: RequestRecord) -> Reply:
    return error_reply(401, "Incorrect API key provided.", request_id=record.request_id)
