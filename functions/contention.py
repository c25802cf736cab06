"""How the steps try again to write a document that several write at once."""

from functions.services import Services

TRIES = 60  # fifty may write at once, and each round of conflicts has one winner
PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5


async def pause_before_next(services: Services, number: int) -> None:
    """Wait after try `number` (from 0), longer each time, and not in step with the others."""
    seconds = min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * (1 + number))
    await services.clock.sleep(seconds * (1 + services.jitter()))
