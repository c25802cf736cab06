"""Sums of US dollars as floats that read as people write them: no 0.30000000000000004."""

import math
from collections.abc import Iterable

DECIMALS = 12  # a token may cost less than a billionth of a dollar


def usd(amount: float) -> float:
    """Return an amount without the noise of binary fractions."""
    return round(amount, DECIMALS)


def sum_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum, None when any part is unknown; of nothing it is 0."""
    parts = list(costs)
    known = [cost for cost in parts if cost is not None]
    return usd(math.fsum(known)) if len(known) == len(parts) else None
