"""Conditional reads: a strong ETag over an answer's bytes, and 304 for callers who have them.

The tag is the same on every instance and after every restart, as it is made of the bytes alone.
"""

import hashlib
import re

from starlette.requests import Request
from starlette.responses import Response

_TAG = re.compile(r'\s*(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*')
_OF_THE_BODY = ("content-length", "content-type")


def etag_of(body: bytes) -> str:
    """Return the entity tag of an answer's bytes, quotes included."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def unless_known(request: Request, response: Response) -> Response:
    """Give a successful answer to a GET or HEAD its ETag; 304 instead when the caller has it.

    A 304 keeps the other headers, such as when to look again.
    """
    etag = etag_of(bytes(response.body))
    response.headers["ETag"] = etag
    if not _has(request.headers.get("if-none-match"), etag):
        return response
    kept = {name: text for name, text in response.headers.items() if name not in _OF_THE_BODY}
    return Response(status_code=304, headers=kept)


def _has(condition: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names the tag, by the weak comparison that RFC 9110 asks for.

    Tags that cannot be read match nothing: the caller is sent the answer once more.
    """
    if condition is None:
        return False
    if condition.strip() == "*":
        return True
    tags, at = [], 0
    while match := _TAG.match(condition, at):
        tags.append(match.group(1))
        at = match.end()
        if condition[at : at + 1] != ",":
            break
        at += 1
    return etag in tags
