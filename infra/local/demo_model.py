"""Which model the demo asks: the user's choice, their server's only one, or the stack's own."""

from collections.abc import Mapping

import httpx
from pydantic import BaseModel, ValidationError

from functions.cli.exits import Misused

DEFAULT_MODEL = "smollm2"
LISTING_TIMEOUT_SECONDS = 10.0
NAMED_AT_MOST = 10


class _Listed(BaseModel):
    id: str


class _Listing(BaseModel):
    """`GET /v1/models` of an OpenAI-compatible server."""

    data: list[_Listed]


async def choose_model(environ: Mapping[str, str]) -> str:
    """The model's name. Raises `Misused` when the user's server lists several and none is named."""
    named = environ.get("EMPANEL_DEMO_MODEL")
    if named:
        return named
    base_url = environ.get("OPENAI_BASE_URL")
    if not base_url:
        return DEFAULT_MODEL
    return _choose(await _listed(base_url, environ.get("OPENAI_API_KEY")), base_url)


def _choose(listed: list[str], base_url: str) -> str:
    if not listed or DEFAULT_MODEL in listed:
        return DEFAULT_MODEL
    if len(listed) == 1:
        return listed[0]
    shown = ", ".join(listed[:NAMED_AT_MOST])
    more = f" and {len(listed) - NAMED_AT_MOST} more" if len(listed) > NAMED_AT_MOST else ""
    raise Misused(
        f"{base_url} serves {len(listed)} models ({shown}{more}). "
        "Name the one for the demo: EMPANEL_DEMO_MODEL=<model> make demo"
    )


async def _listed(base_url: str, api_key: str | None) -> list[str]:
    """The models the server lists; none when it cannot say, which not every server can."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(timeout=LISTING_TIMEOUT_SECONDS) as http:
            response = await http.get(f"{base_url.rstrip('/')}/models", headers=headers)
        response.raise_for_status()
        listing = _Listing.model_validate_json(response.content)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError, ValidationError):
        return []
    return list(dict.fromkeys(model.id for model in listing.data))
