"""The published document, OpenAPI 3.1: made from the routes, their promises and their models."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import Route

from functions.core.access import OPERATOR
from functions.web.batches import MAX_LINES
from functions.web.bodies import JSON, NDJSON
from functions.web.catalog import TAGS
from functions.web.operations import PROBLEM_MEANINGS, Answer, Operation, Parameter
from functions.web.problems import MEDIA_TYPE as PROBLEM
from functions.web.request_models import JobBody, LineBody
from functions.web.response_models import ProblemShown, Shown
from functions.web.roles import LEAST_ROLES
from functions.web.routing import ApiRoute

VERSION = "1.0.0"
SCHEME = "key"
DESCRIPTION = """\
Ask several language models the same question, keep every paid answer, account for every job.

All times are UTC, RFC 3339. Every error is `application/problem+json` (RFC 9457). Everything stays
inside the caller's tenant; foreign and unknown IDs answer the same 404. Fields may be added to
answers. A request with an unknown field or query parameter is refused, and then nothing is stored.
"""
HEADERS = {
    "ETag": "Strong validator of the answer's bytes, for `If-None-Match`.",
    "Location": "Where the job is.",
    "Retry-After": "Seconds to wait before the next request.",
    "WWW-Authenticate": "How to authenticate (RFC 6750).",
}
_BODY_EXAMPLE = {
    "facts": {"name": "Aurora 14", "weight_kg": 1.2, "price_eur": 1290},
    "rubric": {
        "name": "travel-laptop",
        "revision": "3",
        "instructions": "Score the laptop for frequent travellers.",
        "criteria": [{"name": "portability", "weight": 2}, {"name": "value", "weight": 1}],
        "scale": {"min": 0, "max": 100},
    },
    "seats": [
        {"provider": "openai", "model": "gpt-x"},
        {"seat": "second", "provider": "openai", "model": "gpt-x", "sample": 1},
    ],
    "policy": {"deadline_seconds": 3600, "max_attempts": 4},
    "labels": {"run": "november"},
}
_EXAMPLES: Mapping[type[BaseModel], Any] = {
    JobBody: _BODY_EXAMPLE,
    LineBody: [{**_BODY_EXAMPLE, "idempotency_key": "november-0001"}, _BODY_EXAMPLE],
}

Json = dict[str, Any]
Schemas = Mapping[Any, Json]  # by model


def document(routes: Iterable[Route]) -> Json:
    """Return the document of all routes that promise something."""
    promised = list(promises(routes))
    schemas, components = _schemas([operation for _, _, operation in promised])
    paths: dict[str, Json] = {}
    for method, path, operation in promised:
        shown = _operation(operation, LEAST_ROLES[method, path], schemas)
        paths.setdefault(path, {})[method.lower()] = shown
    return {
        "openapi": "3.1.0",
        "info": {"title": "Empanel", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "/", "description": "This service."}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, or a Google ID token that is mapped to a tenant.",
                }
            },
        },
    }


def promises(routes: Iterable[Route]) -> Iterator[tuple[str, str, Operation]]:
    """Yield method, path and promise of each route that has one."""
    for route in routes:
        if isinstance(route, ApiRoute) and route.operation is not None:
            yield route.method, route.path, route.operation


def _schemas(operations: Sequence[Operation]) -> tuple[Schemas, Json]:
    """Return the reference to each model, and what is referred to."""
    bodies = {operation.body for operation in operations if operation.body}
    answers = {
        answer.model
        for operation in operations
        for answer in operation.answers.values()
        if answer.model
    }
    refused = {
        operation.problem_model(s) for operation in operations for s in (0, *PROBLEM_MEANINGS)
    }
    wanted = [(model, "validation") for model in sorted(bodies, key=_name)]
    wanted += [(model, "serialization") for model in sorted(answers | refused, key=_name)]
    references, definitions = models_json_schema(
        wanted,  # type: ignore[arg-type]
        ref_template="#/components/schemas/{model}",
    )
    components: Json = definitions["$defs"]
    for name in _names_of_answers():
        components.get(name, {}).pop("additionalProperties", None)
    components["ProblemShown"].pop("additionalProperties", None)
    return {model: reference for (model, _), reference in references.items()}, components


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _names_of_answers() -> Iterator[str]:
    """Yield the names of the models to which fields may be added."""
    waiting: list[type[BaseModel]] = [Shown, ProblemShown]
    while waiting:
        model = waiting.pop()
        yield model.__name__
        waiting += model.__subclasses__()


def _operation(operation: Operation, least_role: str | None, schemas: Schemas) -> Json:
    problems = operation.problem_statuses(least_role)
    shown: Json = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": {
            **{str(s): _answer(a, schemas) for s, a in sorted(operation.answers.items())},
            **{str(s): _problem(operation, s, schemas) for s in problems},
        },
        "security": [] if least_role is None else [{SCHEME: []}],
    }
    operator = "Needs the role `operator`." if least_role == OPERATOR else ""
    if operation.description or operator:
        shown["description"] = f"{operation.description} {operator}".strip()
    if operation.parameters:
        shown["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.body is not None:
        media_type = operation.body_media_type
        content: Json = {"schema": _schema(media_type, schemas[operation.body])}
        if operation.body in _EXAMPLES:
            content["example"] = _EXAMPLES[operation.body]
        shown["requestBody"] = {"required": True, "content": {media_type: content}}
    return shown


def _schema(media_type: str, item: Json) -> Json:
    """Return the schema of a content; of NDJSON it is an array's, as OpenAPI 3.2 defines it."""
    if media_type != NDJSON:
        return item
    return {
        "type": "array",
        "items": item,
        "minItems": 1,
        "maxItems": MAX_LINES,
        "description": "One item a line.",
    }


def _parameter(parameter: Parameter) -> Json:
    shown: Json = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
    if parameter.example is not None:
        shown["example"] = parameter.example
    return shown


def _answer(answer: Answer, schemas: Schemas) -> Json:
    shown: Json = {"description": answer.description}
    if answer.media_type is not None:
        schema = {"type": "object"} if answer.media_type == JSON else {"type": "string"}
        if answer.model is not None:
            schema = _schema(answer.media_type, schemas[answer.model])
        shown["content"] = {answer.media_type: {"schema": schema}}
    if answer.headers:
        always = {"required": True}
        shown["headers"] = {
            name: _header(name) | ({} if name == "Retry-After" else always)
            for name in answer.headers
        }
    if answer.links:
        shown["links"] = dict(answer.links)
    return shown


def _problem(operation: Operation, status: int, schemas: Schemas) -> Json:
    shown: Json = {
        "description": PROBLEM_MEANINGS[status],
        "content": {PROBLEM: {"schema": schemas[operation.problem_model(status)]}},
    }
    if status in (429, 503):
        shown["headers"] = {"Retry-After": _header("Retry-After") | {"required": True}}
    if status == 401:
        shown["headers"] = {"WWW-Authenticate": _header("WWW-Authenticate") | {"required": True}}
    return shown


def _header(name: str) -> Json:
    kind = {"type": "integer", "minimum": 0} if name == "Retry-After" else {"type": "string"}
    return {"description": HEADERS[name], "schema": kind}
