"""Templates become answers: escaped without exception, under a policy that lets nothing else in."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from functions.web.console import words
from functions.web.console.assets import asset

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


def rendered(
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    visit: Any = None,
    **content: Any,
) -> Response:
    """Return a template as an answer; `visit` is whose page it is, None for nobody's.

    A name that the template uses and `content` lacks is an error, not an empty place.
    """
    text = _environment().get_template(template).render(visit=visit, **content)
    policies = {"Content-Security-Policy": POLICY, "Cross-Origin-Opener-Policy": "same-origin"}
    return HTMLResponse(text, status_code=status, headers={**(headers or {}), **policies})


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": words.moment,
        "cost": words.cost,
        "number": words.number,
        "meaning": words.meaning,
        "mark": words.mark,
        "kind": words.kind,
        "pretty": words.pretty,
    }
    environment.globals["asset"] = asset
    environment.globals["elapsed"] = words.elapsed
    environment.globals["counted"] = words.counted
    return environment
