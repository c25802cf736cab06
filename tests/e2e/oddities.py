"""Requests as bytes, for what no client library would send; and sizes at and over each limit."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import rfc8785

from functions.web.output_schemas import (
    MAX_ARRAY_ITEMS,
    MAX_HEIGHT,
    MAX_SCHEMA_BYTES,
    MAX_SUBSCHEMAS,
)
from functions.web.request_models import (
    MAX_CRITERIA,
    MAX_LABEL_CHARACTERS,
    MAX_LABELS,
    MAX_SEATS,
)
from functions.web.requests import MAX_FACTS_BYTES, MAX_RUBRIC_BYTES
from tests.e2e.site import Json, Site, dumped, panel

GOOD = dumped(panel("hostile"))


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The bytes of a request, in which `{key}` and names stand; the statuses it may get."""

    content: bytes
    statuses: tuple[int, ...]
    may_close: bool = False


def request(
    line: bytes,
    *headers: bytes,
    body: bytes = b"",
    length: bool = True,
    key: bool = True,
) -> bytes:
    """Return a request with the usual headers, unless told not to."""
    usual = [b"Host: empanel", b"Connection: close"]
    usual += [b"Authorization: Bearer {key}"] if key else []
    usual += [b"Content-Length: %d" % len(body)] if length and body else []
    return b"\r\n".join([line, *usual, *headers, b"", body])


JSON = b"Content-Type: application/json"
SUBMIT = b"POST /v1/jobs HTTP/1.1"


def submitting(*headers: bytes, status: int = 400, **options: Any) -> Raw:
    """Return a submission with odd headers that the interface refuses."""
    return Raw(content=request(SUBMIT, *headers, body=GOOD, **options), statuses=(status,))


def unframed(*headers: bytes, body: bytes = GOOD) -> Raw:
    """Return one whose end two readers may see in two places: refused by the server itself."""
    content = request(SUBMIT, JSON, *headers, body=body, length=False)
    return Raw(content=content, statuses=(400, 501), may_close=True)


def target(path: bytes, *statuses: int, method: bytes = b"GET") -> Raw:
    """Return a request for an odd path."""
    content = request(method + b" " + path + b" HTTP/1.1")
    return Raw(content=content, statuses=statuses or (404,))


SMUGGLED = b"0\r\n\r\nPOST /v1/jobs HTTP/1.1\r\nHost: x\r\nX: "
HEADERS = {
    "two types, the first is no JSON": submitting(b"Content-Type: text/plain", JSON),
    "two types, the first is JSON": submitting(JSON, b"Content-Type: text/plain"),
    "the same type twice": submitting(JSON, JSON),
    "two types in one": submitting(b"Content-Type: application/json, text/plain", status=415),
    "two charsets": submitting(JSON + b"; charset=utf-8; charset=utf-16", status=415),
    "two encodings": submitting(JSON, b"Content-Encoding: identity", b"Content-Encoding: gzip"),
    "a list of encodings": submitting(JSON, b"Content-Encoding: identity, gzip", status=415),
    "two idempotency keys": submitting(JSON, b"Idempotency-Key: a", b"Idempotency-Key: b"),
    "a key of no ASCII": submitting(JSON, b"Idempotency-Key: \xc3\xb6"),
    "two credentials": submitting(JSON, b"Authorization: Bearer ek_wrong"),
    "a second credential first": Raw(
        content=request(
            SUBMIT, b"Authorization: Bearer ek_wrong", b"Authorization: Bearer {key}", JSON,
            body=GOOD, key=False,
        ),
        statuses=(400,),
    ),
    "a basic credential": Raw(
        content=request(SUBMIT, b"Authorization: Basic {key}", JSON, body=GOOD, key=False),
        statuses=(401,),
    ),
    "a key in a cookie of no name": Raw(
        content=request(SUBMIT, b"Cookie: Authorization=Bearer {key}", JSON, body=GOOD, key=False),
        statuses=(401,),
    ),
    "a forwarded user": Raw(
        content=request(
            SUBMIT, b"X-Forwarded-User: operator", b"X-Goog-Authenticated-User-Email: a@b", JSON,
            body=GOOD, key=False,
        ),
        statuses=(401,),
    ),
    "a longer body expected": Raw(
        content=request(
            SUBMIT, JSON, b"Expect: 100-continue", b"Content-Length: 2097152", length=False
        ),
        statuses=(413,),
    ),
}  # fmt: skip

