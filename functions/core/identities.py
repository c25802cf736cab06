"""Who is who: digests over canonical JSON, and the names made from them.

Canonical JSON is RFC 8785: `1`, `1.0` and `1e0` are one number, `-0.0` is `0`, key order does not
count, array order does, a key with `null` is not an absent key, and strings are compared code point
by code point (no Unicode normalisation).
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import rfc8785

SHARDS = 4
MAX_IDENTITY_CHARACTERS = 128

_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")


def is_identity(text: object) -> bool:
    """Whether `text` can name a job or an evaluation: no path, nothing that Firestore reserves."""
    return (
        isinstance(text, str)
        and len(text) <= MAX_IDENTITY_CHARACTERS
        and _IDENTITY.fullmatch(text) is not None
    )


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value."""
    return rfc8785.dumps(value)


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 over the canonical JSON of `value`, lower-case hex."""
    return sha256_hex(canonical_json(value))


def model_alias(tenant: str, endpoint: str, model: str) -> str:
    """Return the name of "this model, asked for by this tenant at this endpoint"."""
    return digest([tenant, endpoint, model])


def _short(value: Any) -> str:
    """Return 160 bits of the digest in lower-case base32: letters and digits only."""
    raw = hashlib.sha256(canonical_json(value)).digest()[:20]
    return base64.b32encode(raw).decode("ascii").lower()


def job_id(tenant: str, *, idempotency_key: str | None, request_digest: str) -> str:
    """Return the identity of a job: tenant and key, or tenant and digest of the request."""
    if idempotency_key is not None:
        return "job_" + _short({"tenant": tenant, "key": idempotency_key})
    return "job_" + _short({"tenant": tenant, "request": request_digest})


def decision_id(tenant: str, job: str) -> str:
    """Return the stable name of the decision a job is about, the same for every run."""
    return "dec_" + _short({"tenant": tenant, "decision": job})


def attempt_key(*, job: str, run: int, seat: int, number: int) -> str:
    """Return the stable name of one attempt, for a provider that takes idempotency keys.

    The job's ID stands for its tenant. Nothing here relies on a provider that honours it.
    """
    return "att_" + _short({"job": job, "run": run, "seat": seat, "attempt": number})


def work_key(
    *,
    tenant: str,
    facts: str,
    rubric: str,
    endpoint: str,
    model: str,
    parameters: Mapping[str, Any],
    sample: int,
    prompt: str,
) -> str:
    """Return the identity of an evaluation; all digests are lower-case hex SHA-256.

    Each part stands under its own name, so no two questions can run into one another.
    """
    return digest(
        {
            "tenant": tenant,
            "facts": facts,
            "rubric": rubric,
            "endpoint": endpoint,
            "model": model,
            "parameters": dict(parameters),
            "sample": sample,
            "prompt": prompt,
        }
    )


def window_of(moment: datetime) -> str:
    """Return the hour `moment` lies in, UTC, as `2026-11-29T12`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H")


def shard_of(identity: str) -> int:
    """Return which of the index shards a record belongs to, stable for its identity."""
    return hashlib.sha256(identity.encode()).digest()[0] % SHARDS


def output_object(tenant: str, window: str, key: str, epoch: int) -> str:
    """Return the object name of an evaluation's output in one epoch."""
    return f"outputs/{tenant}/{window}/{key}/{epoch}.json"


def work_key_of(output_name: str) -> str:
    """Return the work key in the object name of an output."""
    return output_name.split("/")[-2]


def name_in_bucket(uri: str) -> str:
    """Return the name within its bucket of an object's `gs://bucket/name`."""
    return uri.split("/", 3)[-1]


def input_object(tenant: str, content_digest: str) -> str:
    """Return the object name of facts or rubric too large for the job's document."""
    return f"inputs/{tenant}/{content_digest}"
