"""A stand-in for any function: remembers what it is asked and answers as the message says.

Message attributes: `status` to answer, `hold` to wait until `/release` is called.
"""

import asyncio
import os
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

seen: list[dict[str, Any]] = []
in_flight = 0
released = asyncio.Event()


async def health(request: Request) -> Response:
    return Response()


async def facts(request: Request) -> Response:
    return JSONResponse({"seen": seen, "in_flight": in_flight, "environment": dict(os.environ)})


async def release(request: Request) -> Response:
    released.set()
    return Response()


async def receive(request: Request) -> Response:
    global in_flight
    body = await request.json() if await request.body() else None
    seen.append({"body": body, "headers": dict(request.headers), "query": request.url.query})
    attributes = body["message"].get("attributes", {}) if body else {}
    in_flight += 1
    if "hold" in attributes:
        await released.wait()
    in_flight -= 1
    return Response(status_code=int(attributes.get("status", 204)))


app = Starlette(
    routes=[
        Route("/health", health),
        Route("/facts", facts),
        Route("/release", release, methods=["POST"]),
        Route("/{path:path}", receive, methods=["POST"]),
    ]
)

if __name__ == "__main__":
    uvicorn.run(
        app, host=os.environ["EMPANEL_HOST"], port=int(os.environ["PORT"]), log_level="warning"
    )
