"""A validated request for a panel, before it is a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.core.jobs import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class SeatRequest:
    """One seat as asked for; `seat` is already named, defaulting to `provider/model`."""

    seat: str
    provider: str
    model: str
    sample: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A request that obeys every rule of the interface document.

    `body` is the parsed request as it was sent: its canonical digest is the identity when no
    idempotency key is given, and decides whether a repeated key means the same request. `facts` and
    `rubric` are the JSON objects that go into work keys and prompts.
    """

    tenant: str
    body: Mapping[str, Any]
    facts: Mapping[str, Any]
    rubric: Mapping[str, Any]
    seats: tuple[SeatRequest, ...]
    policy: Policy
    owner: str
    labels: Mapping[str, str] = field(default_factory=dict)
    notify_url: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None
