"""A request's JSON value -> Submission: every rule of the interface, all faults told together.

Field rules are in `functions.web.request_models`. Here are the rules between fields, the headers,
and the defaults. Rules between fields are checked on the parts that are well-formed, so that one
fault does not hide the others.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from functions.core.jobs import Policy
from functions.core.submissions import SeatRequest, Submission
from functions.core.webhooks import MAX_URL_CHARACTERS, UrlRefused, read_receiver
from functions.web import problems
from functions.web.faults import MAX_FAULTS, Fault
from functions.web.request_faults import faults_of
from functions.web.request_models import (
    IDEMPOTENCY_KEY,
    MAX_SEATS,
    MODELS_BY_PATH,
    SEAT_NAME,
    JobBody,
    LineBody,
    PolicyBody,
    SeatBody,
)
from functions.web.sizes import size_fault

MAX_FACTS_BYTES = 512 * 1024
MAX_RUBRIC_BYTES = 128 * 1024

_SEAT_NAME = re.compile(SEAT_NAME)
_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY)
# W3C Trace Context: version, trace ID, parent ID, flags; later versions may append fields.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)

Seats = dict[int, SeatBody]
# Why a provider, named first, cannot take some of the parameters.
Refusals = Callable[[str, Mapping[str, Any]], Mapping[str, str]]


def read_submission(
    value: Any,
    *,
    tenant: str,
    default_owner: str,
    endpoints: Mapping[str, str],
    refused_parameters: Refusals,
    idempotency_key: str | None,
    traceparent: str | None,
    allow_loopback: bool = False,
    shape: type[JobBody] = JobBody,
) -> Submission:
    """Return the submission that a parsed body and its headers make.

    `value` comes from `strict_json.parse`. `endpoints` gives the endpoint digest of each configured
    provider, and `refused_parameters` tells what such a provider cannot be asked. `allow_loopback`
    also admits webhooks at `http://127.0.0.1`. A `traceparent` that is none (W3C Trace Context) is
    dropped, as that document asks. A `LineBody` has its key in itself, and is the same request
    without it.

    Raises:
        Problem: 400 for an `Idempotency-Key` that is not 1 to 255 printable ASCII characters; 422
            for the body, with one error per broken rule.
    """
    key = _checked_key(idempotency_key)
    body, faults = _validated(value, shape)
    faults += [
        *_faults_between_fields(value, endpoints),
        *_refused_parameters(value, endpoints, refused_parameters),
        *_refused_url(value, allow_loopback),
    ]
    if faults or body is None:
        raise problems.unprocessable(faults)
    if isinstance(body, LineBody):
        key = body.idempotency_key
        value = {name: part for name, part in value.items() if name != "idempotency_key"}
    return Submission(
        tenant=tenant,
        body=value,
        facts=value["facts"],
        rubric=value["rubric"],
        seats=tuple(_seat_request(seat) for seat in body.seats),
        policy=_policy(body.policy, len(body.seats)),
        owner=body.owner or default_owner,
        labels=body.labels,
        notify_url=body.notify.url if body.notify else None,
        idempotency_key=key,
        traceparent=_known_traceparent(traceparent),
    )


def _checked_key(key: str | None) -> str | None:
    if key is None or _IDEMPOTENCY_KEY.fullmatch(key):
        return key
    raise problems.bad_request("Idempotency-Key must be 1 to 255 printable ASCII characters")


def _known_traceparent(text: str | None) -> str | None:
    match = _TRACEPARENT.match(text or "")
    return match.group() if match else None


def _validated(value: Any, shape: type[JobBody]) -> tuple[JobBody | None, list[Fault]]:
    try:
        return shape.model_validate(value), []
    except ValidationError as exc:
        faults = faults_of(exc, {**MODELS_BY_PATH, (): shape})
        return None, list(islice(faults, MAX_FAULTS))


def _seat_request(seat: SeatBody) -> SeatRequest:
    return SeatRequest(
        seat=_name(seat),
        provider=seat.provider,
        model=seat.model,
        sample=seat.sample,
        parameters=_given(seat),
    )


def _policy(policy: PolicyBody, seat_count: int) -> Policy:
    required = policy.required_seats
    return Policy(
        required_seats=seat_count if required == "all" else required,
        deadline_seconds=policy.deadline_seconds,
        max_attempts=policy.max_attempts,
        max_requests=policy.max_requests,
        max_cost_usd=policy.max_cost_usd,
        reuse=policy.reuse,
    )


def _name(seat: SeatBody) -> str:
    return seat.seat or f"{seat.provider}/{seat.model}"


def _given(seat: SeatBody) -> dict[str, Any]:
    """Return the parameters the caller gave, and no others."""
    return seat.parameters.model_dump(exclude_unset=True)


def _faults_between_fields(value: Any, endpoints: Mapping[str, str]) -> list[Fault]:
    if not isinstance(value, dict):
        return []
    seats = _well_formed_seats(value.get("seats"))
    return [
        *_unknown_providers(seats, endpoints),
        *_unnamed(seats),
        *_names_used_twice(seats),
        *_questions_asked_twice(seats, endpoints),
        *_too_many_required(value),
        *_two_shapes(value.get("rubric")),
        *_too_large("facts", value.get("facts"), MAX_FACTS_BYTES),
        *_too_large("rubric", value.get("rubric"), MAX_RUBRIC_BYTES),
    ]


def _refused_parameters(
    value: Any, endpoints: Mapping[str, str], refused_parameters: Refusals
) -> Iterator[Fault]:
    seats = _well_formed_seats(value.get("seats") if isinstance(value, dict) else None)
    for index, seat in seats.items():
        if seat.provider not in endpoints:
            continue  # told already
        for name, why in refused_parameters(seat.provider, _given(seat)).items():
            detail = f"cannot be asked of {seat.provider}: {why}"
            yield Fault(path=("seats", index, "parameters", name), detail=detail)


def _refused_url(value: Any, allow_loopback: bool) -> Iterator[Fault]:
    notify = value.get("notify") if isinstance(value, dict) else None
    url = notify.get("url") if isinstance(notify, dict) else None
    if not isinstance(url, str) or not 1 <= len(url) <= MAX_URL_CHARACTERS:
        return  # told already, as a fault of its field
    try:
        read_receiver(url, allow_loopback=allow_loopback)
    except UrlRefused as exc:
        yield Fault(path=("notify", "url"), detail=str(exc))


def _well_formed_seats(value: Any) -> Seats:
    """Return the seats, by position, that are right by themselves."""
    seats: Seats = {}
    for index, raw in enumerate(value[:MAX_SEATS] if isinstance(value, list) else ()):
        try:
            seats[index] = SeatBody.model_validate(raw)
        except ValidationError:
            continue  # told already, as a fault of the whole body
    return seats


def _unknown_providers(seats: Seats, endpoints: Mapping[str, str]) -> Iterator[Fault]:
    known = ", ".join(sorted(endpoints)) or "none"
    for index, seat in seats.items():
        if seat.provider not in endpoints:
            detail = f"is not a configured provider; configured: {known}"
            yield Fault(path=("seats", index, "provider"), detail=detail)


def _unnamed(seats: Seats) -> Iterator[Fault]:
    for index, seat in seats.items():
        if not _SEAT_NAME.fullmatch(_name(seat)):
            detail = f"needs a name: provider/model does not match {SEAT_NAME}"
            yield Fault(path=("seats", index, "seat"), detail=detail)


def _names_used_twice(seats: Seats) -> Iterator[Fault]:
    for group in _groups({index: _name(seat) for index, seat in seats.items()}):
        for index in group:
            name = _name(seats[index])
            detail = f"the name {name} is used by seats {_listed(group)}; give each its own `seat`"
            yield Fault(path=("seats", index, "seat"), detail=detail)


def _questions_asked_twice(seats: Seats, endpoints: Mapping[str, str]) -> Iterator[Fault]:
    questions = {
        index: (endpoints[seat.provider], seat.model, seat.sample, frozenset(_given(seat).items()))
        for index, seat in seats.items()
        if seat.provider in endpoints
    }
    for group in _groups(questions):
        for index in group:
            detail = (
                f"seats {_listed(group)} would ask the same (endpoint, model, parameters, sample);"
                " give them different `sample` numbers"
            )
            yield Fault(path=("seats", index), detail=detail)


def _groups(values: Mapping[int, Hashable]) -> Iterator[list[int]]:
    """Yield the positions that share a value, for each value that is shared."""
    positions: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, value in values.items():
        positions[value].append(index)
    return (group for group in positions.values() if len(group) > 1)


def _listed(positions: list[int]) -> str:
    return " and ".join(map(str, positions))


def _too_many_required(value: Mapping[str, Any]) -> Iterator[Fault]:
    policy, seats = value.get("policy"), value.get("seats")
    if not isinstance(policy, dict) or not isinstance(seats, list):
        return
    required = policy.get("required_seats")
    if type(required) is int and len(seats) < required <= MAX_SEATS:
        detail = f"must be at most {len(seats)}, the number of seats, not {required}"
        yield Fault(path=("policy", "required_seats"), detail=detail)


def _two_shapes(rubric: Any) -> Iterator[Fault]:
    if isinstance(rubric, dict) and "criteria" in rubric and "output_schema" in rubric:
        detail = "replaces the shape that `criteria` belong to; give one of the two"
        yield Fault(path=("rubric", "output_schema"), detail=detail)


def _too_large(field: str, part: Any, limit_bytes: int) -> Iterator[Fault]:
    if isinstance(part, dict) and (fault := size_fault((field,), part, limit_bytes)):
        yield fault
