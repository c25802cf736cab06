"""Who may call what: the least role for each route of the `api` target, in one table.

Whoever asks for the caller of a request gets the rule of its route; a route without a line here
answers nobody. `None`: everybody, without a credential.
"""

from collections.abc import Mapping

from starlette.requests import Request

from functions.core.access import OPERATOR, SUBMITTER
from functions.web.routing import matched_path

LEAST_ROLES: Mapping[tuple[str, str], str | None] = {
    ("GET", "/health"): None,
    ("GET", "/ready"): None,
    ("GET", "/openapi.json"): None,
    ("GET", "/docs"): None,
    ("POST", "/v1/jobs"): SUBMITTER,
    ("POST", "/v1/jobs:batch"): SUBMITTER,
    ("GET", "/v1/jobs"): SUBMITTER,
    ("POST", "/v1/estimate"): SUBMITTER,
    ("GET", "/v1/jobs/{job}"): SUBMITTER,
    ("GET", "/v1/jobs/{job}/report"): SUBMITTER,
    ("GET", "/v1/jobs/{job}/attempts"): SUBMITTER,
    ("GET", "/v1/jobs/{job}/events"): SUBMITTER,
    ("POST", "/v1/jobs/{job}/cancel"): SUBMITTER,
    ("POST", "/v1/jobs/{job}/replay"): SUBMITTER,
    ("DELETE", "/v1/jobs/{job}"): OPERATOR,
    ("PUT", "/v1/decisions/{decision}/actions/{name}"): SUBMITTER,
    ("GET", "/v1/audits"): SUBMITTER,
    ("GET", "/v1/audits/{window}"): SUBMITTER,
    ("GET", "/v1/incidents"): SUBMITTER,
    ("POST", "/v1/incidents/{incident}/resolve"): OPERATOR,
    ("GET", "/v1/notifications/{notification}"): SUBMITTER,
    ("POST", "/v1/notifications/{notification}/redeliver"): OPERATOR,
    # The console's pages.
    ("GET", "/login"): None,
    ("POST", "/login"): None,
    ("POST", "/logout"): None,
    ("GET", "/assets/{name}"): None,
    ("GET", "/"): SUBMITTER,
    ("GET", "/jobs/{job}"): SUBMITTER,
    ("POST", "/jobs/{job}/cancel"): SUBMITTER,
    ("POST", "/jobs/{job}/replay"): SUBMITTER,
    ("GET", "/audits"): SUBMITTER,
    ("GET", "/audits/{window}"): SUBMITTER,
    ("GET", "/incidents"): SUBMITTER,
    ("POST", "/incidents/{incident}/resolve"): OPERATOR,
    ("GET", "/submit"): SUBMITTER,
    ("POST", "/submit"): SUBMITTER,
    ("GET", "/compare"): SUBMITTER,
}
# What a page reads by itself, with the cookie of whoever looks at it.
_READ_BY_PAGES = frozenset({("GET", "/v1/jobs/{job}/events")})


def least_role(request: Request) -> str | None:
    """Return the least role for a request's route, None where everybody may call it.

    Raises:
        LookupError: the route has no line in the table.
    """
    return LEAST_ROLES[_route(request)]


def takes_cookie(request: Request) -> bool:
    """Whether a request may come with the console's cookie instead of a key.

    Of the interface for programs only what pages read; a browser adds cookies by itself, so nothing
    there that changes anything may be asked with one. Forms of pages carry a proof of their own.
    """
    method, path = _route(request)
    return not path.startswith("/v1/") or (method, path) in _READ_BY_PAGES


def _route(request: Request) -> tuple[str, str]:
    method = "GET" if request.method == "HEAD" else request.method
    return method, matched_path(request)
