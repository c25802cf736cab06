"""What one attempt of each seat costs at worst, by the prices of the moment.

Input: the bytes of what is sent. A token of a byte-level vocabulary stands for at least one byte,
so the bytes of both messages and of the schema are an upper bound, usually three to five times the
real count. `FRAMING_TOKENS` is for what vendors add around them.

Output: the seat's `max_output_tokens`, which the vendor enforces, reasoning included. A seat
without one is assumed to need `DEFAULT_OUTPUT_TOKENS`; a model that writes more may take a run past
its cap by what it wrote more (`infra/decisions/2026-11-29-cost-caps.md`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from functions.core.budgets import cap_nano_usd, in_usd, nano_usd, worst_of_all
from functions.core.errors import EmpanelError
from functions.core.identities import canonical_json
from functions.core.jobs import Job, Seat
from functions.core.prompts import Rubric, answer_schema, build_prompt
from functions.core.submissions import Submission
from functions.core.verdicts import DEFAULT_OUTPUT_TOKENS
from functions.services import Services

FRAMING_TOKENS = 512  # role markers, and the instructions vendors add to follow a schema


class CostRefused(EmpanelError):
    """A cap on cost that cannot be kept: a price is unknown, or the cap is below the estimate.

    `path` is the place in the request that breaks the rule, `detail` says how.
    """

    def __init__(self, path: tuple[str | int, ...], detail: str) -> None:
        super().__init__(detail)
        self.path = path
        self.detail = detail


class Asked(Protocol):
    """A seat, accepted already or not yet."""

    @property
    def provider(self) -> str:
        """Name of the provider."""
        ...

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What the caller gave."""
        ...


def worst_cases(
    services: Services, facts: str, rubric: str, seats: Sequence[Asked]
) -> tuple[int | None, ...]:
    """Return what one attempt of each seat costs at worst, in nano-dollars; None where unknown.

    `facts` and `rubric` are canonical JSON.
    """
    input_tokens, now = _input_tokens(facts, rubric), services.clock.now()
    costs = (
        services.prices.estimate_usd(
            seat.provider,
            seat.model,
            input_tokens=input_tokens,
            output_tokens=seat.parameters.get("max_output_tokens", DEFAULT_OUTPUT_TOKENS),
            at=now,
        )
        for seat in seats
    )
    return tuple(None if cost is None else nano_usd(cost) for cost in costs)


def priced(services: Services, draft: Job, submission: Submission) -> tuple[Seat, ...]:
    """Return the draft's seats with what one attempt costs at worst, by the prices of now."""
    facts, rubric = canonical_json(submission.facts), canonical_json(submission.rubric)
    worst = worst_cases(services, facts.decode(), rubric.decode(), draft.seats)
    return tuple(
        replace(seat, worst_nano_usd=nano) for seat, nano in zip(draft.seats, worst, strict=True)
    )


def check_cost(services: Services, draft: Job) -> None:
    """Refuse a cap on cost that could not be kept.

    Raises:
        CostRefused: a price is unknown, or one attempt per seat may cost more than the cap.
    """
    cap = draft.policy.max_cost_usd
    tenant_cap = services.settings.tenant_caps.of(draft.tenant).nano_usd
    if cap is None and tenant_cap is None:
        return
    unknown = [index for index, seat in enumerate(draft.seats) if seat.worst_nano_usd is None]
    if unknown:
        seat = draft.seats[unknown[0]]
        detail = f"the price of {seat.model} at {seat.provider} is unknown, so the estimate is null"
        if cap is not None:
            raise CostRefused(("policy", "max_cost_usd"), f"{detail}: no cost can be capped")
        capped = "the tenant's cost is capped by the day"
        raise CostRefused(("seats", unknown[0], "model"), f"{detail}, and {capped}")
    estimate = worst_of_all(draft.seats) or 0
    if cap is None or estimate <= cap_nano_usd(cap):
        return
    dollars = in_usd(estimate)
    detail = f"must be at least {dollars:.9g}, the estimate of one attempt per seat, not {cap:.9g}"
    raise CostRefused(("policy", "max_cost_usd"), detail)


def _input_tokens(facts: str, rubric_text: str) -> int:
    """Return an upper bound of the input tokens of a question."""
    rubric = Rubric.from_json(json.loads(rubric_text))
    texts = (*build_prompt(rubric, facts), json.dumps(answer_schema(rubric)))
    return FRAMING_TOKENS + sum(len(text.encode()) for text in texts)
