"""What a route promises: parameters, body, answers and problems; the document is made of it.

An operation stands at its route, so a route cannot be served under another promise than the one it
is documented with. The models of bodies are those that read the requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from functions.core.access import OPERATOR
from functions.web.bodies import JSON
from functions.web.response_models import ProblemShown

PROBLEM_MEANINGS = {
    400: "The body is not JSON, or a query parameter, a name or a header breaks its rule.",
    401: "There is no valid key.",
    403: "The key's role does not allow this.",
    404: "There is no such resource, or it is another tenant's.",
    409: "The resource is in a state that does not allow this.",
    410: "What is needed has been purged.",
    413: "The body is larger than 1 MiB.",
    415: "The body is not announced as the media type read here, in UTF-8, without compression.",
    422: "The JSON breaks a rule; every broken rule is named.",
    429: "A limit of the key or the tenant is reached for now.",
    500: "A fault of the service; it has been logged.",
    503: "A part of the service gives no answer; ask again.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A part of the path, the query or the headers; `schema` is JSON Schema."""

    name: str
    place: Literal["path", "query", "header"]
    description: str
    schema: Mapping[str, Any]
    example: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A successful answer; without a `model` it is text of the media type, or nothing at all.

    In NDJSON the `model` is that of each line, as in a body; of events it is that of each one.
    """

    description: str
    model: type[BaseModel] | None = None
    media_type: str | None = JSON
    headers: tuple[str, ...] = ()
    links: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One route's promise; `problems` are those beside what role, path and body bring with them.

    `shown_problems` are models of problems that have members of their own. Who may call the route
    is in `functions.web.roles`.
    """

    id: str
    tag: str
    summary: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: type[BaseModel] | None = None
    body_media_type: str = JSON
    answers: Mapping[int, Answer]
    problems: frozenset[int] = frozenset()
    shown_problems: Mapping[int, type[ProblemShown]] = field(default_factory=dict)

    def problem_statuses(self, least_role: str | None) -> tuple[int, ...]:
        """Return every status that the route may refuse with, in order."""
        found = set(self.problems)
        if least_role is not None:
            found |= {400, 401, 429, 500, 503}
        if least_role == OPERATOR:
            found.add(403)
        if self.body is not None:
            found |= {413, 415, 422}
        if any(parameter.place == "path" for parameter in self.parameters):
            found.add(404)
        return tuple(sorted(found))

    def problem_model(self, status: int) -> type[ProblemShown]:
        """Return the model of a problem with this status."""
        return self.shown_problems.get(status, ProblemShown)
