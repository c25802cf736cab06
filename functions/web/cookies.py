"""The cookie that signs a person in: it holds the API key, and only the browser ever sees it.

Over TLS it is a `__Host-` cookie: secure, of this host alone, for every path. Browsers differ about
secure cookies over plain http, so on loopback (the local stack) it goes without, and its name holds
the port, as cookies do not tell ports apart. Plain http anywhere else signs nobody in.

It lasts `LIFE_SECONDS`; a key that is revoked or expires ends it at once.
"""

import re
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from functions.web.headers import is_https

LIFE_SECONDS = 12 * 3600
SECURE_NAME = "__Host-empanel"
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::([0-9]{1,5}))?", re.IGNORECASE)


def can_sign_in(request: Request) -> bool:
    """Whether a key may travel here as a cookie: over TLS, or without leaving the machine."""
    return _name(request) is not None


def key_in_cookie(request: Request) -> str | None:
    """Return the key in a request's cookie, None when there is none."""
    name = _name(request)
    text = request.cookies.get(name) if name else None
    return unquote(text) if text else None


def set_key(request: Request, response: Response, key: str) -> None:
    """Have the browser keep a key; only where `can_sign_in`."""
    _set(request, response, quote(key, safe=""), LIFE_SECONDS)


def forget_key(request: Request, response: Response) -> None:
    """Have the browser forget its key."""
    _set(request, response, "", 0)


def _set(request: Request, response: Response, value: str, max_age_seconds: int) -> None:
    name = _name(request)
    if name is not None:
        response.set_cookie(
            name,
            value,
            max_age=max_age_seconds,
            path="/",
            secure=name == SECURE_NAME,
            httponly=True,
            samesite="strict",
        )


def _name(request: Request) -> str | None:
    """Return the cookie's name at this address, None where there is to be none."""
    if is_https(request):
        return SECURE_NAME
    loopback = _LOOPBACK.fullmatch(request.headers.get("host", ""))
    return f"empanel-{loopback[1] or 80}" if loopback else None
