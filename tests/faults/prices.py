"""A price book that is easy to count with."""

from datetime import datetime

from functions.core.jobs import Usage
from functions.core.verdicts import DEFAULT_OUTPUT_TOKENS

WORST_USD = 1.0
ANSWER_TOKENS = 20  # of the fake provider's answers
ANSWER_USD = WORST_USD * ANSWER_TOKENS / DEFAULT_OUTPUT_TOKENS


class FakePrices:
    """Input is free, and a seat without `max_output_tokens` costs one dollar at worst.

    Models whose names begin with `unpriced` have no price.
    """

    def cost_usd(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Return what the output costs."""
        return self._usd(model, usage.output_tokens)

    def estimate_usd(
        self, provider: str, model: str, *, input_tokens: int, output_tokens: int, at: datetime
    ) -> float | None:
        """Return what the output costs."""
        return self._usd(model, output_tokens)

    def _usd(self, model: str, tokens: int) -> float | None:
        return None if model.startswith("unpriced") else WORST_USD * tokens / DEFAULT_OUTPUT_TOKENS
