"""What one attempt cost, decided once, when it ends.

| attempt                                       | cost                                  |
|-----------------------------------------------|---------------------------------------|
| never sent                                    | 0                                     |
| any answer with usage, also one of no use     | by its usage                          |
| a timeout that a gateway told (408, 499, 504) | unknown: the model may have answered  |
| another error status without usage            | 0: the request was turned away        |
| an answer without usage                       | unknown                               |
| sent, no answer; cut from our side            | unknown: it may have been paid for    |

The price is that of the model that ran, as far as the price book knows it, else that of the model
asked for: an alias may be repointed, a deployment may have any name. Unknown is None, never 0.
"""

from functions.core.jobs import Attempt, Seat
from functions.core.ports import PriceBook
from functions.core.verdicts import CallFailure, ProviderAnswer

ERROR_STATUS = 400


def answer_cost_usd(
    prices: PriceBook, seat: Seat, attempt: Attempt, answer: ProviderAnswer | CallFailure
) -> float | None:
    """Return what an answer cost, of use or not, at the prices of the attempt's start."""
    if answer.usage is None:
        return None
    for model in (answer.model_returned, seat.model):
        if model is not None:
            cost = prices.cost_usd(seat.provider, model, answer.usage, attempt.started_at)
            if cost is not None:
                return cost
    return None


def failure_cost_usd(
    prices: PriceBook, seat: Seat, attempt: Attempt, failure: CallFailure
) -> float | None:
    """Return what a failed request cost, None when that cannot be known."""
    if not failure.sent:
        return 0.0
    if failure.usage is not None:
        return answer_cost_usd(prices, seat, attempt, failure)
    if failure.code == "timeout":
        return None
    turned_away = failure.http_status is not None and failure.http_status >= ERROR_STATUS
    return 0.0 if turned_away else None
