"""The published document as one page for people: no script, no font and no file from elsewhere."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

Json = Mapping[str, Any]

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--mark:#2563eb}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0;display:grid;grid-template-columns:17rem 1fr}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1rem;
border-right:1px solid var(--line)}
nav ul{list-style:none;padding:0;margin:0 0 1rem}nav a{text-decoration:none;color:inherit}
nav a:hover,nav a:focus{color:var(--mark);text-decoration:underline}
main{padding:1.5rem 2rem;max-width:62rem;min-width:0}
article{border-top:1px solid var(--line);padding:1rem 0 1.5rem}
h1{margin-top:0}h2{margin-top:2.5rem}h3{margin:.5rem 0}h4{margin:1.2rem 0 .3rem}
code,pre{font:.875em/1.5 ui-monospace,monospace}
pre{background:var(--soft);padding:.8rem;overflow:auto;border-radius:.4rem}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;
border-bottom:1px solid var(--line)}
.method{display:inline-block;min-width:4.5rem;font-weight:700;color:var(--mark)}
.soft{opacity:.75}.must{color:#b91c1c;font-size:.8em}
@media (prefers-color-scheme:dark){:root{--mark:#93c5fd}.must{color:#fca5a5}}
@media (max-width:50rem){body{display:block}nav{position:static;height:auto;border:0}}
"""
STYLE_SHA256 = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def docs_page(document: Json) -> str:
    """Return the page; every text of the document is escaped."""
    info = document["info"]
    title = escape(f"{info['title']} API")
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f'<nav aria-label="Operations">{"".join(_contents(document))}</nav>',
        f"<main><h1>{title} <small>{escape(info['version'])}</small></h1>",
        *(f"<p>{_prose(text)}</p>" for text in info["description"].split("\n\n")),
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>, OpenAPI 3.1. Send the key as '
        "<code>Authorization: Bearer KEY</code>.</p>",
        *_operations(document),
        '<h2 id="shapes">Shapes</h2>',
        *_shapes(document["components"]["schemas"]),
        "</main></body></html>",
    ]
    return "".join(parts)


def _prose(text: str) -> str:
    """Return a text with its `code` marked as such."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if odd % 2 else p for odd, p in enumerate(pieces))


def _by_tag(document: Json) -> Iterator[tuple[Json, list[tuple[str, str, Json]]]]:
    for tag in document["tags"]:
        found = [
            (method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if operation["tags"] == [tag["name"]]
        ]
        yield tag, found


def _contents(document: Json) -> Iterator[str]:
    for tag, operations in _by_tag(document):
        links = (
            f'<li><a href="#{escape(operation["operationId"])}">{escape(operation["summary"])}</a>'
            for _, _, operation in operations
        )
        yield f"<strong>{escape(tag['name'])}</strong><ul>{''.join(links)}</ul>"
    yield '<a href="#shapes"><strong>Shapes</strong></a>'


def _operations(document: Json) -> Iterator[str]:
    for tag, operations in _by_tag(document):
        yield f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>"
        for method, path, operation in operations:
            yield _operation(method, path, operation)


def _operation(method: str, path: str, operation: Json) -> str:
    key = "" if operation["security"] else ' <span class="soft">without a key</span>'
    called = f'<span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code>'
    return "".join(
        [
            f'<article id="{escape(operation["operationId"])}">',
            f"<h3>{escape(operation['summary'])}</h3><p>{called}{key}</p>",
            f"<p>{_prose(operation.get('description', ''))}</p>",
            *_parameters(operation.get("parameters", [])),
            *_body(operation.get("requestBody")),
            *_answers(operation["responses"]),
            "</article>",
        ]
    )


def _parameters(parameters: list[Json]) -> Iterator[str]:
    if parameters:
        rows = (
            (
                f"<code>{escape(parameter['name'])}</code>{_must(parameter['required'])}",
                escape(parameter["in"]),
                _type(parameter["schema"]),
                _prose(parameter["description"]),
            )
            for parameter in parameters
        )
        yield "<h4>Parameters</h4>" + _table(("name", "in", "type", "meaning"), rows)


def _body(body: Json | None) -> Iterator[str]:
    if body is None:
        return
    for media_type, content in body["content"].items():
        yield f"<h4>Body</h4><p><code>{escape(media_type)}</code>: {_type(content['schema'])}</p>"
        if "example" in content:
            yield f"<pre>{escape(json.dumps(content['example'], indent=2))}</pre>"


def _answers(responses: Json) -> Iterator[str]:
    rows = (
        (
            f"<code>{escape(status)}</code>",
            _prose(response["description"]),
            _type(*(c["schema"] for c in response.get("content", {}).values())),
            ", ".join(f"<code>{escape(name)}</code>" for name in response.get("headers", {})),
        )
        for status, response in responses.items()
    )
    yield "<h4>Answers</h4>" + _table(("status", "meaning", "shape", "headers"), rows)


def _shapes(schemas: Json) -> Iterator[str]:
    for name, schema in schemas.items():
        about = f"<p>{_prose(schema.get('description', ''))}</p>"
        yield f'<article id="shape-{escape(name)}"><h3><code>{escape(name)}</code></h3>{about}'
        if "enum" in schema or "anyOf" in schema:
            yield f"<p>{_type(schema)}</p>"
        needed = schema.get("required", [])
        rows = (
            (
                f"<code>{escape(field)}</code>{_must(field in needed)}",
                _type(part),
                _prose(part.get("description", "")),
            )
            for field, part in schema.get("properties", {}).items()
        )
        if schema.get("properties"):
            yield _table(("field", "type", "meaning"), rows)
        yield "</article>"


def _must(required: bool) -> str:
    return ' <span class="must">required</span>' if required else ""


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _type(schema: Json | None = None) -> str:
    """Return a schema in a line; a shape of its own as a link to it."""
    if schema is None:
        return "nothing"
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#shape-{name}"><code>{name}</code></a>'
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}{_rules(schema)}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object, each value {_type(schema['additionalProperties'])}{_rules(schema)}"
    return escape(str(schema.get("format") or schema.get("type") or "any")) + _rules(schema)


RULES = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches {}",
    "default": "{} when left out",
}


def _rules(schema: Json) -> str:
    told = [text.format(_shown(schema[name])) for name, text in RULES.items() if name in schema]
    return f' <span class="soft">({escape("; ".join(told))})</span>' if told else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
