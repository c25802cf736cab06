"""One request to a provider as telemetry sees it: a client span and its duration.

Attributes and metrics are those of OpenTelemetry's generative AI conventions (semantic conventions
1.41; the release in their own repository, 0.1.0, calls the duration
`gen_ai.client.inference.duration`). What was asked and answered is in none of them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

from functions.core.jobs import Attempt, Seat, Usage
from functions.core.vendors import Vendor
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.services import Services
from functions.tracing import ERROR_TYPE, Attributes, failed

_FINISHED = "stop"  # a dialect takes no other end of an answer
_FINISH_OF = {"truncated": "length", "content_blocked": "content_filter"}
_PARAMETERS = {
    "max_output_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "seed": "gen_ai.request.seed",
    "reasoning_effort": "gen_ai.request.reasoning.level",
}


class Asking:
    """A request under way; the first end that is told counts.

    Where nothing is sent to a collector it is never open, and costs nothing.
    """

    span: trace.Span = trace.INVALID_SPAN

    def __init__(self, services: Services, seat: Seat, attempt: Attempt) -> None:
        self.open = services.tracing.live or services.metrics.live
        if not self.open:
            return
        self._clock, self._metrics = services.clock, services.metrics
        vendor = services.tracing.vendor(seat.provider)
        self._named = _named(vendor, seat)
        self._began = self._clock.monotonic()
        self.span = services.tracing.begin_call(
            f"{vendor.operation} {seat.model}", {**self._named, **_about(seat, attempt)}
        )

    def answered(self, answer: ProviderAnswer) -> None:
        """End with an answer; whether it holds what was asked for is not the provider's matter."""
        if self.open:
            self._note(answer.model_returned, answer.usage, _FINISHED)
            self._end(answer.usage)

    def ended(self, failure: CallFailure) -> None:
        """End with a failure."""
        if self.open:
            finish = _FINISH_OF.get(failure.code, "error")
            self._note(failure.model_returned, failure.usage, finish)
            self._end(failure.usage, failure.code)

    def cut(self, code: str) -> None:
        """End a request that was cut from our side."""
        if self.open:
            self._note(None, None, "error")
            self._end(None, code)

    def _note(self, model: str | None, usage: Usage | None, finish: str) -> None:
        span = self.span
        if not span.is_recording():
            return
        span.set_attribute("gen_ai.response.finish_reasons", [finish])
        if model is not None:
            span.set_attribute("gen_ai.response.model", model)
        if usage is not None:
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": usage.input_tokens,
                    "gen_ai.usage.output_tokens": usage.output_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                    "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
                }
            )

    def _end(self, usage: Usage | None, code: str | None = None) -> None:
        self.open = False
        error = {}
        if code is not None:
            error[ERROR_TYPE] = code
            failed(self.span, code)
        self.span.end()
        self._metrics.called(self._clock.monotonic() - self._began, self._named | error, usage)


@contextmanager
def asking(services: Services, seat: Seat, attempt: Attempt) -> Iterator[Asking]:
    """Show the request of an attempt for the time of the block, which has to tell its end."""
    asked = Asking(services, seat, attempt)
    if not asked.open:
        yield asked
        return
    with trace.use_span(asked.span, record_exception=False, set_status_on_exception=False):
        try:
            yield asked
        except asyncio.CancelledError:
            asked.cut("interrupted")
            raise
        except BaseException as exc:
            asked.cut(type(exc).__name__)
            raise


def _named(vendor: Vendor, seat: Seat) -> dict[str, str | int]:
    """Return what spans and metrics both name a request by."""
    server: dict[str, str | int] = {}
    if vendor.address is not None:
        server["server.address"] = vendor.address
        if vendor.port is not None:
            server["server.port"] = vendor.port
    return {
        "gen_ai.operation.name": vendor.operation,
        "gen_ai.provider.name": vendor.name,
        "gen_ai.request.model": seat.model,
        **server,
    }


def _about(seat: Seat, attempt: Attempt) -> Attributes:
    given = {_PARAMETERS[n]: v for n, v in seat.parameters.items() if n in _PARAMETERS}
    return {
        "gen_ai.output.type": "json",
        **given,
        "empanel.provider": seat.provider,
        "empanel.job": attempt.job,
        "empanel.run": attempt.run,
        "empanel.seat": seat.seat,
        "empanel.attempt": attempt.number,
        "empanel.holder": attempt.holder,
    }
