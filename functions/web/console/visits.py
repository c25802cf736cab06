"""One visit to a page: who it is, what was asked, and what a person sees when it is refused."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from functions.services import Services
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.console.forms import read_own_form, token_of
from functions.web.console.pages import rendered
from functions.web.cookies import forget_key, key_in_cookie
from functions.web.problems import Problem
from functions.web.routing import ApiRoute, refusal, route

MAX_PATH_CHARACTERS = 2000
# One slash and no backslash: what browsers cannot read as another host.
_LOCAL = re.compile(r"/(?:[!-.0-\[\]-~][!-\[\]-~]*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A caller at a page; `form` has the fields of what was sent."""

    application: Application
    request: Request
    caller: Caller
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def services(self) -> Services:
        """What the steps need."""
        return self.application.services

    @property
    def token(self) -> str:
        """What the forms of the page must carry."""
        return token_of(self.request)

    @property
    def path(self) -> str:
        """The path of the page."""
        return self.request.url.path

    @property
    def query(self) -> dict[str, str]:
        """The query without what a form left empty."""
        pairs = self.request.query_params.items()
        return {name: text.strip() for name, text in pairs if text.strip()}


View = Callable[[Visit], Awaitable[Response]]


def page(path: str, view: View) -> ApiRoute:
    """Return the route of a page."""

    async def show(application: Application, request: Request) -> Response:
        return await _answered(application, request, view, sends_form=False)

    return route(path, show, "GET")


def form(path: str, view: View) -> ApiRoute:
    """Return the route that a page's form is sent to."""

    async def take(application: Application, request: Request) -> Response:
        return await _answered(application, request, view, sends_form=True)

    return route(path, take, "POST")


async def _answered(
    application: Application, request: Request, view: View, *, sends_form: bool
) -> Response:
    visit = None
    try:
        caller = await application.keys.caller(request)
        visit = Visit(application=application, request=request, caller=caller)
        if sends_form:
            sent = await read_own_form(request)
            visit = Visit(application=application, request=request, caller=caller, form=sent)
        return await view(visit)
    except Exception as exc:  # noqa: BLE001 - every error is told, as `refusal` says
        return refused(request, await refusal(application, exc, request), visit)


def refused(request: Request, problem: Problem, visit: Visit | None = None) -> Response:
    """Return what a person sees of a refusal; a program gets the problem itself."""
    accept = request.headers.get("accept", "")
    for_programs = "json" in accept and "html" not in accept
    unsigned = problem.status == 401
    if for_programs or (unsigned and "authorization" in request.headers):
        return problem.to_response()
    if unsigned:
        return _to_sign_in(request)
    return rendered(
        "problem.html",
        status=problem.status,
        headers=problem.headers,
        visit=visit,
        problem=problem.to_document(),
    )


def redirect(path: str) -> Response:
    """Send the browser to another page, by GET."""
    return RedirectResponse(path, status_code=303)


def local_path(text: str | None) -> str:
    """Return a path of this host; `/` for anything that could lead elsewhere."""
    given = text or ""
    usable = len(given) <= MAX_PATH_CHARACTERS and _LOCAL.fullmatch(given)
    return given if usable else "/"


def _to_sign_in(request: Request) -> Response:
    """Send the browser to sign in, and back to the page afterwards.

    A browser that follows a link on another site keeps the cookie to itself, also on redirects; one
    that then comes from a page of ours adds it. So that one is not sent to sign in again.
    """
    if request.method == "POST":
        return redirect("/login")
    query = f"?{request.url.query}" if request.url.query else ""
    path = local_path(f"{request.url.path}{query}")
    known = key_in_cookie(request) is not None
    if not known and request.headers.get("sec-fetch-site") == "cross-site":
        return rendered("onward.html", path=path)
    response = redirect("/login" if path == "/" else f"/login?next={quote(path, safe='/')}")
    if known:
        forget_key(request, response)
    return response
