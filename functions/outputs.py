"""Outputs in the bucket: stored create-only, read back and checked by digest.

The object carries everything a settlement needs, so that an answer whose holder died between the
store and the commit (an orphan) can be adopted without paying again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from functions.core.documents import evaluation_path, from_snapshot
from functions.core.errors import ObjectMissing, UnreadableRecord
from functions.core.identities import name_in_bucket, work_key_of
from functions.core.jobs import Attempt, Evaluation, Output, Seat, Usage
from functions.core.ports import StoredObject
from functions.core.verdicts import ProviderAnswer, Verdict
from functions.core.versions import OUTPUT
from functions.services import Services

CONTENT_TYPE = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """An output as found in the bucket: its reference, its content, the token that bought it."""

    output: Output
    content: Mapping[str, Any]
    token: int


def encode_answer(
    evaluation: Evaluation,
    attempt: Attempt,
    seat: Seat,
    answer: ProviderAnswer,
    verdict: Verdict,
    *,
    stored_at: datetime,
    cost_usd: float | None,
) -> bytes:
    """Return the object's bytes: the verdict, what it cost, and which attempt bought it."""
    content = {
        "v": OUTPUT.written,
        "tenant": evaluation.tenant,
        "work_key": evaluation.work_key,
        "epoch": evaluation.epoch,
        "token": attempt.token,
        "attempt": {"job": attempt.job, "run": attempt.run, "number": attempt.number},
        "stored_at": stored_at.astimezone(UTC).isoformat(),
        "provider": seat.provider,
        "model_requested": seat.model,
        "model_returned": answer.model_returned,
        "request_id": answer.request_id,
        "usage": asdict(answer.usage) if answer.usage else None,
        "cost_usd": cost_usd,
        "score": verdict.score,
        "criteria": dict(verdict.criteria),
        "rationale": verdict.rationale,
        "answer": dict(verdict.answer),
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()


async def store_answer(services: Services, object_name: str, data: bytes) -> StoredAnswer:
    """Store an answer under its create-only name; the first object there wins and is returned.

    Raises:
        ObjectsUnavailable: no certain answer; the object may be there.
        UnreadableRecord: another object is there and it is damaged.
    """
    digest = hashlib.sha256(data).hexdigest()
    stored = await services.objects.create(
        object_name, data, content_type=CONTENT_TYPE, metadata={"sha256": digest}
    )
    if stored is not None:
        return _decode(services, stored, data)
    found = await find_answer(services, object_name)
    if found is None:
        raise UnreadableRecord(f"{object_name}: refused as existing, yet not there")
    return found


async def find_answer(services: Services, object_name: str) -> StoredAnswer | None:
    """Return the answer stored under a name, None when there is certainly no object.

    Raises:
        ObjectsUnavailable: no certain answer.
        UnknownVersion: the answer is another release's; it is good, and must not be bought again.
        UnreadableRecord: the object does not match its digest, or is not an answer.
    """
    stored = await services.objects.stat(object_name)
    if stored is None:
        return None
    try:
        data = await services.objects.read(object_name, stored.generation)
    except ObjectMissing:
        return None
    return _decode(services, stored, data)


async def read_output(services: Services, output: Output) -> Mapping[str, Any]:
    """Return the content of an output on record, checked against the recorded digest.

    Raises:
        ObjectMissing: the object is gone.
        ObjectsUnavailable: no certain answer.
        UnknownVersion: the answer is another release's.
        UnreadableRecord: the object does not match its digest.
    """
    name = name_in_bucket(output.uri)
    data = await services.objects.read(name, output.generation)
    if hashlib.sha256(data).hexdigest() != output.sha256:
        raise UnreadableRecord(f"{output.uri}: the object does not match its digest")
    return _content(data, output.uri)


async def output_exists(services: Services, output: Output) -> bool:
    """Whether the very object of an output, same generation, is still there.

    Raises:
        ObjectsUnavailable: no certain answer.
    """
    name = name_in_bucket(output.uri)
    stored = await services.objects.stat(name)
    return stored is not None and stored.generation == output.generation


async def was_purged(services: Services, uri: str) -> bool:
    """Whether an output that is not there any more was deleted on purpose.

    Raises:
        LedgerUnavailable: no answer.
        UnreadableRecord: the evaluation cannot be read.
    """
    name = name_in_bucket(uri)
    [found] = await services.ledger.get(evaluation_path(work_key_of(name)))
    evaluation = from_snapshot(Evaluation, found)
    return evaluation is not None and name in evaluation.purged


def _decode(services: Services, stored: StoredObject, data: bytes) -> StoredAnswer:
    digest = hashlib.sha256(data).hexdigest()
    if stored.metadata.get("sha256") != digest:
        raise UnreadableRecord(f"{stored.name}: the object does not match its digest")
    content = _content(data, stored.name)
    usage = content["usage"]
    output = Output(
        uri=services.objects.uri(stored.name),
        generation=stored.generation,
        sha256=digest,
        stored_at=datetime.fromisoformat(content["stored_at"]),
        model_returned=content["model_returned"],
        usage=Usage(**usage) if usage else None,
        cost_usd=content["cost_usd"],
    )
    return StoredAnswer(output=output, content=content, token=content["token"])


def _content(data: bytes, name: str) -> Mapping[str, Any]:
    try:
        content = json.loads(data)
    except ValueError as exc:
        raise UnreadableRecord(f"{name}: the object is not JSON") from exc
    if not isinstance(content, dict):
        raise UnreadableRecord(f"{name}: the object is no answer", where=name)
    return OUTPUT.read(content, name)
