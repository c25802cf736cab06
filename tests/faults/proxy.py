"""A bytes-through gRPC proxy that fails a chosen call before or after it was applied.

It stands between a real client and a real emulator, so that the client's own behaviour (retries,
deadlines, what it makes of a status) is part of what is tested. It knows no message: every method
is forwarded as one request and a stream of answers, which on the wire covers unary calls too.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

import grpc


class Moment(Enum):
    """When a fault strikes."""

    BEFORE = auto()  # the server never sees the call
    AFTER = auto()  # the server applied the call; its answer is lost


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens to the next call of `method` (its last name, such as `Commit`).

    Without `code` no answer comes at all, until the client gives up.
    """

    method: str
    moment: Moment
    code: grpc.StatusCode | None = grpc.StatusCode.UNAVAILABLE
    text: str = "injected"


class GrpcProxy:
    """Listens on `host` while its block is open and forwards to `target`."""

    def __init__(self, target: str) -> None:
        self.host = ""
        self.calls: Counter[str] = Counter()
        self._called = asyncio.Condition()
        self._target = target
        self._faults: list[Fault] = []
        self._server = grpc.aio.server()
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(
            self._target,
            options=(("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)),
        )
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.host = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.cut()
        assert self._channel is not None
        await self._channel.close()

    def inject(self, *faults: Fault) -> None:
        """Let each fault strike once, in this order per method."""
        self._faults.extend(faults)

    async def called(self, method: str) -> None:
        """Return once `method` was called at least once."""
        async with self._called:
            await self._called.wait_for(lambda: self.calls[method] > 0)

    async def cut(self) -> None:
        """End all connections at once and accept no more."""
        await self._server.stop(grace=None)

    async def forward(
        self, method: str, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Pass one call on, unless a fault strikes."""
        name = method.rpartition("/")[2]
        async with self._called:
            self.calls[name] += 1
            self._called.notify_all()
        fault = self._take(name)
        if fault is not None and fault.moment is Moment.BEFORE:
            await _strike(fault, context)
        answers = await self._answers(method, [request async for request in requests], context)
        if fault is not None:
            await _strike(fault, context)
        for answer in answers:
            yield answer

    def _take(self, name: str) -> Fault | None:
        for fault in self._faults:
            if fault.method == name:
                self._faults.remove(fault)
                return fault
        return None

    async def _answers(self, method: str, requests: list[bytes], context: Any) -> list[bytes]:
        assert self._channel is not None
        upstream: Any = self._channel.unary_stream(method)
        call = upstream(requests[0], metadata=_forwardable(context.invocation_metadata()))
        try:
            return [answer async for answer in call]
        except grpc.aio.AioRpcError as exc:
            await context.abort(exc.code(), exc.details() or "")
            raise


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, proxy: GrpcProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        async def forward(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for answer in self._proxy.forward(handler_call_details.method, requests, context):
                yield answer

        return grpc.stream_stream_rpc_method_handler(forward)


def _forwardable(metadata: Any) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in metadata if key != "user-agent"]


async def _strike(fault: Fault, context: Any) -> None:
    if fault.code is None:
        await asyncio.Event().wait()  # ends when the client cancels the call or its deadline does
        return
    await context.abort(fault.code, fault.text)
