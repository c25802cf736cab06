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
    ("GET", "/v1/jobs"): SUBMITTER,
    ("POST", "/v1/estimate"): SUBMITTER,
    ("GET", "/v1/jobs/{job}"): SUBMITTER,
    ("GET", "/v1/jobs/{job}/report"): SUBMITTER,
    ("GET", "/v1/jobs/{job}/attempts"): SUBMITTER,
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
}


def least_role(request: Request) -> str | None:
    """Return the least role for a request's route, None where everybody may call it.

    Raises:
        LookupError: the route has no line in the table.
    """
    method = "GET" if request.method == "HEAD" else request.method
    return LEAST_ROLES[method, matched_path(request)]
