"""Forms of pages: read within bounds, and only when they come from a page of ours.

A browser adds the cookie by itself, whoever made it send the form. So a form that comes with the
cookie needs two proofs: the browser's word that the page was of this origin, and a token that only
somebody who holds the key can have made.
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from functions.web import problems
from functions.web.bodies import MAX_BODY_BYTES, read_body
from functions.web.cookies import key_in_cookie
from functions.web.headers import is_https

MEDIA_TYPE = "application/x-www-form-urlencoded"
# Every byte of the largest job may take three, and a form has other fields.
MAX_FORM_BYTES = 3 * MAX_BODY_BYTES + 64 * 1024
MAX_FIELDS = 20
TOKEN = "token"  # noqa: S105 - the name of a field


def token_of(request: Request) -> str:
    """Return the proof for the forms of a page, empty for a caller without the cookie.

    It cannot be turned back into the key.
    """
    key = key_in_cookie(request)
    if key is None:
        return ""
    return hmac.new(key.encode(), b"a form of the console", hashlib.sha256).hexdigest()


async def read_own_form(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; with the cookie it must be one of our own pages' forms.

    Raises:
        Problem: 403 for a form of another page, 413, 415, 400 for fields that cannot be read.
    """
    if "authorization" in request.headers:  # no browser adds that by itself
        return await read_form(request)
    require_same_origin(request)
    form = await read_form(request)
    expected, sent = token_of(request), form.get(TOKEN, "")
    if not expected or not hmac.compare_digest(sent.encode(), expected.encode()):
        raise problems.forbidden("the form is not from a page of yours; load the page again")
    return form


def require_same_origin(request: Request) -> None:
    """Refuse what another site's page sent, and what does not say whose page sent it.

    Our pages tell no referrer, so `Origin` is null even on our own forms: newer browsers say it in
    `Sec-Fetch-Site`.

    Raises:
        Problem: 403.
    """
    site = request.headers.get("sec-fetch-site")
    if site is None:
        scheme = "https" if is_https(request) else "http"
        own = f"{scheme}://{request.headers.get('host', '')}"
        same = request.headers.get("origin", "").lower() == own.lower()
    else:
        same = site == "same-origin"
    if not same:
        raise problems.forbidden("the form was not sent from a page of this console")


async def read_form(request: Request, limit_bytes: int = MAX_FORM_BYTES) -> Mapping[str, str]:
    """Return a form's fields; of a field given twice the last one counts.

    Raises:
        Problem: 413, 415, 400.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise problems.unsupported_media_type(f"Content-Type must be {MEDIA_TYPE}", MEDIA_TYPE)
    body = await read_body(request, limit_bytes)
    try:
        fields = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError as exc:
        raise problems.bad_request("the form's fields cannot be read") from exc
    return dict(fields)
