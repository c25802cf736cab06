"""A job's facts and rubric, inline in its document or objects by digest; the question they make."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from functions.core.errors import UnreadableRecord
from functions.core.identities import canonical_json, input_object, sha256_hex
from functions.core.jobs import Inputs, Job
from functions.core.prompts import Rubric, answer_schema, build_prompt
from functions.core.verdicts import CallRequest
from functions.services import Services

INLINE_BYTES = 32 * 1024


def inline_inputs(facts: Mapping[str, Any], rubric: Mapping[str, Any]) -> Inputs | None:
    """Return inputs that fit into the job's document, None when they are too large for it."""
    facts_text, rubric_text = canonical_json(facts), canonical_json(rubric)
    if len(facts_text) + len(rubric_text) > INLINE_BYTES:
        return None
    return Inputs(facts=facts_text.decode(), rubric=rubric_text.decode())


async def store_inputs(
    services: Services, tenant: str, facts: Mapping[str, Any], rubric: Mapping[str, Any]
) -> Inputs:
    """Store the inputs as objects under their digests, before a job refers to them.

    Raises:
        ObjectsUnavailable: an object could not be stored for certain.
    """
    names = []
    for data in (canonical_json(facts), canonical_json(rubric)):
        name = input_object(tenant, sha256_hex(data))
        await services.objects.create(
            name, data, content_type="application/json", metadata={"sha256": sha256_hex(data)}
        )
        names.append(name)
    return Inputs(facts_object=names[0], rubric_object=names[1])


async def load_inputs(services: Services, job: Job) -> tuple[str, str]:
    """Return facts and rubric as canonical JSON text, checked against the job's digests.

    Raises:
        ObjectMissing, ObjectsUnavailable: an input object cannot be read.
        UnreadableRecord: an input is not the one that was accepted.
    """
    facts = await _text(services, job.inputs.facts, job.inputs.facts_object, job.digests.facts)
    rubric = await _text(services, job.inputs.rubric, job.inputs.rubric_object, job.digests.rubric)
    return facts, rubric


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked, and the rubric that the answer is read by."""

    request: CallRequest
    rubric: Rubric


async def read_question(services: Services, job: Job, index: int) -> Question:
    """Return a seat's question, from the inputs that were pinned at acceptance.

    Raises:
        ObjectMissing, UnreadableRecord: an input is gone or is not the one accepted.
        ObjectsUnavailable: no certain answer.
    """
    seat = job.seats[index]
    facts, rubric_text = await load_inputs(services, job)
    rubric = Rubric.from_json(json.loads(rubric_text))
    system, user = build_prompt(rubric, facts)
    request = CallRequest(
        model=seat.model,
        system=system,
        user=user,
        schema=answer_schema(rubric),
        parameters=seat.parameters,
    )
    return Question(request=request, rubric=rubric)


async def _text(services: Services, inline: str | None, name: str | None, expected: str) -> str:
    if inline is not None:
        return inline
    if name is None:
        raise UnreadableRecord("the job holds neither the input nor the name of its object")
    data = await services.objects.read(name)
    if sha256_hex(data) != expected:
        raise UnreadableRecord(f"{name}: the object does not match the job's digest")
    return data.decode()
