"""The files that pages need, each under a name with the digest of its content.

What a name means never changes, so browsers may keep the file for a year without asking.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from functions.web import problems
from functions.web.routing import route

FOLDER = Path(__file__).with_name("assets")
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
KEPT = "public, max-age=31536000, immutable"


def asset(name: str) -> str:
    """Return the path under which a file of the folder is served."""
    return _paths()[name]


async def show_asset(_: Any, request: Request) -> Response:
    """Serve a file of the folder."""
    found = _contents().get(request.path_params["name"])
    if found is None:
        raise problems.not_found("there is no such file")
    content, media_type = found
    return Response(content, media_type=media_type, headers={"Cache-Control": KEPT})


@cache
def _paths() -> dict[str, str]:
    return {path.name: f"/assets/{_served_name(path)}" for path in FOLDER.iterdir()}


@cache
def _contents() -> dict[str, tuple[bytes, str]]:
    return {
        _served_name(path): (path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in FOLDER.iterdir()
    }


def _served_name(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return f"{path.stem}-{digest}{path.suffix}"


ROUTES = (route("/assets/{name}", show_asset, "GET"),)
