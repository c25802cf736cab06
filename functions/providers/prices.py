"""What a call costs: prices per model, unknown where nobody maintains one. Implements `PriceBook`."""

from datetime import datetime

from functions.core.jobs import Usage


class UnknownPrices:
    """A price book without prices: every cost is unknown."""

    def cost_usd(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Return None."""
        return None

    def estimate_usd(
        self, provider: str, model: str, *, input_tokens: int, output_tokens: int, at: datetime
    ) -> float | None:
        """Return None."""
        return None
