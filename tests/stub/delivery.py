"""Puts a reply on the wire, whole or broken as its script says.

Faults that no HTTP library would produce are written to the transport by hand. A fault that waits
for the client (``never_answer``, ``stall_mid_body``, an endless drip) ends by the cancellation of
the handler, which is how aiohttp reports that the client went away.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.stub.book import Outcome
from tests.stub.completions import Reply, reason

_EXTRA_DECLARED_BYTES = 64
_CHUNK_BYTES = 64 * 1024
_LINGER_ZERO = struct.pack("ii", 1, 0)
_GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00 this is no HTTP \xff\xfe\r\n\r\n"

Delivery = tuple[web.StreamResponse, Outcome]


async def deliver(request: web.Request, reply: Reply) -> Delivery:
    """Send ``reply`` and say how it ended. Raises ``ConnectionError`` when the client is gone."""
    fault = reply.scripted.fault
    if fault is None:
        return await _send_whole(request, reply)
    return await _FAULTS[fault](request, reply)


async def _send_whole(request: web.Request, reply: Reply) -> Delivery:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body)
    await response.write_eof()
    return response, "answered"


async def _close_before_answer(request: web.Request, reply: Reply) -> Delivery:
    return _hang_up(_transport(request))


async def _reset_before_answer(request: web.Request, reply: Reply) -> Delivery:
    transport = _transport(request)
    connection: socket.socket = transport.get_extra_info("socket")
    # With a linger time of zero the kernel answers with RST instead of FIN.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    transport.abort()
    return web.Response(), "broken"


async def _never_answer(request: web.Request, reply: Reply) -> Delivery:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def _close_mid_body(request: web.Request, reply: Reply) -> Delivery:
    transport = _transport(request)
    transport.write(_head(reply, len(reply.body)) + _first_half(reply))
    return _hang_up(transport)


async def _stall_mid_body(request: web.Request, reply: Reply) -> Delivery:
    _transport(request).write(_head(reply, len(reply.body)) + _first_half(reply))
    return await _never_answer(request, reply)


async def _slow_drip(request: web.Request, reply: Reply) -> Delivery:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    await response.prepare(request)
    while reply.scripted.drip_endless:
        await response.write(b" ")
        await asyncio.sleep(reply.scripted.drip_seconds)
    for value in reply.body:
        await response.write(bytes([value]))
        await asyncio.sleep(reply.scripted.drip_seconds)
    await response.write_eof()
    return response, "answered"


async def _garbage(request: web.Request, reply: Reply) -> Delivery:
    transport = _transport(request)
    transport.write(_GARBAGE)
    return _hang_up(transport)


async def _wrong_content_length(request: web.Request, reply: Reply) -> Delivery:
    declared = reply.scripted.declared_bytes
    if declared is None:
        declared = len(reply.body) + _EXTRA_DECLARED_BYTES
    transport = _transport(request)
    transport.write(_head(reply, declared) + reply.body)
    return _hang_up(transport)


async def _huge_body(request: web.Request, reply: Reply) -> Delivery:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(reply.body)
    padding = b" " * _CHUNK_BYTES
    for sent in range(0, reply.scripted.huge_bytes, _CHUNK_BYTES):
        await response.write(padding[: reply.scripted.huge_bytes - sent])
    await response.write_eof()
    return response, "answered"


_FAULTS: dict[str, Callable[[web.Request, Reply], Awaitable[Delivery]]] = {
    "close_before_answer": _close_before_answer,
    "reset_before_answer": _reset_before_answer,
    "never_answer": _never_answer,
    "close_mid_body": _close_mid_body,
    "stall_mid_body": _stall_mid_body,
    "slow_drip": _slow_drip,
    "garbage": _garbage,
    "wrong_content_length": _wrong_content_length,
    "huge_body": _huge_body,
}


def _transport(request: web.Request) -> asyncio.Transport:
    """The connection's transport. Raises ``ConnectionError`` when the client is gone."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client went away")
    assert isinstance(transport, asyncio.Transport)
    return transport


def _hang_up(transport: asyncio.Transport) -> Delivery:
    """Close after what was written is out; aiohttp drops the placeholder on the closed line."""
    transport.close()
    return web.Response(), "broken"


def _head(reply: Reply, declared_bytes: int) -> bytes:
    headers = {**reply.headers, "content-length": str(declared_bytes)}
    lines = [f"HTTP/1.1 {reply.status} {reason(reply.status)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _first_half(reply: Reply) -> bytes:
    return reply.body[: max(1, len(reply.body) // 2)]
