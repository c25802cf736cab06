"""Headers of every answer of the `api` target: what a browser must not do with it."""

from starlette.requests import Request
from starlette.responses import Response

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # For what is no page; pages bring a policy of their own.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
# Two years, as the preload list asks; only for the host itself, which is not ours to speak beyond.
STRICT_TRANSPORT = "max-age=63072000"


def harden(request: Request, response: Response) -> Response:
    """Add the headers that the answer has not set itself."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if is_https(request):
        response.headers.setdefault("Strict-Transport-Security", STRICT_TRANSPORT)
    return response


def page_policy(style_sha256: str) -> str:
    """Return the policy of a page without scripts, whose one style has this digest (base64)."""
    style = f"style-src 'sha256-{style_sha256}'"
    return f"default-src 'none'; {style}; base-uri 'none'; frame-ancestors 'none'"


def is_https(request: Request) -> bool:
    """Whether the caller came over TLS, which ends in front of Cloud Run's containers.

    A caller that forges the header only tells its own browser, which heeds it over TLS alone.
    """
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)
