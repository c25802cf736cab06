"""Routes of the `api` target that need no key: health, readiness, and the published document.

No path ends in `z`: Cloud Run answers such paths itself.
"""

import json
from collections.abc import Sequence
from functools import cache

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from functions.readiness import unready
from functions.web import catalog, problems
from functions.web.application import Application
from functions.web.conditional import unless_known
from functions.web.docs_page import STYLE_SHA256, docs_page
from functions.web.headers import page_policy
from functions.web.openapi import document
from functions.web.routing import ApiRoute, health, route

PAGE_CACHE = "no-cache"  # kept, and asked about by its ETag


async def ready(application: Application, _: Request) -> Response:
    """Answer whether ledger, store and topic answer.

    Raises:
        Problem: 503 with those that do not.
    """
    failed = await unready(application.services)
    if failed:
        names = " and ".join(failed)
        raise problems.unavailable(f"no answer from the {names}", extensions={"failed": failed})
    return JSONResponse({"status": "ready"})


def with_document(routes: Sequence[ApiRoute]) -> tuple[Route, ...]:
    """Return the routes and those of this module; the document shows them all."""

    @cache
    def rendered() -> tuple[bytes, str]:
        published = document(everything)
        return json.dumps(published, ensure_ascii=False).encode(), docs_page(published)

    async def show_document(_: Application, request: Request) -> Response:
        content, _page = rendered()
        response = Response(content, media_type="application/json")
        response.headers["Cache-Control"] = PAGE_CACHE
        return unless_known(request, response)

    async def show_docs(_: Application, request: Request) -> Response:
        _content, page = rendered()
        response = HTMLResponse(page)
        response.headers["Cache-Control"] = PAGE_CACHE
        response.headers["Content-Security-Policy"] = page_policy(STYLE_SHA256)
        return unless_known(request, response)

    everything = (
        *routes,
        route("/health", health, "GET", catalog.HEALTH),
        route("/ready", ready, "GET", catalog.READY),
        route("/openapi.json", show_document, "GET", catalog.DOCUMENT),
        route("/docs", show_docs, "GET", catalog.DOCS),
    )
    return everything
