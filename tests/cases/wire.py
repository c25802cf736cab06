"""A provider that speaks in a vendor's raw responses, read by that vendor's own dialect."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.core.jobs import Attempt, Job
from functions.core.schemas import answer_problem
from functions.core.strict_json import StrictJsonError, parse
from functions.core.submissions import Submission
from functions.core.verdicts import CallFailure, CallRequest, ProviderAnswer
from functions.providers import anthropic, chat, gemini, responses
from functions.providers.base import Dialect, Endpoint
from functions.providers.redaction import redactor
from functions.reports import build_report
from functions.statuses import attempts_view, job_view, read_status
from tests.faults.fakes import Reply, question_of
from tests.faults.invariants import broken
from tests.faults.world import World, seat_of

KEY = "sk-test-ABCDEFGH12345678"
VERDICT = '{"rationale": "ok", "score": 71}'
DIALECTS: Mapping[str, Dialect] = {
    "chat": chat,
    "responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One response: a JSON value as `body`, or `data` as it is."""

    status: int = 200
    body: Any = None
    data: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def bytes(self) -> bytes:
        """Return the body as it goes over the wire."""
        return json.dumps(self.body).encode() if self.data is None else self.data


Script = Callable[[dict[str, Any], int], Raw]


@dataclass(kw_only=True)
class Wire:
    """What was asked, and what each model answers; a model without a script answers well."""

    world: World
    name: str
    key: str | None = KEY
    scripts: dict[str, Script] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    attempt_keys: list[str | None] = field(default_factory=list)

    def plays(self, *raws: Raw, model: str = "m0", repeat_last: bool = True) -> None:
        """Let a model answer a question with these responses in order."""

        def script(body: dict[str, Any], number: int) -> Raw:
            if number <= len(raws):
                return raws[number - 1]
            return raws[-1] if repeat_last else good(self.name)

        self.scripts[model] = script

    def answer(self, request: CallRequest, number: int) -> Reply:
        """Build the vendor's request, and read the scripted response to it."""
        dialect = DIALECTS[self.name]
        endpoint = Endpoint(
            name="fake", base_url="https://vendor.example/v1", dialect=self.name, api_key=self.key
        )
        wire = dialect.build(endpoint, request)
        if isinstance(wire, CallFailure):
            return wire
        body = json.loads(wire.body)
        self.bodies.append(body)
        self.attempt_keys.append(request.attempt_key)
        script = self.scripts.get(request.model)
        raw = script(body, number) if script else good(self.name)
        now = self.world.clock.now()
        reply = dialect.read(raw.status, raw.headers, raw.bytes(), now, redactor([self.key]))
        if isinstance(reply, ProviderAnswer) and _looks_usable_but_is_not(reply.text, request):
            self.world.provider.unusable[question_of(request)] += 1
        return reply


def _looks_usable_but_is_not(text: str, request: CallRequest) -> bool:
    """Whether an answer that begins like JSON breaks the schema: the provider counts the others."""
    if not text.startswith("{"):
        return False
    try:
        return answer_problem(parse(text), request.schema) is not None
    except StrictJsonError:
        return True


def wired(world: World, name: str = "chat") -> Wire:
    """Let the world's provider speak a dialect."""
    wire = Wire(world=world, name=name)
    world.provider.script = wire.answer
    return wire


def good(name: str, text: str = VERDICT, model: str = "m-1", **changes: Any) -> Raw:
    """Return a whole answer in a dialect; `changes` replace parts of its body."""
    return Raw(body=_ANSWERS[name](text, model) | changes)


def completion(content: Any, finish: str = "stop", **message: Any) -> Raw:
    """Return a chat completion that ended for a reason."""
    said = {"role": "assistant", "content": content, **message}
    return good("chat", choices=[{"index": 0, "finish_reason": finish, "message": said}])


def _chat(text: str, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 12, "total_tokens": 52},
    }


def _responses(text: str, model: str) -> dict[str, Any]:
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {
        "status": "completed",
        "model": model,
        "output": [{"type": "reasoning"}, message],
        "usage": {"input_tokens": 40, "output_tokens": 12},
    }


def _anthropic(text: str, model: str) -> dict[str, Any]:
    return {
        "type": "message",
        "model": model,
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 40, "output_tokens": 12},
    }


def _gemini(text: str, model: str) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}],
        "modelVersion": model,
        "usageMetadata": {"promptTokenCount": 40, "candidatesTokenCount": 12},
    }


_ANSWERS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


async def played(world: World, asked: Submission) -> Job:
    """Submit and let everything come to its end; the invariants hold."""
    job = await world.submit(asked)
    await world.finish()
    assert broken(world) == {}
    return world.jobs()[job.id]


def attempts(world: World, job: Job, index: int = 0) -> tuple[Attempt, ...]:
    """Return the requests of a seat that has ended."""
    return seat_of(world, job, index).attempts


def waits(world: World, job: Job) -> list[float]:
    """Return the seconds between the end of each attempt and the start of the next."""
    own = attempts(world, job)
    pairs = itertools.pairwise(own)
    return [(b.started_at - a.ended_at).total_seconds() for a, b in pairs if a.ended_at]


async def shown(world: World, job: Job) -> dict[str, Any]:
    """Return everything that the API shows of a job."""
    services = world.api.services
    status = await read_status(services, world.jobs()[job.id])
    return {
        "job": job_view(status),
        "attempts": attempts_view(status)["attempts"],
        "report": await build_report(services, status),
    }