FRAMING = {
    "length and chunks": unframed(
        b"Content-Length: 6", b"Transfer-Encoding: chunked", body=SMUGGLED
    ),
    "chunks and length": unframed(
        b"Transfer-Encoding: chunked", b"Content-Length: 6", body=SMUGGLED
    ),
    "two lengths": unframed(b"Content-Length: 5", b"Content-Length: %d" % len(GOOD)),
    "a list of lengths": unframed(b"Content-Length: 5, %d" % len(GOOD)),
    "a negative length": unframed(b"Content-Length: -1"),
    "a signed length": unframed(b"Content-Length: +%d" % len(GOOD)),
    "a hexadecimal length": unframed(b"Content-Length: 0x10"),
    "a length beyond numbers": unframed(b"Content-Length: " + b"9" * 30),
    "an unknown coding": unframed(b"Transfer-Encoding: xchunked"),
    "a coding after chunks": unframed(b"Transfer-Encoding: chunked, identity"),
    "a blank before the colon": unframed(b"Transfer-Encoding : chunked", b"Content-Length: 3"),
    "chunks of no number": unframed(b"Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunks beyond numbers": unframed(
        b"Transfer-Encoding: chunked", body=b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n"
    ),
    "a header without a colon": unframed(b"Content-Length 5"),
    "NUL in a header": unframed(b"X: a\x00b", b"Content-Length: 2", body=b"{}"),
    "the end of a line alone": unframed(b"X: a\nContent-Type: text/plain", b"Content-Length: 1"),
    "a body that never ends": Raw(
        content=request(SUBMIT, JSON, b"Content-Length: 5000", body=GOOD, length=False),
        statuses=(400,),
        may_close=True,
    ),
    "another protocol": Raw(
        content=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", statuses=(400, 404, 405), may_close=True
    ),
    "another version": Raw(
        content=request(b"GET /v1/jobs HTTP/9.9"), statuses=(400, 505), may_close=True
    ),
    "no version": Raw(content=request(b"GET /v1/jobs"), statuses=(400,), may_close=True),
    "TLS": Raw(content=b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", statuses=(400,), may_close=True),
}
PATHS = {
    "two slashes": target(b"//v1/jobs"),
    "a slash inside": target(b"/v1//jobs"),
    "a slash at the end": target(b"/v1/jobs/"),
    "up and down": target(b"/v1/x/../jobs"),
    "up, encoded": target(b"/v1/x/%2e%2e/jobs"),
    "up twice, encoded": target(b"/v1/jobs/%252e%252e/health"),
    "another case": target(b"/V1/Jobs"),
    "a back slash": target(b"/v1\\jobs"),
    "an encoded slash": target(b"/v1%2fjobs%2f{ended}%2f..%2f..%2fhealth"),
    "the same path, spelled otherwise": target(b"/v1%2fjobs", 200),  # decoded before any rule
    "a parameter": target(b"/v1/jobs;x=1"),
    "NUL": target(b"/v1/jobs/%00"),
    "NUL after a job": target(b"/v1/jobs/{ended}%00"),
    "a line break": target(b"/v1/jobs/{ended}%0d%0aX-Injected:%201"),
    "a blank": target(b"/v1/jobs/{ended}%20"),
    "no UTF-8": target(b"/v1/jobs/%ff%fe"),
    "an overlong slash": target(b"/v1/jobs/%c0%af"),
    "half an escape": target(b"/v1/jobs/%"),
    "a long one": target(b"/v1/jobs/" + b"a" * 20_000, 404, 414),
    "a job's part of no name": target(b"/v1/jobs/{ended}/__proto__"),
    "the file of a password": target(b"/../../../../etc/passwd"),
    "a file beside the code": target(b"/.git/config"),
    "a star": target(b"*", 400, 404),
    "deleted by a header": Raw(
        content=request(b"POST /v1/jobs/{ended} HTTP/1.1", b"X-HTTP-Method-Override: DELETE"),
        statuses=(405,),
    ),
    "deleted by a parameter": target(b"/v1/jobs/{ended}?_method=DELETE", 400),
    "TRACE": target(b"/v1/jobs", 405, method=b"TRACE"),
    "CONNECT": target(b"/v1/jobs", 400, 405, method=b"CONNECT"),
    "a method in small letters": Raw(
        content=request(b"post /v1/jobs HTTP/1.1", JSON, body=GOOD),
        statuses=(400, 405),
        may_close=True,
    ),
    "a method of no name": Raw(
        content=request(b"EMPANEL /v1/jobs HTTP/1.1"), statuses=(400, 405), may_close=True
    ),
    "a web socket": Raw(
        content=request(
            b"GET /v1/jobs HTTP/1.1", b"Upgrade: websocket", b"Connection: Upgrade",
            b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", key=False,
        ),
        statuses=(400, 401, 403, 404),
        may_close=True,
    ),
}  # fmt: skip
QUERIES = {
    f"{path}?{query.decode()}": target(path.encode() + b"?" + query, 400)
    for path, query in (
        ("/v1/jobs", b"limit=1&limit=200"),
        ("/v1/jobs", b"state=succeeded&state=failed"),
        ("/v1/jobs", b"limit=1&limit=1"),
        ("/v1/jobs", b"%00=1"),
        ("/v1/jobs", b"cursor=%ff"),
        ("/v1/jobs", b"limit[]=1"),
        ("/v1/jobs", b"owner.ne=x"),
        ("/v1/jobs/{ended}/report", b"partial=true&partial=false"),
        ("/v1/jobs/{ended}/report", b"partial=TRUE"),
        ("/v1/incidents", b"status=open&status=resolved"),
        ("/v1/audits", b"from=2026-11-29T12&from=2026-11-29T13"),
        ("/v1/audits", b"from=2026-11-29T13&to=2026-11-29T12"),
    )
}
RAW: dict[str, Raw] = {**HEADERS, **FRAMING, **PATHS, **QUERIES}


async def sent(site: Site, raw: Raw, names: Mapping[str, str]) -> int | None:
    """Send the bytes as they are; the status, None when the connection was closed without one.

    Only where the request may never end is the sender's side closed: a server takes that for a
    caller who has gone.
    """
    content = raw.content
    for name, text in {"key": site.stack.info.api_key, **names}.items():
        content = content.replace(b"{%s}" % name.encode(), text.encode())
    host, port = re.fullmatch(r"http://([^:/]+):(\d+)/?", site.stack.info.api).groups()  # type: ignore[union-attr]
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = b""
    try:
        writer.write(content)
        if raw.may_close:
            writer.write_eof()
        async with asyncio.timeout(30):
            while chunk := await reader.read(1000):
                answer += chunk
    except ConnectionError:
        pass  # what has come before the end counts
    finally:
        writer.close()
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(status[1]) if status else None


# Sizes: what lies on a limit is fine, one more is not.


def _filled(limit_bytes: int, **parts: Json) -> Json:
    """Return an object whose canonical JSON has exactly so many bytes."""
    empty = {**parts, "filler": ""}
    return {**parts, "filler": "x" * (limit_bytes - len(rfc8785.dumps(empty)))}


def _seats(number: int) -> Json:
    return [{"provider": "openai", "model": f"m{index}"} for index in range(number)]


def _rubric(**parts: Json) -> Json:
    return {"instructions": "Score it.", **parts}


def _rubric_of(size_bytes: int) -> Json:
    rubric = {"instructions": ""}
    return {"instructions": "x" * (size_bytes - len(rfc8785.dumps(rubric)))}


def _schema(**keywords: Json) -> Json:
    return {"rubric": _rubric(output_schema={"type": "object", **keywords})}


def _properties(number: int) -> Json:
    return _schema(properties={f"p{index}": {} for index in range(number)})


def _high(levels: int) -> Json:
    inner: Json = {}
    for _ in range(levels - 2):
        inner = {"not": inner}
    return _schema(properties={"p": inner})


def _schema_of(size_bytes: int) -> Json:
    empty = len(rfc8785.dumps({"type": "object", "description": ""}))
    return _schema(description="x" * (size_bytes - empty))


def _policy(**rules: Json) -> Json:
    return {"policy": rules}


ON_THE_LIMIT: dict[str, tuple[Json, Json]] = {
    "facts": (
        {"facts": _filled(MAX_FACTS_BYTES)},
        {"facts": _filled(MAX_FACTS_BYTES + 1)},
    ),
    "rubric": (
        {"rubric": _rubric_of(MAX_RUBRIC_BYTES)},
        {"rubric": _rubric_of(MAX_RUBRIC_BYTES + 1)},
    ),
    "schema": (_schema_of(MAX_SCHEMA_BYTES), _schema_of(MAX_SCHEMA_BYTES + 1)),
    "subschemas": (_properties(MAX_SUBSCHEMAS - 1), _properties(MAX_SUBSCHEMAS)),
    "levels of a schema": (_high(MAX_HEIGHT), _high(MAX_HEIGHT + 1)),
    "items in a schema": (
        _schema(properties={"p": {"enum": list(range(MAX_ARRAY_ITEMS))}}),
        _schema(properties={"p": {"enum": list(range(MAX_ARRAY_ITEMS + 1))}}),
    ),
    "seats": ({"seats": _seats(MAX_SEATS)}, {"seats": _seats(MAX_SEATS + 1)}),
    "a seat's name": (
        {"seats": [{**_seats(1)[0], "seat": "s" * 128}]},
        {"seats": [{**_seats(1)[0], "seat": "s" * 129}]},
    ),
    "labels": (
        {"labels": {f"l{index}": "v" for index in range(MAX_LABELS)}},
        {"labels": {f"l{index}": "v" for index in range(MAX_LABELS + 1)}},
    ),
    "a label's key": ({"labels": {"k" * 63: "v"}}, {"labels": {"k" * 64: "v"}}),
    "a label's value": (
        {"labels": {"k": "v" * MAX_LABEL_CHARACTERS}},
        {"labels": {"k": "v" * (MAX_LABEL_CHARACTERS + 1)}},
    ),
    "criteria": (
        {"rubric": _rubric(criteria=[{"name": f"c{index}"} for index in range(MAX_CRITERIA)])},
        {"rubric": _rubric(criteria=[{"name": f"c{index}"} for index in range(MAX_CRITERIA + 1)])},
    ),
    "deadline": (_policy(deadline_seconds=604_800), _policy(deadline_seconds=604_801)),
    "least deadline": (_policy(deadline_seconds=1), _policy(deadline_seconds=0)),
    "attempts": (_policy(max_attempts=10), _policy(max_attempts=11)),
    "required seats": (_policy(required_seats=2), _policy(required_seats=3)),
}
COSTLY_SCHEMAS: dict[str, Json] = {
    "a pattern": _schema(properties={"p": {"pattern": "(a+)+$"}}),
    "a pattern of names": _schema(patternProperties={"(a|a)*$": {}}),
    "a pattern deep inside": _schema(
        properties={"p": {"anyOf": [{"items": {"not": {"pattern": "a"}}}]}}
    ),
    "itself": _schema(properties={"p": {"$ref": "#"}}),
    "a definition of itself": _schema(
        properties={"p": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"$ref": "#/$defs/a"}}}
    ),
    "two that name each other": _schema(
        properties={"p": {"$ref": "#/$defs/a"}},
        **{"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}}}},
    ),
    "doubled thirty times": _schema(
        properties={"p": {"$ref": "#/$defs/d0"}},
        **{
            "$defs": {
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(29)},
                "d29": {},
            }
        },
    ),
    "a remote one": _schema(properties={"p": {"$ref": "http://169.254.169.254/schema"}}),
    "a file": _schema(properties={"p": {"$ref": "file:///etc/passwd"}}),
    "a dynamic one": _schema(properties={"p": {"$dynamicRef": "#node"}}),
    "an identity": _schema(**{"$id": "http://example.com/schema"}),
    "no object at its top": {"rubric": _rubric(output_schema={"type": "array"})},
    "true": {"rubric": _rubric(output_schema=True)},
}
