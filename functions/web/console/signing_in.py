"""Sign in with an API key, and out again.

Wrong keys from one address are counted, and beyond the limit none is looked up for a while.
"""

from starlette.requests import Request
from starlette.responses import Response

from functions import telemetry
from functions.web import problems
from functions.web.application import Application
from functions.web.console.forms import read_form, require_same_origin
from functions.web.console.pages import rendered
from functions.web.console.visits import local_path, redirect, refused
from functions.web.cookies import can_sign_in, forget_key, key_in_cookie, set_key
from functions.web.routing import refusal, route

# Anybody may send one: room for the longest key and path, every byte of them in three.
SIGN_IN_BYTES = 16 * 1024
WRONG = "This key is not valid."
NO_KEY = "Enter your API key."
PLAIN_HTTP = "Signing in needs https: over plain http others could read the key."


async def show_sign_in(application: Application, request: Request) -> Response:
    """Show the form; whoever has signed in already goes on."""
    path = local_path(request.query_params.get("next"))
    try:
        if key_in_cookie(request) is not None:
            await application.keys.holder(key_in_cookie(request))
            return redirect(path)
    except Exception as exc:  # noqa: BLE001 - every error is told, as `refusal` says
        problem = await refusal(application, exc, request)
        if problem.status != 401:
            return refused(request, problem)
    return _form(path, None if can_sign_in(request) else PLAIN_HTTP)


async def sign_in(application: Application, request: Request) -> Response:
    """Check the key and have the browser keep it."""
    try:
        return await _signed_in(application, request)
    except Exception as exc:  # noqa: BLE001 - every error is told, as `refusal` says
        return refused(request, await refusal(application, exc, request))


async def _signed_in(application: Application, request: Request) -> Response:
    """Check the key and have the browser keep it.

    Raises:
        Problem: 403 for another page's form, 429 after too many wrong keys, 400, 413, 415.
        LedgerUnavailable: the key cannot be looked up.
    """
    require_same_origin(request)
    form = await read_form(request, SIGN_IN_BYTES)
    path, key = local_path(form.get("next")), form.get("key", "").strip()
    if not can_sign_in(request):
        return _form(path, PLAIN_HTTP, status=403)
    if not key:
        return _form(path, NO_KEY, status=422)
    address = _address(request)
    # Counted before it is looked up: else any number that come together would be.
    wait_seconds = application.wrong_keys.wait_seconds(address)
    if wait_seconds > 0:
        raise problems.rate_limited("too many wrong keys came from this address", wait_seconds)
    try:
        caller = await application.keys.holder(key)
    except problems.Problem as problem:
        telemetry.warning("wrong key at sign-in", address=address)
        return _form(path, WRONG, status=problem.status, headers=problem.headers)
    application.wrong_keys.give_back(address)
    telemetry.event("signed in", tenant=caller.tenant, key=caller.credential)
    response = redirect(path)
    set_key(request, response, key)
    return response


async def sign_out(_: Application, request: Request) -> Response:
    """Have the browser forget the key."""
    try:
        require_same_origin(request)
    except problems.Problem as problem:
        return refused(request, problem)
    response = redirect("/login")
    forget_key(request, response)
    return response


def _form(
    path: str, fault: str | None, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return rendered("login.html", status=status, headers=headers, path=path, fault=fault)


def _address(request: Request) -> str:
    """Return where a request comes from: what the platform's front end noted last."""
    noted = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return noted[:64] or (request.client.host if request.client else "")


ROUTES = (
    route("/login", show_sign_in, "GET"),
    route("/login", sign_in, "POST"),
    route("/logout", sign_out, "POST"),
)
