"""Bodies and headers of the Chat Completions dialect, as OpenAI's SDK reads them.

A reply is worked out here down to its bytes; ``tests.stub.delivery`` puts it on the wire.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import client as http_client

from tests.stub.answers import DEFAULT_SCHEMA, UnsupportedSchemaError, instance_for
from tests.stub.book import RequestRecord
from tests.stub.question import Json, JsonObject, Question
from tests.stub.script import ScriptedResponse

RETURNED_MODEL_DATE = "2026-01-01"

_ERRORS: Mapping[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    409: ("conflict_error", "conflict"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
_BILLING_CODES = frozenset(
    {
        "credit_balance_exhausted",
        "insufficient_quota",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "project_spend_limit_exceeded",
    }
)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer ready to be sent; ``scripted`` says how its delivery is to be broken, if at all."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    scripted: ScriptedResponse = field(default_factory=ScriptedResponse)


def reply_to(question: Question, record: RequestRecord, scripted: ScriptedResponse) -> Reply:
    """The reply to a request, changed as the script says; a schema beyond the stub gives a 400."""
    try:
        body = _body(question, record, scripted)
    except UnsupportedSchemaError as exc:
        return error_reply(400, str(exc), param="response_format", request_id=record.request_id)
    headers = {**usual_headers(record.request_id), **_lowered(scripted.headers)}
    return Reply(status=scripted.status, headers=headers, body=body, scripted=scripted)


def error_reply(
    status: int,
    message: str,
    *,
    param: str | None = None,
    request_id: str = "req_rejected",
) -> Reply:
    """An error of the stub's own."""
    body = _dumped(error_body(status, message=message, param=param))
    return Reply(status=status, headers=usual_headers(request_id), body=body)


def usual_headers(request_id: str) -> dict[str, str]:
    """Headers that the provider puts on every answer, errors too."""
    return {
        "content-type": "application/json",
        "x-request-id": request_id,
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
        "x-ratelimit-reset-requests": "6ms",
    }


def error_body(
    status: int, *, code: str | None = None, param: str | None = None, message: str | None = None
) -> JsonObject:
    """OpenAI's error object; type and code follow from the status unless ``code`` is given."""
    kind, usual_code = _ERRORS.get(
        status, ("server_error" if status >= 500 else "invalid_request_error", None)
    )
    if code in _BILLING_CODES:
        kind = "insufficient_quota"
    return {
        "error": {
            "message": message or f"Scripted failure: {reason(status)}.",
            "type": kind,
            "param": param,
            "code": code or usual_code,
        }
    }


def reason(status: int) -> str:
    """The reason phrase; providers also use statuses that no standard names (498, 529)."""
    return http_client.responses.get(status, "Unnamed Status")


def _body(question: Question, record: RequestRecord, scripted: ScriptedResponse) -> bytes:
    if scripted.body_hex is not None:
        return bytes.fromhex(scripted.body_hex)
    if scripted.text is not None:
        return scripted.text.encode()
    if scripted.body is not None:
        return _dumped(scripted.body)
    if scripted.status >= 400:
        return _dumped(
            error_body(scripted.status, code=scripted.error_code, param=scripted.error_param)
        )
    if scripted.status >= 300 or scripted.status == 204:
        return b""
    return _dumped(_completion(question, record, scripted))


def _completion(
    question: Question, record: RequestRecord, scripted: ScriptedResponse
) -> JsonObject:
    content = _content(question, scripted)
    message = {"role": "assistant", "content": content, "refusal": scripted.refusal}
    return {
        "id": f"chatcmpl-{record.key[:16]}-{record.occurrence}",
        "object": "chat.completion",
        "created": int(record.arrived_at.timestamp()),
        "model": scripted.returned_model or _dated(question.model),
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": scripted.finish_reason or "stop",
            }
        ],
        "usage": scripted.usage or _usage(question, content),
        "service_tier": "default",
        "system_fingerprint": "fp_stub",
    }


def _content(question: Question, scripted: ScriptedResponse) -> str | None:
    if scripted.refusal is not None:
        return scripted.content
    if scripted.content is not None:
        return scripted.content
    answer = instance_for(_schema(question), question.key)
    return json.dumps(answer, separators=(",", ":"))


def _schema(question: Question) -> JsonObject:
    wanted = question.body.get("response_format")
    described = wanted.get("json_schema") if isinstance(wanted, dict) else None
    if described is None:
        return DEFAULT_SCHEMA
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise UnsupportedSchemaError("response_format.json_schema.schema must be an object")
    return schema


def _usage(question: Question, content: str | None) -> JsonObject:
    """Token counts at four characters a token: not real, but equal for equal requests."""
    prompt = len(json.dumps(question.body["messages"])) // 4 + 1
    completion = len(content or "") // 4 + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _dated(model: str) -> str:
    return model if _DATED.search(model) else f"{model}-{RETURNED_MODEL_DATE}"


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _dumped(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
