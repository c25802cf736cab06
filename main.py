"""The function targets, and nothing else. Each is deployed as a service of its own.

A process serves one of them, so each imports its own door, and not the API's pages and models.
`functions.serving` has imported it before the first request.
"""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response

from functions.bootstrap import application


@functions_framework.aio.http
async def api(request: Request) -> Response:
    """Accept jobs and show them."""
    from functions.web.api import answer_api

    return await answer_api(application(), request)


@functions_framework.aio.http
async def evaluate(request: Request) -> Response:
    """Work on one seat: one Pub/Sub push delivery."""
    from functions.web.push import answer_evaluate

    return await answer_evaluate(application(), request)


@functions_framework.aio.http
async def notify(request: Request) -> Response:
    """Deliver one notification: one Pub/Sub push delivery."""
    from functions.web.notify_push import answer_notify

    return await answer_notify(application(), request)


@functions_framework.aio.http
async def reconcile(request: Request) -> Response:
    """Bring lost work back: one call of the scheduler."""
    from functions.web.push import answer_reconcile

    return await answer_reconcile(application(), request)


@functions_framework.aio.http
async def dead_letter(request: Request) -> Response:
    """Record a message that its topic gave up: one Pub/Sub push delivery."""
    from functions.web.dead_letter_push import answer_dead_letter

    return await answer_dead_letter(application(), request)
