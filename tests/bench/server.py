"""A loopback server in a process of its own: every POST gets the same completion, after a while.

Its work must not count as the client's. It prints its port and ends when its input is closed.
"""

import asyncio
import json
import sys

ANSWER_SECONDS = 0.02

_ANSWER = json.dumps({"rationale": "measured " * 40, "score": 71})
_COMPLETION = json.dumps(
    {
        "id": "cmpl-1",
        "model": "m-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": _ANSWER}}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 120},
    }
).encode()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_RESPONSE = _HEAD % len(_COMPLETION) + _COMPLETION


class Conversation(asyncio.Protocol):
    """One connection: a request is over once its body is whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if len(body) >= int(length):
            self._received = b""
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer)

    def _answer(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.write(_RESPONSE)


async def serve() -> None:
    """Serve until the standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Conversation, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
