"""What all dialects share in building a request: the refusal of parameters, headers, JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from functions.core.verdicts import CallFailure, CallRequest, preview
from functions.providers.base import Endpoint, WireRequest, auth_headers

JSON_HEADERS = {"content-type": "application/json", "accept": "application/json"}


def refused_parameters(request: CallRequest, accepted: Iterable[str]) -> CallFailure | None:
    """Return a failure that names the parameters a dialect has no word for, None without any.

    Dropping one would store an answer to another question than the work key names.
    """
    unknown = sorted(request.parameters.keys() - set(accepted))
    if not unknown:
        return None
    message = preview(f"parameters not supported: {', '.join(unknown)}")
    return CallFailure(code="invalid_request", message=message, sent=False)


def json_request(
    endpoint: Endpoint, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> WireRequest:
    """Return `body` as a request with the endpoint's key; its keys keep their order.

    The endpoint's `extra_body` is merged in, objects at every depth. Where both say something, the
    request's own word counts.
    """
    all_headers = JSON_HEADERS | dict(headers or {}) | auth_headers(endpoint)
    return WireRequest(path, all_headers, json.dumps(_merged(body, endpoint.extra_body)).encode())


def _merged(own: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(value, extra[name])
        for name, value in own.items()
        if isinstance(value, Mapping) and isinstance(extra.get(name), Mapping)
    }
    added = {name: value for name, value in extra.items() if name not in own}
    return {**own, **both, **added}
